"""Who makes a call: the headers `x-mq-client-id` and `authorization` of gRPC clients. Pure functions.

    MQv2-HMAC-SHA1 Credential=<user>[/…], SignedHeaders=x-mq-date-time, Signature=<hex>

The signature is HMAC-SHA1 of the text of `x-mq-date-time` alone. `sign` puts user, time and signature into a request as
fields, by which the access control checks it (`auth/signatures.py`).
"""

import datetime

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import ACCESS_KEY, DATE_TIME, SIGNATURE
from firearrow.broker.grpc.statuses import GrpcRefusal

HEADER, DATE_HEADER = "authorization", "x-mq-date-time"
CREDENTIAL, SIGNED_HEADERS, HEADER_SIGNATURE = "Credential", "SignedHeaders", "Signature"
ITEMS_MAX = 8
CLIENT_ID_CHARS_MAX = 255
WRONG = "authentication header is incorrect."


def client_of(headers: dict[str, str]) -> tuple[str, str]:
    """The client and the user that the headers name, whether rightly or not; empty: none."""
    client_id = headers.get("x-mq-client-id", "")
    try:
        return client_id, _items(headers.get(HEADER, "")).get(CREDENTIAL, "").partition("/")[0]
    except GrpcRefusal:
        return client_id, ""


def client_fault(client_id: str) -> str | None:
    """Why no client can have this id; None: it can."""
    if not client_id.strip():
        return "client id cannot be empty"
    if len(client_id) > CLIENT_ID_CHARS_MAX:
        return f"x-mq-client-id has {len(client_id)} characters, at most {CLIENT_ID_CHARS_MAX} are allowed"
    return None


def sign(request: RemotingCommand, headers: dict[str, str]) -> None:
    """Put the signature of a call into a request that is made for it. GrpcRefusal."""
    if DATE_HEADER not in headers:
        raise GrpcRefusal("UNAUTHORIZED", "datetime is null.")
    items = _items(headers[HEADER])
    request.ext[ACCESS_KEY] = items.get(CREDENTIAL, "").partition("/")[0]
    request.ext[DATE_TIME] = headers[DATE_HEADER]
    request.ext[SIGNATURE] = items.get(HEADER_SIGNATURE, "")


def check_age(headers: dict[str, str], now_ms: int, age_s: int) -> None:
    """GrpcRefusal: the call was signed longer ago, or its time cannot be read."""
    text = headers.get(DATE_HEADER, "")
    if HEADER not in headers or not text:  # there is no signature, or it does not count
        return
    try:
        signed = datetime.datetime.fromisoformat(text[:64])
    except ValueError:
        raise GrpcRefusal("UNAUTHORIZED", f"{DATE_HEADER} cannot be read as a time: {text[:64]}") from None
    if signed.tzinfo is None:
        signed = signed.replace(tzinfo=datetime.UTC)
    if abs(signed.timestamp() * 1000 - now_ms) > age_s * 1000:
        limit = f"more than {age_s} s from this broker's time (grpcSignatureMaxAgeSec)"
        raise GrpcRefusal(
            "UNAUTHORIZED", f"{DATE_HEADER} {text} is {limit}: set the clock, or sign each call"
        )


def _items(header: str) -> dict[str, str]:
    """GrpcRefusal."""
    if not header:
        return {}
    _, blank, rest = header.partition(" ")
    if not blank:
        raise GrpcRefusal("UNAUTHORIZED", WRONG)
    items: dict[str, str] = {}
    for item in rest.split(",", ITEMS_MAX - 1):
        name, sign, value = item.strip().partition("=")
        if not sign:
            raise GrpcRefusal(
                "UNAUTHORIZED", "authentication keyValues length is incorrect, actual length=1."
            )
        items[name] = value
    return items
