"""CertificateFiles: an authority, and files with certificates that it has signed."""

import ssl
from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class CertificateFiles:
    """In `folder`: `authority.pem`; `server.pem`, `server.key` for localhost and 127.0.0.1; `client.pem` and
    `client.key`; `stranger.pem` and `stranger.key`, which another authority has signed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.authority.cert_pem.write_to_path(self.path("authority.pem"))
        self.issue("server")
        self.issue("client")
        stranger = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.issue("stranger", stranger)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def issue(self, name: str, authority: trustme.CA | None = None, **settings: Any) -> None:  # noqa: ANN401
        """Write `NAME.pem` and `NAME.key` again, with a new certificate."""
        made = (authority or self.authority).issue_cert(
            "localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA, common_name=name, **settings
        )
        key = load_pem_private_key(made.private_key_pem.bytes(), None)
        Path(self.path(f"{name}.key")).write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # the form that Java reads
        )
        Path(self.path(f"{name}.pem")).write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))

    def lock(self, name: str, password: str) -> str:
        """Path of a copy of `NAME.key` that this password encrypts."""
        key = load_pem_private_key(Path(self.path(f"{name}.key")).read_bytes(), None)
        locked = self.folder / f"{name}-locked.key"
        encryption = BestAvailableEncryption(password.encode())
        locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return str(locked)

    @property
    def arguments(self) -> tuple[str, ...]:
        """A broker's arguments."""
        return "--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key")

    def client(
        self, own: str | None = None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLContext:
        """A client's context that speaks this version only; `own`: its certificate's name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.path("authority.pem"))
        context.minimum_version = context.maximum_version = version
        if own is not None:
            context.load_cert_chain(self.path(f"{own}.pem"), self.path(f"{own}.key"))
        return context


def settings(**pairs: str) -> tuple[str, ...]:
    """Arguments for options of TLS: `server_mode="enforcing"` is `--set tls.server.mode=enforcing`."""
    words = []
    for key, value in pairs.items():
        words += ["--set", f"tls.{key.replace('_', '.')}={value}"]
    return tuple(words)
