"""The signature of a request: base64 of HMAC-SHA1 over the values of its fields and its body; of a client of gRPC,
whose requests have another form, over the text of `x-mq-date-time` alone, in hexadecimal. Pure functions.
"""

import base64
import binascii
import hmac

from firearrow._native.protocol.message_queue import java_order
from firearrow._native.wire.command import RemotingCommand

ACCESS_KEY, SIGNATURE, SECURITY_TOKEN = "AccessKey", "Signature", "SecurityToken"
DATE_TIME = "x-mq-date-time"
OF_GRPC = 2
"""The serializer of requests that are made for a call of gRPC; no frame of remoting has it."""
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
V4_9_3 = 399
"""Clients up to this version add `_UNIQUE_KEY_QUERY` after they sign."""
DIGEST_BYTES = 20


def content(request: RemotingCommand, *, always_without_query: bool = False) -> bytes:
    """What is signed: the values in the order of their names (as Java compares strings), then the body.

    `always_without_query`: as the ACL of 4.x, which leaves `_UNIQUE_KEY_QUERY` out whatever the version.
    """
    ext = request.ext
    left_out = {SIGNATURE}
    if always_without_query or request.version <= V4_9_3:
        left_out.add(UNIQUE_KEY_QUERY)
    names = [name for name in ext if name not in left_out]
    names.sort(key=None if all(map(str.isascii, names)) else java_order)
    return "".join([ext[name] for name in names]).encode("utf-8", "replace") + request.body


def is_signed(request: RemotingCommand, secret: str, *, always_without_query: bool = False) -> bool:
    """Whether the request's signature is that of `secret`. A `SecurityToken` may be signed or not: Java signs it,
    Go does not."""
    given = request.ext.get(SIGNATURE)
    if given is None:
        return False
    if request.serializer == OF_GRPC:
        return _is_date_signed(request, given, secret)
    try:
        digest = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(digest) != DIGEST_BYTES:
        return False
    key = secret.encode()
    data = content(request, always_without_query=always_without_query)
    if hmac.compare_digest(hmac.digest(key, data, "sha1"), digest):
        return True
    if SECURITY_TOKEN not in request.ext:
        return False
    token = request.ext.pop(SECURITY_TOKEN)
    data = content(request, always_without_query=always_without_query)
    request.ext[SECURITY_TOKEN] = token
    return hmac.compare_digest(hmac.digest(key, data, "sha1"), digest)


def _is_date_signed(request: RemotingCommand, given: str, secret: str) -> bool:
    expected = hmac.digest(secret.encode(), request.ext.get(DATE_TIME, "").encode("utf-8", "replace"), "sha1")
    return hmac.compare_digest(expected.hex().encode(), given.lower().encode("utf-8", "replace"))


def sign(request: RemotingCommand, access_key: str, secret: str) -> None:
    """Sign a request that this server sends; last, over all other fields and the body."""
    request.ext.pop(SIGNATURE, None)
    request.ext[ACCESS_KEY] = access_key
    digest = hmac.digest(secret.encode(), content(request), "sha1")
    request.ext[SIGNATURE] = base64.b64encode(digest).decode("ascii")
