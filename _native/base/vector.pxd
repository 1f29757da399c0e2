# A vector in C memory that doubles: `capacity` elements are there, `count` of them are in use.

from cpython.mem cimport PyMem_Realloc


cdef inline void *grown(void *old, Py_ssize_t *capacity, Py_ssize_t count, size_t element) except NULL:
    """With room for one more element of so many bytes; what was in it has moved. MemoryError: it is as it
    was."""
    cdef void *larger
    if count < capacity[0]:
        return old
    larger = PyMem_Realloc(old, max(2 * capacity[0], 64) * element)
    if larger is NULL:
        raise MemoryError()
    capacity[0] = max(2 * capacity[0], 64)
    return larger
