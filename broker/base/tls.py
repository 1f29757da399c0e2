"""What the options of TLS mean, and the contexts that they ask for. Any thread.

The keys are Apache's system properties (TlsSystemConfig, TlsHelper); `tls.config.file` has the same ones. What
cannot take effect is a TlsFault, so that no server starts without the protection that was asked for.
"""

import re
import ssl
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base import certificates
from firearrow.broker.base import properties
from firearrow.broker.base.config_keys import security_fault
from firearrow.broker.base.file_reads import read_regular

DEFAULT_FILE = "/etc/rocketmq/tls.properties"
KEYS = (
    "tls.server.mode",
    "tls.test.mode.enable",
    "tls.server.certPath",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "tls.server.need.client.auth",
    "tls.server.authClient",
    "tls.server.trustCertPath",
    "tls.ciphers",
    "tls.protocols",
    "tls.config.file",
    "tls.enable",
    "useTLS",
    "tls.client.authServer",
    "tls.client.trustCertPath",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
)
OF_LISTENERS = (
    *("tls.server.authClient", "tls.server.need.client.auth", "tls.server.trustCertPath"),
    "tls.server.keyPassword",
)
OF_CONNECTIONS = (
    *("tls.client.authServer", "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath"),
    "tls.client.keyPassword",
)
OF_BOTH = ("tls.protocols", "tls.ciphers")
_OFF = ("", "false", "none")
NOT_IN_FILE = ("tls.server.mode", "tls.enable", "useTLS", "tls.config.file")
LISTENERS_NEED = (
    "set tls.server.certPath and tls.server.keyPath, or tls.server.mode=disabled if it is not wanted"
)
CONNECTIONS_NEED = "set tls.enable=true, or remove it if connections to other servers shall be plain"
FILE_BYTES_MAX = 4 << 20
EXPIRES_SOON_S = 14 * 86_400.0
STRENGTH_BITS_MIN = 112
PORT_PROTOCOLS = ("h2",)
"""What ALPN chooses at the ports of broker and name server: clients of gRPC offer it, clients of remoting nothing."""
HTTP_PROTOCOLS = ("http/1.1",)
_OPEN_SUITE = re.compile(
    r"NULL|EXP|ANON|ADH|AECDH|SECLEVEL|COMPLEMENT|PSK|(^|[-_])(RC2|RC4|DES)([-_]|$)", re.IGNORECASE
)
"""Suites that do not encrypt or authenticate, or have no strength, also those that OpenSSL does not know any more."""
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsFault(ValueError):
    """The options ask for TLS that cannot be had; the text is a sentence that names the key."""


class TlsFiles(NamedTuple):
    """Whose certificate, which authorities."""

    certificate: str
    key: str
    password: str
    authorities: str
    checked: bool


class TlsSettings(NamedTuple):
    """`mode`: disabled, permissive or enforcing. `made`: the certificate is made at the start (Apache's test mode).
    `outgoing`: to name servers outside this process."""

    mode: str
    made: bool
    server: TlsFiles
    client_auth: ssl.VerifyMode
    ciphers: str
    protocols: str
    file: str
    outgoing: bool
    client: TlsFiles

    @property
    def listens(self) -> bool:
        return self.mode != "disabled"

    def watched(self) -> tuple[str, ...]:
        """The files that are read again when they change."""
        named = (
            self.file,
            *self.server[:2],
            self.server.authorities,
            *self.client[:2],
            self.client.authorities,
        )
        return tuple(path for path in named if path)


