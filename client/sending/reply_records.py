"""A reply as it is pushed to us, made into what consumers receive. Values only: any thread."""

import ipaddress
import logging
import struct
import zlib

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import COMPRESSED, KIND_BITS, BodyUnreadable, open_body
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.message import PROPERTIES_BYTES_MAX, Property
from firearrow.client.remoting.channels import host_port

log = logging.getLogger("firearrow.client")

MAGIC_V2 = -626843477
BORN_V6, STORE_V6 = 0x10, 0x20
TOPIC_BYTES_MAX = 32767


def reply_of(push: RemotingCommand, now_ms: int) -> ReceivedMessage:
    """PUSH_REPLY_MESSAGE_TO_CLIENT → the message. FieldError, ClientError (both name the field)."""
    sys_flag, body = _opened(push.integer("sysFlag", 32), push.body)
    born, store = _host(push, "bornHost"), _host(push, "storeHost")
    sys_flag |= (BORN_V6 if len(born) > 8 else 0) | (STORE_V6 if len(store) > 8 else 0)
    topic = _text(push, "topic", TOPIC_BYTES_MAX)
    properties = _text(push, "properties", PROPERTIES_BYTES_MAX)
    record = b"".join((
        struct.pack(">iiqqi", push.integer("queueId", 32), push.integer("flag", 32), 0, 0, sys_flag),
        struct.pack(">q", push.integer("bornTimestamp")), born,
        struct.pack(">q", push.integer("storeTimestamp")), store,
        struct.pack(">iqi", push.integer_or("reconsumeTimes", 0, 32), 0, len(body)), body,
        struct.pack(">h", len(topic)), topic,
        struct.pack(">h", len(properties)), properties,
    ))  # fmt: skip
    head = struct.pack(">iii", 12 + len(record), MAGIC_V2, zlib.crc32(body) & 0x7FFFFFFF)
    (message,) = decode_messages(head + record, push.text_or("bname", ""), open_body)
    message.put_property(Property.ARRIVE_TIME, str(now_ms))
    return message


def _opened(sys_flag: int, body: bytes) -> tuple[int, bytes]:
    """Clients of other languages flag replies as compressed that are not: then the body is taken as it is."""
    try:
        body = open_body(sys_flag, body)
    except BodyUnreadable as error:
        log.info("a reply is taken as it came: %s", error)
    return sys_flag & ~(COMPRESSED | KIND_BITS | BORN_V6 | STORE_V6 | 0xC0), body


def _host(push: RemotingCommand, name: str) -> bytes:
    """Java writes `ip:port` or `/ip:port`."""
    text = push.text(name).removeprefix("/")
    try:
        host, port = host_port(text)
        return ipaddress.ip_address(host).packed + struct.pack(">i", port)
    except (ConfigError, ValueError) as error:
        raise ClientError(f"{name}: {text[:80]!r} is no address") from error


def _text(push: RemotingCommand, name: str, bytes_max: int) -> bytes:
    encoded = push.text_or(name, "").encode("utf-8", "surrogatepass")
    if len(encoded) > bytes_max:
        raise ClientError(f"{name}: {len(encoded)} bytes, at most {bytes_max}")
    return encoded
