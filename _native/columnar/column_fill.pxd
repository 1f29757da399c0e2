# The loops that fill columns: from parsed records into buffers of the exact size. Any thread.
#
# Borrows everything, frees nothing. `at`: offset of the number or Text in a RecordView. The caller allocates
# the buffers: count numbers, (count + 7) / 8 bytes of bits, count + 1 offsets, as many bytes as
# `write_offsets` returns. Hosts are written as `192.0.2.1:10911` or `[2001:db8::1]:10911`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.columnar.property_pairs cimport Pair
from firearrow._native.store.log.record cimport RecordView, Text


cdef enum:
    HOST_TEXT_BYTES_MAX = 64      # [ 45 ]:-2147483648 and the final zero

cdef Py_ssize_t write_host(const Text *host, uint8_t *to) noexcept nogil   # bytes written


cdef enum:
    OFFSET_MAX = 0x7FFFFFFF           # of Arrow's strings and lists


cdef inline Text *text_at(const char *view, Py_ssize_t at) noexcept nogil:
    return <Text *> (view + at)


cdef void write_i32(RecordView *views, Py_ssize_t count, Py_ssize_t at, int32_t *to) noexcept nogil
cdef void write_i64(RecordView *views, Py_ssize_t count, Py_ssize_t at, int64_t *to) noexcept nogil
cdef Py_ssize_t write_times(
    RecordView *views, Py_ssize_t count, Py_ssize_t at, int64_t *to, uint8_t *bits
) noexcept nogil
cdef int64_t write_offsets(const char *first, Py_ssize_t stride, Py_ssize_t count, int32_t *to) noexcept nogil
cdef void write_texts(
    const char *first, Py_ssize_t stride, Py_ssize_t count, const int32_t *starts, char *to
) noexcept nogil
cdef void write_hosts(
    RecordView *views, Py_ssize_t count, Py_ssize_t at, uint8_t *to, Text *found
) noexcept nogil
cdef void repeat_text(const Text *text, Py_ssize_t count, int32_t *starts, char *to) noexcept nogil
cdef Py_ssize_t choose(
    Pair *pairs, const int32_t *ends, Py_ssize_t count, const Text *name, Text *found, uint8_t *bits
) noexcept nogil
