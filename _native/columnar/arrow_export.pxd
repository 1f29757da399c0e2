# Arrow's C data interface: columns handed to whoever reads Arrow by their address, without a copy.
# https://arrow.apache.org/docs/format/CDataInterface.html
#
#   array    buffers[n_buffers], children[n_children]: the format says what they mean, apart from the array
#
# Ownership: an array owns its buffers, which are of malloc, and its children; who takes it over copies the
# struct, sets `release` of the original to NULL and calls that of the copy when done. Any thread, no GIL:
# releasing is `free` alone.

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