def settings_of(pairs: Mapping[str, str]) -> TlsSettings:
    """The settings that these options mean, with those in `tls.config.file`. TlsFault, OSError."""
    path = pairs.get("tls.config.file", DEFAULT_FILE)
    merged = {key: text for key, text in pairs.items() if text} | _of_file(path)

    def text(key: str) -> str:
        return merged.get(key, "")

    def flag(key: str) -> bool:
        if text(key).lower() not in ("", "true", "false"):
            raise TlsFault(f"{key} must be true or false, not {text(key)[:64]!r}")
        return text(key).lower() == "true"

    test = text("tls.test.mode.enable").lower()
    certificate, key = text("tls.server.certPath"), text("tls.server.keyPath")
    flag("tls.test.mode.enable")
    wanted = text("tls.server.need.client.auth").lower()
    default = "enforcing" if wanted == "require" else "permissive"
    mode = text("tls.server.mode") or (default if certificate or key or test == "true" else "disabled")
    if mode not in ("disabled", "permissive", "enforcing"):
        raise TlsFault(f"tls.server.mode must be disabled, permissive or enforcing, not {mode[:64]!r}")
    made = mode != "disabled" and not certificate and not key
    if made and test == "false":
        raise TlsFault(f"tls.server.mode={mode} needs tls.server.certPath and tls.server.keyPath")
    outgoing = flag("tls.enable") or flag("useTLS")
    if mode == "disabled" and not text("tls.server.mode"):
        _refuse_idle(pairs if path == DEFAULT_FILE else merged, OF_LISTENERS, LISTENERS_NEED)
        if not outgoing:
            _refuse_idle(pairs, OF_BOTH, LISTENERS_NEED)
    if not outgoing:
        _refuse_idle(pairs, OF_CONNECTIONS, CONNECTIONS_NEED)  # in a file, they may be those of clients
    return TlsSettings(
        mode=mode,
        made=made,
        server=TlsFiles(
            certificate,
            key,
            text("tls.server.keyPassword"),
            text("tls.server.trustCertPath"),
            flag("tls.server.authClient"),
        ),
        client_auth=_client_auth(wanted, flag("tls.server.authClient"), mode),
        ciphers=text("tls.ciphers"),
        protocols=text("tls.protocols"),
        file=path if Path(path).exists() else "",
        outgoing=outgoing,
        client=TlsFiles(
            text("tls.client.certPath"),
            text("tls.client.keyPath"),
            text("tls.client.keyPassword"),
            text("tls.client.trustCertPath"),
            flag("tls.client.authServer"),
        ),
    )


def _refuse_idle(given: Mapping[str, str], keys: Iterable[str], needed: str) -> None:
    """TlsFault: one of these keys asks for something, and there is no TLS to which it could apply."""
    for key in keys:
        if given.get(key, "").lower() not in _OFF:
            raise TlsFault(f"{key} has no effect without TLS: {needed}")


