"""Message records: encode, check, decode (see record.pxd and files/layout.pxd)."""

from dataclasses import dataclass
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy
from firearrow._native.base.endian cimport get_i16, get_i32, get_i64, put_i16, put_i32, put_i64
from firearrow._native.base.hash cimport body_crc
from firearrow._native.store.files.layout cimport (
    AT_BORN_HOST, AT_BORN_TIME, AT_CRC, AT_FLAG, AT_MAGIC, AT_PHYSICAL_OFFSET, AT_QUEUE_ID, AT_QUEUE_OFFSET,
    AT_SIZE, AT_SYS_FLAG, HOST_V4_BYTES, HOST_V6_BYTES, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_END_BYTES,
    RECORD_FIXED_BYTES, SYS_BORN_V6, SYS_STORE_V6, TOPIC_V1_BYTES_MAX,
)


cdef Py_ssize_t record_bytes(const Message *message) noexcept nogil:
    return (
        RECORD_FIXED_BYTES - 2 * HOST_V4_BYTES + message.born_host.length + message.store_host.length
        + (1 if message.topic.length > TOPIC_V1_BYTES_MAX else 0)
        + message.body.length + message.topic.length + message.properties.length
    )


cdef inline uint8_t *put_text(uint8_t *to, const Text *text) noexcept nogil:
    memcpy(to, text.at, text.length)
    return to + text.length


cdef inline uint8_t *put_host(uint8_t *to, const Text *host) noexcept nogil:
    if host.length != HOST_V4_BYTES:
        return put_text(to, host)
    memcpy(to, host.at, HOST_V4_BYTES)        # constant length: a store instead of a call
    return to + HOST_V4_BYTES


cdef void encode_record(const Message *message, Py_ssize_t size, uint8_t *to) noexcept nogil:
    cdef bint wide = message.topic.length > TOPIC_V1_BYTES_MAX
    put_i32(to + AT_SIZE, <int32_t> size)
    put_i32(to + AT_MAGIC, MAGIC_V2 if wide else MAGIC_V1)
    put_i32(to + AT_CRC, message.crc)
    put_i32(to + AT_QUEUE_ID, message.queue_id)
    put_i32(to + AT_FLAG, message.flag)
    put_i64(to + AT_QUEUE_OFFSET, message.queue_offset)
    put_i64(to + AT_PHYSICAL_OFFSET, message.physical_offset)
    put_i32(to + AT_SYS_FLAG, message.sys_flag)
    put_i64(to + AT_BORN_TIME, message.born_time)
    to = put_host(to + AT_BORN_HOST, &message.born_host)
    put_i64(to, message.store_time)
    to = put_host(to + 8, &message.store_host)
    put_i32(to, message.reconsume_times)
    put_i64(to + 4, message.prepared_offset)
    put_i32(to + 12, <int32_t> message.body.length)
    to = put_text(to + 16, &message.body)
    if wide:
        put_i16(to, <short> message.topic.length)
        to += 2
    else:
        to[0] = <uint8_t> message.topic.length
        to += 1
    to = put_text(to, &message.topic)
    put_i16(to, <short> message.properties.length)
    put_text(to + 2, &message.properties)


cdef int check_record(
    const uint8_t *at, Py_ssize_t available, Py_ssize_t size_max, bint check_crc, RecordView *view
) noexcept nogil:
    cdef int32_t magic
    if available < RECORD_END_BYTES:
        return RECORD_CUT
    view.size = get_i32(at + AT_SIZE)
    magic = get_i32(at + AT_MAGIC)
    if magic == MAGIC_BLANK:
        return RECORD_BLANK if RECORD_END_BYTES <= view.size <= available else RECORD_BAD_SIZE
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return RECORD_BAD_MAGIC
    if view.size < RECORD_FIXED_BYTES or view.size > size_max:
        return RECORD_BAD_SIZE
    if view.size > available:
        return RECORD_CUT
    view.crc = get_i32(at + AT_CRC)
    view.queue_id = get_i32(at + AT_QUEUE_ID)
    view.flag = get_i32(at + AT_FLAG)
    view.queue_offset = get_i64(at + AT_QUEUE_OFFSET)
    view.physical_offset = get_i64(at + AT_PHYSICAL_OFFSET)
    view.sys_flag = get_i32(at + AT_SYS_FLAG)
    view.born_time = get_i64(at + AT_BORN_TIME)
    if not find_texts(at, magic == MAGIC_V2, view):
        return RECORD_BAD_SIZE
    if check_crc and not has_its_crc(view):
        return RECORD_BAD_CRC
    return RECORD_OK


cdef bint has_its_crc(const RecordView *view) noexcept nogil:
    return view.body.length == 0 or body_crc(view.body.at, view.body.length) == view.crc


cdef bint find_texts(const uint8_t *record, bint wide, RecordView *view) noexcept nogil:
    """Parse everything after the born time; False if a length does not fit or they do not add up to the
    size."""
    cdef const uint8_t *at = record + AT_BORN_HOST
    cdef const uint8_t *end = record + view.size
    view.born_host.at = at
    view.born_host.length = HOST_V6_BYTES if view.sys_flag & SYS_BORN_V6 else HOST_V4_BYTES
    at += view.born_host.length
    view.store_host.length = HOST_V6_BYTES if view.sys_flag & SYS_STORE_V6 else HOST_V4_BYTES
    if end - at < 8 + view.store_host.length + 16 + 1 + wide:
        return False
    view.store_time = get_i64(at)
    view.store_host.at = at + 8
    at += 8 + view.store_host.length
    view.reconsume_times = get_i32(at)
    view.prepared_offset = get_i64(at + 4)
    view.body.at = at + 16
    view.body.length = get_i32(at + 12)
    if view.body.length < 0 or end - view.body.at < view.body.length + 1 + wide + 2:
        return False
    at = view.body.at + view.body.length
    view.topic.length = get_i16(at) if wide else at[0]
    view.topic.at = at + 1 + wide
    if view.topic.length < 0 or end - view.topic.at < view.topic.length + 2:
        return False
    at = view.topic.at + view.topic.length
    view.properties.length = get_i16(at)
    view.properties.at = at + 2
    return view.properties.length >= 0 and end - view.properties.at == view.properties.length


