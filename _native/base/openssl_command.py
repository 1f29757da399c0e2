"""Certificates for development by the command openssl, for systems without the package cryptography. Any thread.

`openssl ca` signs, because `openssl req` and `x509` cannot set the start of validity. Keys are on the disk for a
moment, in a folder that only the owner can read.
"""

import datetime
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

TIMEOUT_S = 60
TIME = "%Y%m%d%H%M%SZ"
CONFIG = """\
utf8 = yes
[ca]
default_ca = own
[own]
database = {folder}/database
serial = {folder}/serial
new_certs_dir = {folder}
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = name
string_mask = utf8only
prompt = no
[name]
CN = {name}
[extensions]
basicConstraints = critical, {constraints}
keyUsage = critical, {usage}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def available() -> bool:
    return shutil.which("openssl") is not None


def certificate(
    name: str,
    names: Iterable[str],
    valid: tuple[datetime.datetime, datetime.datetime],
    issuer: tuple[bytes, bytes] | None,
    *,
    is_authority: bool,
) -> tuple[bytes, bytes]:
    """A certificate and its key, in PEM format. `issuer`: the certificate and key that sign it; None: its own.

    ValueError: openssl cannot make it; the text is its reason.
    """
    with tempfile.TemporaryDirectory(prefix="firearrow-") as place:  # of its owner only
        folder = Path(place)
        (folder / "database").touch()
        config = _config(folder, name, names, is_authority=is_authority)
        _run(folder, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "key")
        _run(folder, "req", "-new", "-utf8", "-config", config, "-key", "key", "-out", "request")
        signer = ["-selfsign", "-keyfile", "key"]
        if issuer is not None:
            (folder / "issuer").write_bytes(issuer[0])
            (folder / "issuer.key").write_bytes(issuer[1])
            signer = ["-cert", "issuer", "-keyfile", "issuer.key"]
        since, until = (each.strftime(TIME) for each in valid)
        times = ["-startdate", since, "-enddate", until]
        made = [
            "-batch",
            "-notext",
            "-rand_serial",
            "-extensions",
            "extensions",
            "-in",
            "request",
            "-out",
            "made",
        ]
        _run(folder, "ca", "-config", config, *made, *times, *signer)
        return (folder / "made").read_bytes(), (folder / "key").read_bytes()


def _config(folder: Path, name: str, names: Iterable[str], *, is_authority: bool) -> str:
    """The name of the file."""
    text = CONFIG.format(
        folder=folder,
        name=_plain(name[:64]),
        constraints="CA:TRUE, pathlen:0" if is_authority else "CA:FALSE",
        usage="keyCertSign, cRLSign" if is_authority else "digitalSignature",
    )
    alternatives = [f"{_kind(each)}.{number} = {_plain(each)}\n" for number, each in enumerate(names)]
    if alternatives:
        text += f"subjectAltName = @alternatives\n[alternatives]\n{''.join(alternatives)}"
    (folder / "config").write_text(text, "utf-8")
    return "config"


def _kind(name: str) -> str:
    try:
        ip_address(name)
    except ValueError:
        return "DNS"
    return "IP"


def _plain(name: str) -> str:
    """The name itself, if a line of the configuration can hold it. ValueError."""
    if not name.isprintable() or set(name) & set("$\\\"'#"):
        raise ValueError(f"{name!r} cannot be the name in a certificate")
    return name


def _run(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *words], cwd=folder, capture_output=True, timeout=TIMEOUT_S, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"openssl {words[0]}: {error}") from None
    if done.returncode:
        reasons = [
            line for line in done.stderr.splitlines() if line.strip() and not line.startswith("Using ")
        ]
        raise ValueError(f"openssl {words[0]}: {reasons[0] if reasons else 'failed'}")
