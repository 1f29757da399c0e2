# GroupCommit: a thread that fsyncs the log on request; requests during a sync are served by the next one. It
# never takes the GIL, so a busy event loop does not delay it; it notifies the loop through an eventfd.
#
# Ownership: the descriptors are the segments', which stay open while they are in a batch. `filling` is
# guarded by the lock, `syncing` belongs to the thread. Order: `collect_synced` raises the log's `flushed`,
# and only then are replies sent.
#
# Thread: the loop's for `request_sync`, `collect_synced`, `stop`.

from libc.stdint cimport int64_t

from firearrow._native.base.histogram cimport Histogram
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
    int64_t base                          # of the last segment in it
    int64_t until                         # the log is durable up to here when all are synced
    int64_t number

cdef class GroupCommit:
    cdef MessageStore store
    cdef SyncGate *sync_gate
    cdef object thread, held              # held: (batch number, segment), until the batch is collected
    cdef pthread_mutex_t lock
    cdef pthread_cond_t requested
    cdef SyncBatch filling, syncing
    cdef readonly Histogram flushes       # the length of each sync in microseconds
    cdef int signal, error
    cdef int64_t done, done_number
    cdef bint stopping

    cdef int add(self, Segment segment) except -1
    cdef void work(self) noexcept nogil
