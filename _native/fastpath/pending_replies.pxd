# Pending: replies that wait for the write of their write batch, and under SYNC_FLUSH for the sync after it:
# one reply of a handler (PendingReply), or consecutive replies of the fast path (ReplyBatch). In a ReplyBatch
# some replies may wait for the disk and others not: synced and unsynced ones.
#
# ReplyBatch: a reply of a complete handler ends it, so that the replies of each connection keep their order.
# It also has the queues that got messages.
#
# AnsweredCall: a request that did not come as a frame, such as a call of gRPC: `write` adds its reply to the
# batch, `answered` sends it, `failed` sends another one in its place. It counts as long as its connection is
# open.
#
# Ownership: the WriteBatch owns a Pending until its replies are sent; a slice owns its connection until then.
# Replies are complete frames, copied to the `out` of the connections. The WriteBatch closes a ReplyBatch
# once, before its write or when a handler's reply is added. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t
cimport cython
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.request_times cimport KINDS, RequestTimes
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport Text
from firearrow._native.wire.write_buffer cimport Writer


cdef class Pending:
    cdef int64_t end                      # of the log after its record
    cdef int64_t since_ms                 # monotonic
    cdef bint is_plain                    # of topics on which no service listens (arrivals.pxd)

    cdef int collect_queues(self, list queues) except -1
    cdef int send(self) except -1
    cdef int send_unsynced(self) except -1
    cdef int send_synced(self) except -1
    cdef int reject(self, str remark) except -1
    cdef int reject_synced(self, str remark) except -1
    cdef int expire(self, int32_t code) except -1

cdef class PendingReply(Pending):
    cdef tuple queue
    cdef object peer, answer              # None: no reply
    cdef bint waits, is_send


cdef class AnsweredCall:
    cdef int write(self, Writer out, const Text *unique_key, int64_t queue_offset) except -1
    cdef int answered(self, const uint8_t *reply, Py_ssize_t length) except -1
    cdef int failed(self, const uint8_t *reply, Py_ssize_t length, int32_t code, str remark) except -1


cdef struct ReplySlice:
    void *connection                      # a FastConnection
    void *call                            # an AnsweredCall, to which it is the one reply; NULL: frames
    Py_ssize_t at, length                 # of its replies, which are adjacent
    bint waits                            # for the disk


@cython.final
cdef class ReplyBatch(Pending):
    cdef Writer answers
    cdef ReplySlice *slices
    cdef Py_ssize_t count, capacity
    cdef list queues                      # ConsumeQueues that got messages
    cdef bint closed                      # accepts no more replies
    cdef int64_t number
    cdef int64_t now_ms, since_ns
    cdef int64_t kinds[KINDS]             # of its requests with a reply
    cdef RequestTimes times

    cdef int add_queue(self, ConsumeQueue queue, int64_t end) except -1
    cdef int begin(self, FastConnection connection, bint waits) except -1
    cdef int begin_call(self, FastConnection connection, AnsweredCall call, bint waits) except -1
    cdef ReplySlice *add_slice(self, FastConnection connection, bint waits) except NULL
    cdef int finish(self) except -1
    cdef int count_synced(self) except -1
    cdef int count_refused(self, int32_t code) except -1
    cdef int deliver(self, int which) except -1
    cdef Py_ssize_t next_of(self, int which, Py_ssize_t n) noexcept
    cdef int replace(self, int32_t code, str remark, int which) except -1
    cdef int send_slice(self, const ReplySlice *reply_slice, bint more) except -1
    cdef void drop(self) noexcept
