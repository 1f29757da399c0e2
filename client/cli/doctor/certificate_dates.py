"""When certificates begin and end: of servers, by a TLS handshake that trusts everything, and in files in PEM format.

The handshake reads the certificate whatever is wrong with it; nothing is sent on the connection. Loop thread.
"""

import asyncio
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from firearrow.client.base.options import TlsOptions
from firearrow.client.cli.doctor.facts import Certificate, host_of

HANDSHAKE_S = 3.0
FILE_BYTES_MAX = 1 << 20
SEQUENCE, UTC_TIME, TAGGED_0 = 0x30, 0x17, 0xA0
BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


async def of_server(holder: str, address: str) -> Certificate | None:
    """None: it does not speak TLS, or cannot be reached."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, port = host_of(address), int(address.rpartition(":")[2])
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, ValueError):
        return None
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return None if der is None else Certificate(holder, f"of {address}", *dates(der))
    except ValueError:
        return None
    finally:
        writer.transport.abort()


def of_files(options: TlsOptions) -> Iterator[Certificate]:
    """Of the client's own certificate and of the authorities that it trusts."""
    for holder, path in (("this client", options.certificate), ("the authority", options.authority)):
        if path is None:
            continue
        try:
            with Path(path).open("rb") as file:
                blocks = BLOCK.findall(file.read(FILE_BYTES_MAX))
        except OSError:  # the connection reports it
            continue
        found = [dates(ssl.PEM_cert_to_DER_cert(block.decode("ascii"))) for block in blocks]
        if found:  # of several, the first to end
            yield Certificate(holder, path, *min(found, key=lambda pair: pair[1]))


def dates(der: bytes) -> tuple[int, int]:
    """From when until when a certificate in DER is valid, ms since 1970. ValueError: it is none.

    X.509: SEQUENCE of the signed SEQUENCE of version [0] (may be missing), serial number, algorithm, issuer, and a
    SEQUENCE of two times.
    """
    certificate, _ = _element(der, SEQUENCE)
    signed, _ = _element(certificate, SEQUENCE)
    if signed[:1] == bytes((TAGGED_0,)):
        _, signed = _element(signed)
    for _ in ("serial number", "algorithm", "issuer"):
        _, signed = _element(signed)
    validity, _ = _element(signed, SEQUENCE)
    begins, rest = _time(validity)
    ends, _ = _time(rest)
    return begins, ends


def _element(der: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """The content of the first element, and what follows it."""
    if len(der) < 2 or (tag is not None and der[0] != tag):
        raise ValueError("not a certificate")
    begin, length = 2, der[1]
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[2:begin], "big")
    if begin + length > len(der):
        raise ValueError("the certificate is cut")
    return der[begin : begin + length], der[begin + length :]


def _time(der: bytes) -> tuple[int, bytes]:
    text, rest = _element(der)
    digits = text.decode("ascii")
    if der[0] == UTC_TIME:  # two digits of the year: 1950 to 2049
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    when = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(when.timestamp() * 1000), rest
