"""Messages of gRPC: from and to the properties and the body that the store has. Pure functions.

A field of `system_properties` is a property of the message; user properties are those that are left. Bodies that
clients of remoting have compressed are inflated, since clients of gRPC know gzip alone, and some choose by the first
bytes.
"""

import hashlib
import zlib

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import Record
from firearrow.broker.base.message import Property
from firearrow.broker.base.message_ids import host_text, offset_id
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.messages import MESSAGE_TYPES, ProtoMessage, milliseconds, set_ms
from firearrow.broker.grpc.statuses import GrpcRefusal

COMPRESSED, COMPRESSION_SHIFT, COMPRESSION_BITS = 0x1, 8, 0x7
TRANSACTION_PREPARED_BITS = 0x4
ZLIB, INFLATED_BYTES_MAX = 3, 16 << 20
"""A body that is larger once it is inflated is left as it is."""
INT_MAX = 0x7FFFFFFF
BORN_HOST, DLQ_MESSAGE_ID = "__BORNHOST", "DLQ_ORIGIN_MESSAGE_ID"
FORWARDED = "TRANSFER_FLAG"
GZIP_HEAD = b"\x1f\x8b"
DELAYS = frozenset(
    (Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
)
RESERVED = frozenset(
    (
        *name_rules.BROKER_OWN - {Property.TRANSACTION_CHECKS, Property.TRANSACTION_ID},
        *name_rules.RETRIED,
        Property.KEYS, Property.TAGS, Property.WAIT, Property.UNIQUE_KEY, Property.BORN_TIMESTAMP,
        Property.TRACE_CONTEXT, Property.PRIORITY, Property.LITE_TOPIC, Property.CORRELATION_ID,
        Property.REPLY_TO_CLIENT, Property.PUSH_REPLY_TIME, BORN_HOST, FORWARDED, Property.INSTANCE_ID, "MSG_TYPE",
        "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "REDIRECT_TO", "BUYER_ID", "EXTEND_UNIQ_INFO", "MAX_OFFSET",
        "__TRANSACTION_CHECK_TIMES", "UNIQ_KEY",
    )
)  # fmt: skip
"""Properties that are not the user's (Apache: MessageConst.STRING_HASH_SET)."""
OTHERWISE_SENT = DELAYS | {
    Property.TRANSACTION_PREPARED, Property.SHARDING_KEY, Property.PRIORITY, Property.LITE_TOPIC,
    Property.DLQ_ORIGIN_TOPIC, Property.POP_CHECK_POINT,
}  # fmt: skip
"""Properties by which a message has another type, or fields that most have not."""
NOT_SETTABLE = RESERVED | {Property.TRANSACTION_CHECKS, Property.SHARDING_KEY, Property.TRANSACTION_ID}
"""Names that a client may not give to a user property."""


# ---- from a client ----


def properties_from(message: ProtoMessage, topic: str, born_host: str, born_ms: int) -> dict[str, str]:
    """The properties of a message that a client sends; its fields were checked. `born_host`: if it states none."""
    own = message.system_properties
    found = dict(message.user_properties)
    found[Property.UNIQUE_KEY] = own.message_id
    found[Property.WAIT] = "true"
    if own.HasField("tag") and own.tag:
        found[Property.TAGS] = own.tag
    if own.keys:
        found[Property.KEYS] = " ".join(own.keys)
    if own.message_type == MESSAGE_TYPES["TRANSACTION"]:
        found[Property.TRANSACTION_PREPARED] = "true"
        if own.HasField("orphaned_transaction_recovery_duration"):
            seconds = own.orphaned_transaction_recovery_duration.seconds
            found[Property.CHECK_IMMUNITY_S] = str(seconds)
    if own.HasField("message_group") and own.message_group:
        found[Property.SHARDING_KEY] = own.message_group
    if own.HasField("delivery_timestamp"):
        found[Property.TIMER_DELIVER_MS] = str(milliseconds(own.delivery_timestamp))
    if own.HasField("delivery_attempt"):
        found[Property.RECONSUME_TIME] = str(own.delivery_attempt)
    if own.HasField("trace_context") and own.trace_context:
        found[Property.TRACE_CONTEXT] = own.trace_context
    if own.HasField("priority"):
        found[Property.PRIORITY] = str(own.priority)
    if own.HasField("lite_topic") and own.lite_topic:
        found[Property.LITE_TOPIC] = own.lite_topic
    found[Property.BORN_TIMESTAMP] = str(born_ms)
    found[BORN_HOST] = own.born_host.strip() or born_host
    found[Property.PRODUCER_GROUP] = topic
    return found


def type_of(properties: dict[str, str]) -> str:
    """The type of a message, as Apache's TopicMessageType finds it from its properties."""
    if properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true":
        return "TRANSACTION"
    if not properties.keys().isdisjoint(DELAYS):
        return "DELAY"
    if Property.SHARDING_KEY in properties:
        return "FIFO"
    if Property.PRIORITY in properties:
        return "PRIORITY"
    return "LITE" if Property.LITE_TOPIC in properties else "NORMAL"


def flags_from(message: ProtoMessage) -> int:
    """The flags of a message that a client sends, for the store."""
    own = message.system_properties
    flags = COMPRESSED | ZLIB << COMPRESSION_SHIFT if own.body_encoding == messages.ENCODINGS["GZIP"] else 0
    if own.message_type == MESSAGE_TYPES["TRANSACTION"]:
        flags |= TRANSACTION_PREPARED_BITS
    return flags


def check_digest(message: ProtoMessage) -> None:
    """GrpcRefusal: the body is not what its digest was made of."""
    digest = message.system_properties.body_digest
    given = digest.checksum.strip().lower()
    if not given:
        return
    found = _digest(digest.type, message.body)
    if found is not None and found.lstrip("0") != given.lstrip("0"):
        raise GrpcRefusal("MESSAGE_CORRUPTED", "the body does not have the digest that its sender gave")


def _digest(kind: int, body: bytes) -> str | None:
    """None: of an unknown kind."""
    if kind == messages.DIGESTS["CRC32"]:
        return f"{zlib.crc32(body):x}"
    if kind == messages.DIGESTS["MD5"]:
        return hashlib.md5(body, usedforsecurity=False).hexdigest()
    if kind == messages.DIGESTS["SHA1"]:
        return hashlib.sha1(body, usedforsecurity=False).hexdigest()
    return None


# ---- to a client ----


def message_to(record: Record, topic: str, now_ms: int) -> ProtoMessage:
    """The message of a record, as a client gets it. `topic`: the one that it was sent to."""
    properties = record.properties
    found = messages.Message()
    found.topic.name = topic
    for name, value in properties.items():
        if name not in RESERVED:
            found.user_properties[name] = value
    found.body = _set_body(found.system_properties, record)
    _set_times(found.system_properties, record, properties, now_ms)
    _set_properties(found.system_properties, record, properties)
    return found


def _set_body(own: ProtoMessage, record: Record) -> bytes:
    body, encoding = record.body, "IDENTITY"
    if record.sys_flag & COMPRESSED:
        inflated = None if body.startswith(GZIP_HEAD) else _inflated(record.sys_flag, body)
        body, encoding = (body, "GZIP") if inflated is None else (inflated, "IDENTITY")
    own.body_encoding = messages.ENCODINGS[encoding]
    own.body_digest.type = messages.DIGESTS["MD5"]
    own.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    return body


def _set_times(own: ProtoMessage, record: Record, properties: dict[str, str], now_ms: int) -> None:
    set_ms(own.born_timestamp, max(record.born_timestamp, 0))
    own.born_host = properties.get(BORN_HOST) or host_text(record.born_host).rpartition(":")[0]
    set_ms(own.store_timestamp, max(record.store_timestamp, 0))
    own.store_host = host_text(record.store_host)
    due = number(properties.get(Property.TIMER_DELIVER_MS))
    delay = number(properties.get(Property.TIMER_DELAY_SEC))
    if due is not None:
        set_ms(own.delivery_timestamp, due)
    elif delay is not None:
        set_ms(own.delivery_timestamp, now_ms + delay * 1000)


def _set_properties(own: ProtoMessage, record: Record, properties: dict[str, str]) -> None:
    own.message_id = properties.get(Property.UNIQUE_KEY) or offset_id(
        record.store_host, record.physical_offset
    )
    own.message_type = MESSAGE_TYPES[type_of(properties)]
    own.queue_id, own.queue_offset = record.queue_id, record.queue_offset
    own.delivery_attempt = min(record.reconsume_times, INT_MAX - 1) + 1
    if tag := properties.get(Property.TAGS):
        own.tag = tag
    own.keys.extend(filter(None, properties.get(Property.KEYS, "").split(" ")))
    if group := properties.get(Property.SHARDING_KEY):
        own.message_group = group
    if trace := properties.get(Property.TRACE_CONTEXT):
        own.trace_context = trace
    if lite_topic := properties.get(Property.LITE_TOPIC):
        own.lite_topic = lite_topic
    priority = number(properties.get(Property.PRIORITY))
    if priority is not None and priority <= INT_MAX:
        own.priority = priority
    if dead := properties.get(Property.DLQ_ORIGIN_TOPIC):
        own.dead_letter_queue.topic = dead
        own.dead_letter_queue.message_id = properties.get(DLQ_MESSAGE_ID, "")


def number(text: str | None, digits: int = 18) -> int | None:
    """A number from 0; None: the text is not one."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > digits:
        return None
    return int(text)


def _inflated(sys_flag: int, body: bytes) -> bytes | None:
    """The body that a client of remoting compressed with zlib; None: it is compressed otherwise, or not readable."""
    if sys_flag >> COMPRESSION_SHIFT & COMPRESSION_BITS not in (0, ZLIB):
        return None
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(body, INFLATED_BYTES_MAX + 1)
    except zlib.error:
        return None
    return found if stream.eof and len(found) <= INFLATED_BYTES_MAX else None
