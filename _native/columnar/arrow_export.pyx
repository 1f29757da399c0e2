"""Exports columns through Arrow's C data interface (see arrow_export.pxd)."""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset


cdef bint begin_array(ArrowArray *to, int64_t length, int buffers, int children) noexcept nogil:
    """Without buffers, no nulls, children released. False: no memory, nothing to release."""
    cdef ArrowArray *own
    cdef int index
    memset(to, 0, sizeof(ArrowArray))
    to.private_data = calloc(
        1, children * (sizeof(ArrowArray) + sizeof(ArrowArray *)) + buffers * sizeof(void *)
    )
    if to.private_data is NULL:
        return False
    own = <ArrowArray *> to.private_data
    to.children = <ArrowArray **> (own + children)
    to.buffers = <const void **> (to.children + children)
    for index in range(children):
        to.children[index] = own + index
    to.length, to.n_buffers, to.n_children = length, buffers, children
    to.release = release_array
    return True


cdef void *new_buffer(ArrowArray *of, int number, int64_t size) noexcept nogil:
    """Allocate a buffer of the array, once; NULL: no memory."""
    of.buffers[number] = malloc(max(size, 1))
    return <void *> of.buffers[number]


cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef int64_t index
    cdef ArrowArray *child
    for index in range(array.n_children):
        child = array.children[index]
        if child.release is not NULL:             # else it was taken over, or never begun
            child.release(child)
    for index in range(array.n_buffers):
        free(<void *> array.buffers[index])
    free(array.private_data)
    array.release = NULL


@cython.final
cdef class ArrowBatch:
    """Columns for an Arrow reader, as one struct array; freed with this object if no reader took it over."""

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)

    @property
    def address(self):
        # type: (...) -> int
        """Address of an `ArrowArray` of Arrow's C data interface, valid as long as this object lives."""
        return <size_t> &self.array
