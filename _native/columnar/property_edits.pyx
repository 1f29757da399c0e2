"""PropertyEdits: edits the properties of records that are sent again (see property_edits.pxd).

Copies strings, decodes none.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from firearrow._native.base.text cimport DECIMAL_BYTES_MAX, put_decimal
from firearrow._native.store.files.layout cimport (
    NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX, PROPERTY_SEPARATOR,
)
from firearrow._native.store.log.record cimport RecordView, Text

from firearrow._native.protocol.name_rules import BROKER_OWN

# type: REPLAY_JOB: str
# type: REPLAY_BROKER: str
# type: REPLAY_TOPIC: str
# type: REPLAY_QUEUE: str
# type: REPLAY_OFFSET: str

REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC = "REPLAY_JOB", "REPLAY_BROKER", "REPLAY_TOPIC"
REPLAY_QUEUE, REPLAY_OFFSET = "REPLAY_QUEUE", "REPLAY_OFFSET"
REPLAYS = frozenset({REPLAY_JOB, REPLAY_BROKER, REPLAY_TOPIC, REPLAY_QUEUE, REPLAY_OFFSET})


cdef class PropertyEdits:
    """Edits the properties of every record: drops the names in `drop`, appends `put` to the others.

    `provenance` (name of the job, broker of the records) replaces the REPLAY_* properties; they hold the
    record's own topic, queue and queue offset. Picklable.

    ValueError: a name is empty, a string has a byte 1 or 2, or `put` is too long.
    """

    def __cinit__(self, drop=BROKER_OWN, put=None, provenance=None):
        # type: (frozenset[str], Mapping[str, str] | None, tuple[str, str] | None) -> None
        self.drop, self.put, self.texts = frozenset(drop), dict(put or {}), []
        self.provenance = None if provenance is None else (str(provenance[0]), str(provenance[1]))
        self.plan.dropped = NULL
        self.build_names()
        self.build_strings()

    def __dealloc__(self):
        PyMem_Free(self.plan.dropped)

    def __reduce__(self):
        return PropertyEdits, (self.drop, self.put, self.provenance)

    cdef int build_names(self) except -1:
        """Sort names by the first byte, so that few are compared with each property."""
        cdef bytes name
        cdef int32_t index = 0
        dropped = self.drop | self.put.keys() | (frozenset() if self.provenance is None else REPLAYS)
        names = sorted(checked(text).encode() for text in dropped)
        if len(names) > NAMES_MAX:
            raise ValueError(f"{len(names)} properties to be dropped, at most {NAMES_MAX}")
        self.plan.dropped = <Name *> PyMem_Malloc((len(names) + 1) * sizeof(Name))
        if self.plan.dropped is NULL:
            raise MemoryError()
        for byte in range(257):
            while index < len(names) and names[index][0] < byte:
                index += 1
            self.plan.first[byte] = index
        for index, name in enumerate(names):
            self.plan.dropped[index] = Name(at=<const uint8_t *> PyBytes_AS_STRING(name), length=len(name))
        self.texts.append(names)
        return 0

    cdef int build_strings(self) except -1:
        cdef bytes put = b"".join(prop(name, value) for name, value in self.put.items())
        cdef bytes origin = b""
        if self.provenance is not None:
            job, broker_name = self.provenance
            origin = prop(REPLAY_JOB, job) + prop(REPLAY_BROKER, broker_name)
            origin += REPLAY_TOPIC.encode() + b"\x01"
        if len(put) + len(origin) > PROPERTIES_BYTES_MAX:
            raise ValueError(
                f"properties to be put: {len(put) + len(origin)} bytes, at most {PROPERTIES_BYTES_MAX}"
            )
        self.plan.put = Name(at=<const uint8_t *> PyBytes_AS_STRING(put), length=len(put))
        self.plan.origin = Name(at=<const uint8_t *> PyBytes_AS_STRING(origin), length=len(origin))
        self.texts += (put, origin)
        return 0


def checked(text):
    """The name or value itself, if properties can hold it."""
    if not text or "\x01" in text or "\x02" in text:
        raise ValueError(f"property {text!r}: empty, or with a byte 1 or 2, which separate properties")
    return text


def prop(name, value):
    return f"{checked(name)}\x01{checked(value)}\x02".encode()


# ---- properties of one record ----

cdef Py_ssize_t edited_bytes_max(const EditPlan *plan, const RecordView *view) noexcept nogil:
    """Upper bound, whatever is dropped."""
    cdef Py_ssize_t size = view.properties.length + 1 + plan.put.length
    if plan.origin.length:
        size += plan.origin.length + view.topic.length + 2 * DECIMAL_BYTES_MAX
        size += sizeof("REPLAY_QUEUE") + sizeof("REPLAY_OFFSET") + 8
    return size


cdef uint8_t *write_edited(const EditPlan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    """Returns the end of what was written."""
    to = put_kept(plan, &view.properties, to)
    memcpy(to, plan.put.at, plan.put.length)
    to += plan.put.length
    return put_origin(plan, view, to) if plan.origin.length else to


cdef uint8_t *put_kept(const EditPlan *plan, const Text *text, uint8_t *to) noexcept nogil:
    """Copy properties that are not dropped, adjacent ones at once; end with a separator if more may
    follow."""
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef const uint8_t *kept = at
    cdef const uint8_t *stop
    cdef const uint8_t *start = to
    while at < end:
        stop = <const uint8_t *> memchr(at, PROPERTY_SEPARATOR, end - at)
        stop = end if stop is NULL else stop + 1
        if is_dropped(plan, at, stop):
            memcpy(to, kept, at - kept)
            to += at - kept
            kept = stop
        at = stop
    memcpy(to, kept, end - kept)
    to += end - kept
    if to > start and to[-1] != PROPERTY_SEPARATOR and plan.put.length + plan.origin.length:
        to[0] = PROPERTY_SEPARATOR
        to += 1
    return to


cdef bint is_dropped(const EditPlan *plan, const uint8_t *at, const uint8_t *stop) noexcept nogil:
    """Whether the property [at, stop) has one of the names."""
    cdef int32_t index
    cdef const Name *name
    for index in range(plan.first[at[0]], plan.first[at[0] + 1]):
        name = &plan.dropped[index]
        if (
            name.length < stop - at
            and at[name.length] == NAME_VALUE_SEPARATOR
            and memcmp(at, name.at, name.length) == 0
        ):
            return True
    return False


cdef uint8_t *put_origin(const EditPlan *plan, const RecordView *view, uint8_t *to) noexcept nogil:
    memcpy(to, plan.origin.at, plan.origin.length)
    to += plan.origin.length
    memcpy(to, view.topic.at, view.topic.length)
    to += view.topic.length
    memcpy(to, b"\x02REPLAY_QUEUE\x01", 14)
    to = put_decimal(to + 14, view.queue_id)
    memcpy(to, b"\x02REPLAY_OFFSET\x01", 15)
    to = put_decimal(to + 15, view.queue_offset)
    to[0] = PROPERTY_SEPARATOR
    return to + 1
