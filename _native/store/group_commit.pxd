# A thread that brings the log to the disk as soon as it is asked to: what is asked for while a sync runs goes
# with the next one. It never takes the GIL, so a busy loop does not keep it waiting; it tells the loop
# through an eventfd.
#
# Ownership: descriptors are the segments', which stay open while they are in a batch. `filling` belongs to who
# holds the lock, `syncing` to the thread. Order: `heard` raises what the log calls flushed; nobody is answered
# before.
#
# Threads: `ask`, `heard`, `stop` are the loop's.

from libc.stdint cimport int64_t

from firearrow._native.store.files.sync_gate cimport pthread_mutex_t
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.message_store cimport MessageStore
from firearrow._native.store.files.sync_gate cimport SyncGate

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_cond_t:
        pass

cdef struct SyncBatch:
    int *fds
    int count, capacity
    int64_t base                          # of the last one's segment
    int64_t until                         # of the log: what the disk holds when all are synced
    int64_t number

cdef class GroupCommit:
    cdef MessageStore store
    cdef SyncGate *sync_gate
    cdef object thread, held              # held: of each batch that was not heard of, number and segment
    cdef pthread_mutex_t lock
    cdef pthread_cond_t requested
    cdef SyncBatch filling, syncing
    cdef int signal, error
    cdef int64_t done, done_number
    cdef bint stopping

    cdef int add(self, Segment segment) except -1
    cdef void work(self) noexcept nogil
