"""SyncGate: fdatasync of a log's files, one at a time (see sync_gate.pxd)."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from firearrow._native.store.files.segment cimport sync_fd


cdef SyncGate *new_sync_gate() except NULL:
    cdef SyncGate *made = <SyncGate *> PyMem_RawMalloc(sizeof(SyncGate))
    if made is NULL:
        raise MemoryError()
    pthread_mutex_init(&made.lock, NULL)
    made.error = 0
    return made


cdef void free_sync_gate(SyncGate *sync_gate) noexcept:
    if sync_gate is not NULL:
        pthread_mutex_destroy(&sync_gate.lock)
        PyMem_RawFree(sync_gate)


cdef int sync_through(SyncGate *sync_gate, int fd) noexcept nogil:
    cdef int status
    pthread_mutex_lock(&sync_gate.lock)
    if sync_gate.error == 0:
        sync_gate.error = sync_fd(fd)
    status = sync_gate.error
    pthread_mutex_unlock(&sync_gate.lock)
    return status
