# SyncGate: the fdatasyncs of one log, one at a time. After one has failed, all later ones fail: the kernel
# reports an error only once, to the first caller, and has dropped the pages that it could not write.
#
# Owner: the log. Thread: any, without the GIL; so it uses the C library's mutex, as group_commit does.


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *lock, const void *attributes)
    int pthread_mutex_destroy(pthread_mutex_t *lock)
    int pthread_mutex_lock(pthread_mutex_t *lock)
    int pthread_mutex_unlock(pthread_mutex_t *lock)


cdef struct SyncGate:
    pthread_mutex_t lock
    int error                             # of the first sync that failed, a negative errno

cdef SyncGate *new_sync_gate() except NULL
cdef void free_sync_gate(SyncGate *sync_gate) noexcept
# fdatasync; 0 or a negative errno.
cdef int sync_through(SyncGate *sync_gate, int fd) noexcept nogil
