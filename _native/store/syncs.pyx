"""Syncs: fdatasync of a log's files (see syncs.pxd)."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc

from firearrow._native.store.mutex cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)
from firearrow._native.store.segment cimport sync_fd


cdef Syncs *new_syncs() except NULL:
    cdef Syncs *made = <Syncs *> PyMem_RawMalloc(sizeof(Syncs))
    if made is NULL:
        raise MemoryError()
    pthread_mutex_init(&made.lock, NULL)
    made.error = 0
    return made


cdef void drop_syncs(Syncs *syncs) noexcept:
    if syncs is not NULL:
        pthread_mutex_destroy(&syncs.lock)
        PyMem_RawFree(syncs)


cdef int sync_through(Syncs *syncs, int fd) noexcept nogil:
    cdef int status
    pthread_mutex_lock(&syncs.lock)
    if syncs.error == 0:
        syncs.error = sync_fd(fd)
    status = syncs.error
    pthread_mutex_unlock(&syncs.lock)
    return status
