# TopicFastSend: the client's fast path for plain messages, from Message to frame and from response to result,
# without a Python frame of ours.
#
# It belongs to a producer and a topic. `submit` returns None for every message that is not plain; then it has
# changed nothing, and the caller takes the complete path (client/send/send_task). An outcome other than
# success goes to `slow_path`, which owns the future and the message's share of the limit from then on.
#
# PlainMessages: which messages of a producer are plain, and how their results are made.
#
# InFlightLimit: limits the messages and bytes in flight; shared by all topics of a producer. A message counts
# until its response, its time-out or the loss of its connection, also if its future was cancelled.
#
# Units: bytes, seconds. Thread: the loop's.

from libc.stdint cimport int32_t, uint32_t

from firearrow._native.wire.pending_calls cimport PendingCalls, CallWaiter
from firearrow._native.wire.send_request cimport SendFrames
from firearrow._native.wire.unique_ids cimport UniqueIds
from firearrow._native.wire.write_buffer cimport Writer

cdef class InFlightLimit:
    cdef readonly Py_ssize_t count_max, bytes_max
    cdef public Py_ssize_t count, bytes
    cdef public bint crowded  # Other messages wait for capacity: `try_acquire` refuses.

    cpdef bint try_acquire(self, Py_ssize_t size) except -1
    cpdef release(self, Py_ssize_t size)

cdef class PlainMessages:
    cdef frozenset special        # properties that change the frame
    cdef Py_ssize_t body_bytes_max
    cdef object result_type, stored

cdef class TopicFastSend:
    cdef object loop, result_type, stored, info, topic
    cdef dict infos               # of the route table: topic → the route that `queues` is from
    cdef SendFrames frames
    cdef UniqueIds ids
    cdef InFlightLimit limit
    cdef frozenset special        # properties that change the frame
    cdef list queues              # as results name them
    cdef list channels            # of each queue
    cdef list broker_names
    cdef list queue_ids
    cdef uint32_t next_queue
    cdef double attempt_share     # of a send's time, for its first attempt
    cdef Py_ssize_t body_bytes_max
    cdef Writer free_writer

    cdef bint is_fast_path_message(self, message, bytes body) except -1
    cdef PendingCalls channel_at(self, Py_ssize_t at)

cdef class FastSendWaiter(CallWaiter):
    cdef TopicFastSend topic_send
    cdef object message, queue, slow_path
    cdef int32_t queue_id
    cdef float share              # of the send's time, until `deadline`
    cdef Py_ssize_t size
