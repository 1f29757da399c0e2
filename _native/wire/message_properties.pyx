"""Encodes messages to send: properties and batch bodies (see message_properties.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int16_t, int32_t
from libc.string cimport memchr

from firearrow._native.wire.limits cimport FRAME_BYTES_MAX

# type: class Outgoing(Protocol):
# type:     """The attributes of a message that are read; firearrow.client's Message has them."""
# type:
# type:     body: bytes
# type:     unique_id: str | None


cdef enum:
    PROPERTIES_BYTES_MAX = 32767
    # separators on the wire (Apache: MessageDecoder)
    NAME_VALUE_SEPARATOR = 1
    PROPERTY_SEPARATOR = 2

    # the writer of batches keeps its memory up to this: fresh pages for each batch cost more than copying it
    KEPT_BYTES_MAX = 1 << 20
    ITEM_BYTES = 256

cdef Writer free_writer = None

cdef object INT_MAX = 0x7FFFFFFF
cdef object LONG_MAX = 0x7FFFFFFFFFFFFFFF


def message_properties(message not None, UniqueIds ids not None, dict more=None):
    # type: (Outgoing, UniqueIds, dict[str, str] | None) -> bytes
    """All properties of the message in wire format; sets a unique id if it has none. `more` comes last and
    wins.

    ValueError: a name or value that is empty, not a str, or contains the bytes 1 or 2; more than 32767 bytes;
    a number out of range; two delays."""
    cdef Writer out = Writer()
    put_properties(out, message, ids, more)
    return out.take()


def can_batch(messages not None):
    # type: (Iterable[Outgoing]) -> bool
    """Whether the messages may form one batch without further checks: the same topic and wait_store, no
    delay, no sharding key."""
    topic = wait_store = None
    for message in messages:
        if topic is None:
            topic, wait_store = message.topic, message.wait_store
        elif message.topic != topic or message.wait_store is not wait_store:
            return False
        if message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None:
            return False
        if message.sharding_key is not None:
            return False
    return True


def batch_body(messages not None, UniqueIds ids not None):
    # type: (Iterable[Outgoing], UniqueIds) -> bytes
    """The body of a batch request: every message with its flag, body and properties. ValueError as above."""
    global free_writer
    cdef Writer out = free_writer
    cdef bytes whole
    free_writer = None
    if out is None:
        out = Writer()
    out.size = 0
    put_items(out, messages, ids)
    whole = out.take()
    if out.capacity <= KEPT_BYTES_MAX:
        free_writer = out
    return whole


cdef int put_items(Writer out, object messages, UniqueIds ids) except -1:
    cdef Py_ssize_t start, at
    cdef bytes body
    for message in messages:
        start = out.size
        body = message.body
        out.reserve(len(body) + ITEM_BYTES)
        out.put_i32(0)
        out.put_i32(0)
        out.put_i32(0)
        out.put_i32(<int32_t> message.flag)
        out.put_i32(<int32_t> len(body))
        out.put(PyBytes_AS_STRING(body), len(body))
        out.put_i16(0)
        at = out.size
        put_properties(out, message, ids, None)
        out.patch_i16(at - 2, <int16_t> (out.size - at))
        out.patch_i32(start, <int32_t> (out.size - start))
        if out.size > FRAME_BYTES_MAX:
            raise ValueError(f"batch: over {FRAME_BYTES_MAX} bytes")
    return 0


cdef int put_properties(Writer out, object message, UniqueIds ids, dict more) except -1:
    """All properties of the message, then `more`. ValueError: a separator in a name or value, or more than
    32767 bytes."""
    cdef Py_ssize_t start = out.size
    if message.properties:
        put_all(out, message.properties)
    keys = message.keys
    if keys:
        put_property(out, "KEYS", joined(keys))
    unique_id = message.unique_id
    if unique_id is None:
        unique_id = message.unique_id = ids.next()
    put_property(out, "UNIQ_KEY", unique_id)
    put_property(out, "WAIT", "true" if message.wait_store else "false")
    tags = message.tags
    if tags is not None:
        put_property(out, "TAGS", tags)
    put_rare(out, message)
    if more:
        put_all(out, more)
    if out.size - start > PROPERTIES_BYTES_MAX:
        raise ValueError(f"properties: {out.size - start} bytes, at most {PROPERTIES_BYTES_MAX}")
    return 0


cdef str joined(object keys):
    try:
        return " ".join(keys)
    except TypeError as error:
        raise ValueError(f"keys: {error}") from None


cdef int put_rare(Writer out, object message) except -1:
    cdef int delays = 0
    if message.sharding_key is not None:
        put_property(out, "__SHARDINGKEY", message.sharding_key)
    if message.delay_level:
        put_property(out, "DELAY", number_text("delay_level", message.delay_level, INT_MAX))
        delays += 1
    if message.delay_s is not None:
        put_property(
            out, "TIMER_DELAY_MS", number_text("delay_s in ms", milliseconds(message.delay_s), LONG_MAX)
        )
        delays += 1
    if message.deliver_at_ms is not None:
        put_property(out, "TIMER_DELIVER_MS", number_text("deliver_at_ms", message.deliver_at_ms, LONG_MAX))
        delays += 1
    if message.priority is not None:
        put_property(out, "_SYS_MSG_PRIORITY_", number_text("priority", message.priority, INT_MAX))
    if delays > 1:
        raise ValueError("only one of delay_level, delay_s and deliver_at_ms can be given")
    return 0


cdef object milliseconds(object seconds):
    try:
        return round(seconds * 1000)
    except (OverflowError, TypeError, ValueError):
        raise ValueError(f"delay_s: {seconds!r:.40} is not a number of seconds") from None


cdef str number_text(str name, object number, object most):
    if not isinstance(number, int) or not 0 <= number <= most:
        raise ValueError(f"{name}: {number!r:.40} is not a whole number within 0..{most}")
    return str(int(number))


cdef int put_all(Writer out, dict properties) except -1:
    for name, value in properties.items():
        if not name or not value:
            raise ValueError(f"property {name!r} has no name or no value: readers would drop it")
        put_property(out, name, value)
    return 0


cdef int put_property(Writer out, object name, object value) except -1:
    put_text(out, name, name)
    out.put_byte(NAME_VALUE_SEPARATOR)
    put_text(out, name, value)
    return out.put_byte(PROPERTY_SEPARATOR)


cdef int put_text(Writer out, object name, object text) except -1:
    cdef Py_ssize_t length
    if not isinstance(text, str):
        raise ValueError(f"property {name!r} must be a str, not {type(text).__name__}")
    cdef const char *at = PyUnicode_AsUTF8AndSize(text, &length)
    if (
        memchr(at, NAME_VALUE_SEPARATOR, length) is not NULL
        or memchr(at, PROPERTY_SEPARATOR, length) is not NULL
    ):
        raise ValueError(
            f"property {name!r}: the bytes 1 and 2 separate properties on the wire and cannot occur in one"
        )
    return out.put(at, length)
