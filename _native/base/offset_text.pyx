"""The text of offsets in Apache's config files: `"topic@group":{queue:offset,...}` for very many of them.

Python's dicts are walked under the GIL, in slices of the caller's choice. Knows no table. Any thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from firearrow._native.base.text cimport DECIMAL_BYTES_MAX, put_decimal
from firearrow._native.base.vector cimport grown

cdef enum:
    LINE_BYTES_MAX = 2 * DECIMAL_BYTES_MAX + 6   # comma, line feed, three tabs, colon
    MEMBER_BYTES = 16                            # line feeds, tabs and brackets around the lines of a key


cdef struct QueueOffset:
    int64_t queue_id, offset


cdef int by_queue(const void *one, const void *other) noexcept nogil:
    cdef int64_t queue_id = (<const QueueOffset *> one).queue_id
    cdef int64_t other_id = (<const QueueOffset *> other).queue_id
    return (queue_id > other_id) - (queue_id < other_id)


cdef class OffsetLines:
    """Makes the members of one table of Apache's config files, a slice after the other. Any thread."""

    cdef QueueOffset *queues
    cdef Py_ssize_t capacity
    cdef bint has_members

    def __dealloc__(self):
        PyMem_Free(self.queues)

    def add(self, dict table not None, list keys not None, Py_ssize_t start, Py_ssize_t count_max, quote):
        # type: (dict[str, dict[int, int]], list[str], int, int, Callable[[str], bytes]) -> tuple[bytes, int]
        """The lines of the keys from `start` on, with about `count_max` offsets, and the next key's place.
        Keys that the table has no more are left out. `quote(key)`: the key as JSON. OverflowError: an
        offset has more than 64 bits."""
        cdef list parts = []
        cdef Py_ssize_t count = 0
        while start < len(keys) and count < count_max:
            of = table.get(keys[start])
            if of is not None:
                parts.append(self.member(<bytes> quote(keys[start]), <dict> of))
                count += 1 + len(<dict> of)
            start += 1
        return b"".join(parts), start

    cdef bytes member(self, bytes key, dict of):
        cdef Py_ssize_t n = 0, count = len(of)
        cdef bint is_sorted = True
        cdef bytes text
        cdef uint8_t *first
        cdef uint8_t *to
        for queue_id, offset in of.items():
            self.queues = <QueueOffset *> grown(self.queues, &self.capacity, n, sizeof(QueueOffset))
            self.queues[n] = QueueOffset(queue_id=queue_id, offset=offset)
            is_sorted = is_sorted and (n == 0 or self.queues[n].queue_id > self.queues[n - 1].queue_id)
            n += 1
        if not is_sorted:
            qsort(self.queues, count, sizeof(QueueOffset), by_queue)
        text = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(key) + MEMBER_BYTES + count * LINE_BYTES_MAX)
        first = to = <uint8_t *> PyBytes_AS_STRING(text)
        if self.has_members:
            to = put(to, b",", 1)
        self.has_members = True
        to = put(to, b"\n\t\t", 3)
        to = put(put(to, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)), b":{", 2)
        for n in range(count):
            to = put(to, b",\n\t\t\t", 5) if n else put(to, b"\n\t\t\t", 4)
            to = put_decimal(put(put_decimal(to, self.queues[n].queue_id), b":", 1), self.queues[n].offset)
        to = put(to, b"\n\t\t}", 4) if count else put(to, b"}", 1)
        return text[:to - first]


cdef inline uint8_t *put(uint8_t *to, const char *text, Py_ssize_t length) noexcept nogil:
    memcpy(to, text, length)
    return to + length
