"""Certificates for development: an authority of one's own, and certificates that it signs.

They need the package cryptography (the extra `tls`), imported when first used, or else the command openssl. Keys are of
the curve P-256. Any thread.
"""

import datetime
import ipaddress
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from firearrow._native.base import openssl_command

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 825
"""825 days are the most that macOS accepts of a server's certificate."""


class Pem(NamedTuple):
    """A certificate and its key in PEM format."""

    certificate: bytes
    key: bytes


def available() -> bool:
    """Whether certificates can be made here."""
    return _has_package() or openssl_command.available()


def _has_package() -> bool:
    return find_spec("cryptography") is not None


def authority(name: str) -> Pem:
    """A new authority, with a certificate that it has signed itself."""
    if not _has_package():
        return _by_command(name, AUTHORITY_DAYS, is_authority=True)
    key = _new_key()
    builder = _builder(name, key, AUTHORITY_DAYS)
    return _signed(builder, name, key, key, is_authority=True)


def signed_by(issuer: Pem, name: str, names: Iterable[str] = ()) -> Pem:
    """A certificate for a server of these host names and addresses, or for a client. ValueError: `issuer` is no
    authority in PEM format."""
    if not _has_package():
        return _by_command(name, CERTIFICATE_DAYS, issuer, names)
    from cryptography import x509  # noqa: PLC0415 (an optional package)
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    signer = load_pem_private_key(issuer.key, None)
    if not isinstance(signer, EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not one of the curve P-256")
    issuer_name = x509.load_pem_x509_certificate(issuer.certificate).subject
    key = _new_key()
    builder = _builder(name, key, CERTIFICATE_DAYS)
    if alternatives := [_general_name(each) for each in names]:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _signed(builder, issuer_name, key, signer, is_authority=False)


def self_signed(name: str) -> Pem:
    """A certificate that its own key has signed, like the one that Apache's broker makes at its start."""
    if not _has_package():
        return _by_command(name, CERTIFICATE_DAYS)
    key = _new_key()
    return _signed(_builder(name, key, CERTIFICATE_DAYS), name, key, key, is_authority=False)


@contextmanager
def in_memory(pem: bytes) -> Iterator[str]:
    """The path of a file with this text that is on no disk, as `ssl` reads keys only from files. Linux."""
    descriptor = os.memfd_create("firearrow")
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _by_command(
    name: str, days: int, issuer: Pem | None = None, names: Iterable[str] = (), *, is_authority: bool = False
) -> Pem:
    """ValueError: it cannot be made."""
    made = openssl_command.certificate(name, names, _valid(days), issuer, is_authority=is_authority)
    return Pem(*made)


def _valid(days: int) -> tuple[datetime.datetime, datetime.datetime]:
    """From yesterday on, because other hosts' clocks may be slow."""
    now = datetime.datetime.now(datetime.UTC)
    return now - datetime.timedelta(days=1), now + datetime.timedelta(days=days)


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> "x509.Name":
    from cryptography import x509  # noqa: PLC0415

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509  # noqa: PLC0415

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(name: str, key: "EllipticCurvePrivateKey", days: int) -> "x509.CertificateBuilder":
    from cryptography import x509  # noqa: PLC0415

    since, until = _valid(days)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: "x509.CertificateBuilder",
    issuer: "str | x509.Name",
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    *,
    is_authority: bool,
) -> Pem:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415

    path_length = 0 if is_authority else None
    certificate = (
        builder.issuer_name(_named(issuer) if isinstance(issuer, str) else issuer)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=path_length), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(_usage(is_authority=is_authority), critical=True)
        .sign(signer, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pem(certificate.public_bytes(serialization.Encoding.PEM), private)


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509  # noqa: PLC0415

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
