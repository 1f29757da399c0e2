# Exports columns through Arrow's C data interface: an Arrow reader gets their address, without a copy.
# https://arrow.apache.org/docs/format/CDataInterface.html
#
#   array    buffers[n_buffers], children[n_children]: the schema, which is separate, says what they mean
#
# Ownership: an array owns its children and its buffers, which come from malloc. A reader that takes it over
# copies the struct, sets `release` of the original to NULL and calls that of the copy when done. Any thread,
# no GIL: `release` only calls `free`.

cimport cython
from libc.stdint cimport int64_t

cdef struct ArrowArray:
    int64_t length, null_count, offset, n_buffers, n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *array) noexcept nogil
    void *private_data

cdef bint begin_array(ArrowArray *to, int64_t length, int buffers, int children) noexcept nogil
cdef void *new_buffer(ArrowArray *of, int number, int64_t size) noexcept nogil


@cython.final
cdef class ArrowBatch:
    cdef ArrowArray array
