"""Create an authority and certificates for development."""

import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from firearrow._native.base import certificates
from firearrow._native.base.certificates import Pem
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.output import titled

COLUMNS = titled("file", "content")
HOST = re.compile(r"[\w.:*-]{1,253}", re.ASCII)
"""`*.example.com` and IPv6 addresses among them."""
AUTHORITY, SERVER, CLIENT = "authority", "server", "client"


def main(arguments: Sequence[str]) -> int:
    command = Command("tls", __doc__)
    verb = command.verb("init", init)
    verb.argument("names", nargs="*", metavar="NAME", help="more names or addresses of this host")
    verb.argument("--dir", type=Path, metavar="DIR", help="folder of the files (default ~/firearrow/tls)")
    return command.run(arguments)


async def init(call: Call) -> None:
    """Create an authority, and certificates for the names of this host, by openssl or pip install 'firearrow[tls]'.
    If the authority exists, it signs new certificates.

        firearrow tls init
        firearrow tls init broker-1.example.com --dir ./tls
    """
    if not certificates.available():
        raise ConfigError(
            "this needs the command openssl (apt install openssl) or the package cryptography "
            "(pip install 'firearrow[tls]')"
        )
    for name in call.arguments.names:
        if not HOST.fullmatch(name):
            raise ConfigError(f"{name!r} is not a host name or address")
    folder = call.arguments.dir or _home() / "firearrow" / "tls"
    names = own_names(call.arguments.names)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        issuer = _authority(folder)
        _write(folder, SERVER, certificates.signed_by(issuer, names[0], names))
        _write(folder, CLIENT, certificates.signed_by(issuer, "client"))
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(
            f"{folder}/{AUTHORITY}.pem: {error}; delete both files for a new authority"
        ) from None
    files = {
        f"{AUTHORITY}.pem": "the authority, for clients",
        f"{AUTHORITY}.key": "its key: who has it can make certificates",
        f"{SERVER}.pem": f"certificate for {', '.join(names)}",
        f"{SERVER}.key": "its key",
        f"{CLIENT}.pem": "certificate for clients, if the broker wants one",
        f"{CLIENT}.key": "its key",
    }
    call.output.rows(
        COLUMNS, ({"file": str(folder / name), "content": content} for name, content in files.items())
    )
    call.output.note(
        f"start: firearrow broker --tls-cert {folder}/{SERVER}.pem --tls-key {folder}/{SERVER}.key; "
        f"commands: firearrow context add NAME --authority {folder}/{AUTHORITY}.pem; "
        f'Python: TlsOptions(authority="{folder}/{AUTHORITY}.pem"); Java: -Dtls.enable=true'
    )


def own_names(further: Sequence[str] = ()) -> list[str]:
    """This host's names and addresses, those that were asked for first; each once."""
    host = socket.gethostname()
    found = [*further, host, socket.getfqdn(), "localhost", "127.0.0.1", "::1"]
    try:
        found += [str(address[4][0]).partition("%")[0] for address in socket.getaddrinfo(host, None)]
    except OSError:  # a name that nothing resolves
        pass
    return [name for name in dict.fromkeys(found) if name and name.isascii()]


def _authority(folder: Path) -> Pem:
    """The authority in this folder, made if there is none. OSError, ConfigError."""
    paths = folder / f"{AUTHORITY}.pem", folder / f"{AUTHORITY}.key"
    try:
        return Pem(paths[0].read_bytes(), paths[1].read_bytes())
    except FileNotFoundError as missing:
        if any(path.exists() for path in paths):
            raise ConfigError(
                f"{missing.filename} is missing: restore it, or delete the other one for a new authority"
            ) from None
        made = certificates.authority(f"FireArrow development authority of {socket.gethostname()}")
        _write(folder, AUTHORITY, made)
        return made


def _write(folder: Path, name: str, pem: Pem) -> None:
    """Replace both files; the key is readable by its owner only. OSError."""
    for suffix, text, mode in (("key", pem.key, 0o600), ("pem", pem.certificate, 0o644)):
        new = folder / f"{name}.{suffix}.new"
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(text)
        new.rename(folder / f"{name}.{suffix}")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError("there is no home folder for the files: name a folder with --dir") from None