cdef int64_t store_time_at(const uint8_t *record) noexcept nogil:
    """Store time (ms) of a record that was checked before."""
    cdef int host_bytes = HOST_V6_BYTES if get_i32(record + AT_SYS_FLAG) & SYS_BORN_V6 else HOST_V4_BYTES
    return get_i64(record + AT_BORN_HOST + host_bytes)


cdef void scan_properties(const Text *text, Properties *found) noexcept nogil:
    """`name 0x01 value 0x02 …`; properties without 0x01 or value are skipped, the last of equal names
    wins."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = text.at + text.length
    cdef PropertyScan scan
    cdef uint64_t eight, marks
    clear(found)
    begin(&scan, at)
    while end - at >= 8:
        memcpy(&eight, at, 8)
        marks = marks_of(eight)
        while marks:
            separator(&scan, at + first_byte(marks), found)
            marks &= marks - 1
        at += 8
    while at < end:
        separator(&scan, at, found)
        at += 1
    take(&scan, end, found)


cdef inline void separator(PropertyScan *scan, const uint8_t *at, Properties *found) noexcept nogil:
    if ends_property(scan, at):
        take(scan, at, found)
        begin(scan, at + 1)


cdef inline void take(const PropertyScan *scan, const uint8_t *end, Properties *found) noexcept nogil:
    cdef Text *slot
    if has_value(scan, end):
        slot = slot_of(scan.name, scan.value - 1 - scan.name, found)
        if slot is not NULL:
            slot.at = scan.value
            slot.length = end - scan.value


cdef inline Text *slot_of(const uint8_t *name, Py_ssize_t length, Properties *found) noexcept nogil:
    if length == 4:
        if memcmp(name, b"TAGS", 4) == 0:
            return &found.tags
        return &found.keys if memcmp(name, b"KEYS", 4) == 0 else NULL
    if length == 8:
        return &found.unique_key if memcmp(name, b"UNIQ_KEY", 8) == 0 else NULL
    if length == 5:
        return &found.delay if memcmp(name, b"DELAY", 5) == 0 else NULL
    if length == 20:
        return &found.multi_names if memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0 else NULL
    if length == 24:
        return &found.multi_offsets if memcmp(name, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0 else NULL
    if length == 9:
        return &found.inner_count if memcmp(name, b"INNER_NUM", 9) == 0 else NULL
    return NULL


# ---- for Python: offline reading, tools, tests -------------------------------------------------------------

class RecordError(ValueError):
    """Bytes that are not a record; the message states what is wrong."""
    pass


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded record. Hosts: 4 or 16 address bytes and an i32 port; `body` as stored, maybe
    compressed."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties_bytes: bytes

    @property
    def properties(self):
        # type: (...) -> dict[str, str]
        text = self.properties_bytes
        return property_pairs(<const uint8_t *> PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef dict property_pairs(const uint8_t *at, Py_ssize_t length):
    """`name 0x01 value 0x02 …`; incomplete pairs are dropped, the last of equal names counts."""
    cdef dict found = {}
    cdef const uint8_t *end = at + length
    cdef const uint8_t *stop
    cdef const uint8_t *value
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        if stop is NULL:
            stop = end
        value = <const uint8_t *> memchr(at, NAME_VALUE_SEPARATOR, stop - at)
        if value is not NULL and value > at and value + 1 < stop:
            name = PyUnicode_DecodeUTF8(<const char *> at, value - at, "replace")
            found[name] = PyUnicode_DecodeUTF8(<const char *> value + 1, stop - value - 1, "replace")
        at = stop + 1
    return found


FAULTS = {
    RECORD_BLANK: "the segment ends here",
    RECORD_CUT: "it is truncated",
    RECORD_BAD_MAGIC: "its magic number is not that of a record",
    RECORD_BAD_SIZE: "its lengths do not add up",
    RECORD_BAD_CRC: "its body does not match its CRC",
}


cdef bytes bytes_of(const Text *text):
    return PyBytes_FromStringAndSize(<const char *> text.at, text.length)


cdef object record_of(const RecordView *view):
    return Record(
        view.size, view.crc, view.queue_id, view.flag, view.queue_offset, view.physical_offset, view.sys_flag,
        view.born_time, bytes_of(&view.born_host), view.store_time, bytes_of(&view.store_host),
        view.reconsume_times, view.prepared_offset, bytes_of(&view.body),
        bytes_of(&view.topic).decode("utf-8", "replace"), bytes_of(&view.properties),
    )


def decode(data not None, bint check_crc=True):
    # type: (bytes | bytearray | memoryview, bool) -> Record
    """The record at the start of `data`; later bytes are ignored. RecordError."""
    cdef const uint8_t[::1] view = data
    cdef RecordView found
    cdef Py_ssize_t length = view.shape[0]
    cdef int state = check_record(&view[0] if length else NULL, length, length, check_crc, &found)
    if state != RECORD_OK:
        raise RecordError(FAULTS[state])
    return record_of(&found)
