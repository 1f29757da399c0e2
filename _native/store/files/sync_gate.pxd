# Syncs of one log, one at a time. After one that failed none is believed: the kernel tells an error once, to
# whoever asks first, and has dropped what it could not write.
#
# Owner: the log. Thread: any, without the GIL.
# The C library's locks, for what runs without the GIL.


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *lock, const void *attributes)
    int pthread_mutex_destroy(pthread_mutex_t *lock)
    int pthread_mutex_lock(pthread_mutex_t *lock)
    int pthread_mutex_unlock(pthread_mutex_t *lock)


cdef struct SyncGate:
    pthread_mutex_t lock
    int error                             # of the first that failed, a negative errno

cdef SyncGate *new_sync_gate() except NULL
cdef void free_sync_gate(SyncGate *sync_gate) noexcept
# 0 or a negative errno.
cdef int sync_through(SyncGate *sync_gate, int fd) noexcept nogil