def _of_file(path: str) -> dict[str, str]:
    """The options in this file; none if it is the default one, and missing. TlsFault."""
    try:
        found = properties.parse(read_regular(path, FILE_BYTES_MAX)) if path else {}
    except FileNotFoundError:
        if path == DEFAULT_FILE:
            return {}
        raise TlsFault(f"tls.config.file={path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise TlsFault(f"tls.config.file={path}: {_words(error)}") from None
    if (fault := security_fault(found, KEYS)) is not None:
        raise TlsFault(f"tls.config.file={path}: {fault}")
    return {key: text for key, text in found.items() if key in KEYS and key not in NOT_IN_FILE and text}


def _client_auth(wanted: str, checked: bool, mode: str) -> ssl.VerifyMode:
    """Clients' certificates are asked for only if they are checked. TlsFault."""
    if wanted not in ("", "none", "optional", "require"):
        raise TlsFault(f"tls.server.need.client.auth must be none, optional or require, not {wanted[:64]!r}")
    if mode == "disabled":
        return ssl.CERT_NONE
    if wanted == "require" and not checked:
        raise TlsFault(
            "tls.server.need.client.auth=require accepts any certificate unless tls.server.authClient=true: "
            "set it, and the authority in tls.server.trustCertPath"
        )
    if wanted == "require" and mode == "permissive":
        raise TlsFault(
            "tls.server.need.client.auth=require requires nothing while tls.server.mode=permissive serves clients "
            "without TLS: set tls.server.mode=enforcing, or tls.server.need.client.auth=optional"
        )
    if checked and wanted in ("", "none"):
        raise TlsFault(
            "tls.server.authClient=true checks nothing while tls.server.need.client.auth=none: "
            "set that to require or optional"
        )
    if not checked:
        return ssl.CERT_NONE
    return ssl.CERT_REQUIRED if wanted == "require" else ssl.CERT_OPTIONAL


# ---- contexts ----


def server_context(settings: TlsSettings, protocols: Iterable[str] = PORT_PROTOCOLS) -> ssl.SSLContext:
    """A context for connections to us, with the files as they are now. `protocols`: of ALPN. TlsFault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    _limit(context, settings)
    if settings.made:
        _load_made(context)
    else:
        _load_own(context, settings.server, "tls.server")
    context.set_alpn_protocols(list(protocols))
    context.verify_mode = settings.client_auth
    if settings.client_auth is not ssl.CERT_NONE:
        _trust(context, settings.server.authorities, "tls.server", ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context for our connections to other servers. TlsFault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    if settings.client.checked:
        _trust(context, settings.client.authorities, "tls.client", ssl.Purpose.SERVER_AUTH)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.client.certificate or settings.client.key:
        _load_own(context, settings.client, "tls.client")
    return context


def fault_of(pairs: Mapping[str, str]) -> str | None:
    """Why these options cannot take effect; None if they can."""
    try:
        settings = settings_of(pairs)
        if settings.listens and not settings.made:
            server_context(settings)
        if settings.made and not certificates.available():
            raise TlsFault(
                "without tls.server.certPath a certificate is made at the start, which needs the command openssl or "
                "the package cryptography: pip install 'firearrow[tls]', or name a certificate"
            )
        if settings.outgoing:
            client_context(settings)
    except TlsFault as fault:
        return str(fault)
    return None


def expiry(path: str) -> str | None:
    """A sentence if the first certificate in this file has expired, expires within EXPIRES_SOON_S, or is not valid
    yet."""
    found = validity(path)
    if found is None:
        return None
    now = time.time()
    if found.ends_s < now:
        return f"the certificate {path} has expired on {found.ends}: clients that check it do not connect"
    if found.ends_s < now + EXPIRES_SOON_S:
        return (
            f"the certificate {path} expires on {found.ends}: replace the file, which is read again by itself"
        )
    if found.begins_s > now:
        return f"the certificate {path} is not valid before {found.begins}: look at this host's clock"
    return None


class Validity(NamedTuple):
    """When a certificate begins and ends to be valid, as its text and in seconds since 1970."""

    begins: str
    ends: str
    begins_s: float
    ends_s: float


def validity(path: str) -> Validity | None:
    """Of the first certificate in this file. None: it cannot be read."""
    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:  # another Python than CPython
        return None
    try:
        begins, ends = map(decode(path).__getitem__, ("notBefore", "notAfter"))
        return Validity(begins, ends, ssl.cert_time_to_seconds(begins), ssl.cert_time_to_seconds(ends))
    except (ssl.SSLError, OSError, ValueError, KeyError):
        return None


def server_name(path: str) -> str:
    """A name that the first certificate in this file is for; "": none is known."""
    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    try:
        names = dict(decode(path)).get("subjectAltName", ()) if decode is not None else ()
    except (ssl.SSLError, OSError):
        names = ()
    return next((str(name) for kind, name in names if kind in ("DNS", "IP Address") and "*" not in name), "")


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Versions and cipher suites. TlsFault."""
    names = [name.strip() for name in settings.protocols.split(",") if name.strip()] or list(VERSIONS)
    if wrong := [name for name in names if name not in VERSIONS]:
        raise TlsFault(f"tls.protocols has {wrong[0][:64]!r}: only {' and '.join(VERSIONS)} are supported")
    versions = sorted(VERSIONS[name] for name in names)
    suites = [name.strip() for name in settings.ciphers.split(",") if name.strip()]
    if open_suites := [name for name in suites if _OPEN_SUITE.search(name) and name[0] not in "!-"]:
        raise TlsFault(_open_suite(open_suites[0]))
    old = [_openssl_name(name) for name in suites if not _is_newer(name)]
    if suites and len(old) == len(suites):
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_2]
    elif suites and not old:
        versions = [version for version in versions if version is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise TlsFault("tls.ciphers has no cipher suite for the versions in tls.protocols")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    try:
        if old:
            context.set_ciphers(":".join(old))
    except ssl.SSLError:
        raise TlsFault(
            f"tls.ciphers has no cipher suite that OpenSSL knows: {', '.join(old)[:128]}"
        ) from None
    for suite in context.get_ciphers() if old else ():
        if suite["strength_bits"] < STRENGTH_BITS_MIN or suite["auth"] in ("auth-null", "auth-psk"):
            raise TlsFault(_open_suite(suite["name"]))


def _open_suite(name: str) -> str:
    return (
        f"tls.ciphers asks for {name[:64]!r}, which leaves connections readable or their ends unknown: name suites "
        "that encrypt and authenticate"
    )


def _is_newer(name: str) -> bool:
    """A suite of TLS 1.3; OpenSSL has all of them switched on."""
    return name.startswith("TLS_") and "_WITH_" not in name


def _openssl_name(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256` in OpenSSL."""
    if "_WITH_" not in name:
        return name
    name = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES").replace("_CBC", "")
    name = name.removesuffix("_SHA256") if "POLY1305" in name else name
    return name.removeprefix("RSA_").replace("_", "-")


def _load_own(context: ssl.SSLContext, files: TlsFiles, prefix: str) -> None:
    """The certificate and its key. TlsFault."""
    for key, path in (("certPath", files.certificate), ("keyPath", files.key)):
        if not path:
            raise TlsFault(f"{prefix}.{key} is not set: a certificate and its key are needed")
        _readable(f"{prefix}.{key}", path)
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: files.password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"the key in {prefix}.keyPath={files.key} does not belong to the certificate {files.certificate}"
        elif error.reason is not None:
            text = f"{prefix}.certPath={files.certificate}: {error.reason.lower().replace('_', ' ')}"
        else:
            text = (
                f"{prefix}.certPath={files.certificate} and keyPath={files.key} are not in PEM format, or "
                "keyPassword is not the key's password"
            )
        raise TlsFault(text) from None
    except OSError as error:  # replaced since it was read above
        raise TlsFault(f"{prefix}.certPath={files.certificate}: {_words(error)}") from None


def _readable(key: str, path: str) -> None:
    """OpenSSL reads it next. TlsFault: it is not a regular file of reasonable size."""
    try:
        read_regular(path, FILE_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise TlsFault(f"{key}={path}: {_words(error)}") from None


def _trust(context: ssl.SSLContext, authorities: str, prefix: str, purpose: ssl.Purpose) -> None:
    if not authorities:
        context.load_default_certs(purpose)
        return
    _readable(f"{prefix}.trustCertPath", authorities)
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError:
        raise TlsFault(f"{prefix}.trustCertPath={authorities} has no certificate in PEM format") from None
    except OSError as error:
        raise TlsFault(f"{prefix}.trustCertPath={authorities}: {_words(error)}") from None


def _load_made(context: ssl.SSLContext) -> None:
    with certificates.in_memory(_made()) as path:
        context.load_cert_chain(path)


@cache
def _made() -> bytes:
    """A certificate and its key, for all ports of this process. TlsFault."""
    try:
        certificate, key = certificates.self_signed("localhost")
    except ValueError as error:
        raise TlsFault(
            f"no certificate can be made at the start: {error}; name one by tls.server.certPath"
        ) from None
    return certificate + key


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def handshake_fault(host: str, port: int, error: OSError) -> ConnectionError:
    """Why a connection to another server, which began with TLS, was not made, and what to do."""
    text = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionError(
            f"the certificate of {host}:{port} is not accepted ({text}): set tls.client.trustCertPath to the "
            "authority that signed it"
        )
    return ConnectionError(
        f"{host}:{port} took no TLS ({text}): set tls.server.certPath and tls.server.keyPath there, or "
        "tls.enable=false here"
    )


def plain_hint(text: str, *, tls: bool) -> str:
    """Of a fault of a connection to another server; `tls`: with TLS."""
    if tls or not text.endswith("closed the connection"):
        return text
    return f"{text} (if it takes only TLS, set tls.enable=true here)"
