# A growing array in C memory: `capacity` elements are allocated, `count` of them in use; it doubles.

from cpython.mem cimport PyMem_Realloc


cdef inline void *grown(void *old, Py_ssize_t *capacity, Py_ssize_t count, size_t element) except NULL:
    """Make space for one more element of `element` bytes; returns the array, which may have moved.
    MemoryError: it is unchanged."""
    cdef void *larger
    if count < capacity[0]:
        return old
    larger = PyMem_Realloc(old, max(2 * capacity[0], 64) * element)
    if larger is NULL:
        raise MemoryError()
    capacity[0] = max(2 * capacity[0], 64)
    return larger
