# Lane: the client's fast path for plain messages, from Message to frame and from answer to result, without a
# Python frame of ours.
#
# A Lane belongs to a producer and a topic. `submit` returns None for every message that is not plain; then it
# has changed nothing, and the caller takes the complete path (firearrow.client.submission). An outcome other
# than success goes to `beyond`, which owns future and allowance from then on. An Allowance limits the
# messages and bytes in flight; the lanes of a producer share one.
#
# Order: a message counts against the allowance until its answer, its time-out or the loss of its connection,
# also if its future was cancelled. Units: bytes, seconds. Thread: the loop's.

from libc.stdint cimport int32_t, uint32_t

from firearrow._native.wire.calls cimport Calls, Waiter
from firearrow._native.wire.sends cimport SendFrames
from firearrow._native.wire.uniqueid cimport UniqueIds
from firearrow._native.wire.writer cimport Writer

cdef class Allowance:
    cdef readonly Py_ssize_t count_max, bytes_max
    cdef public Py_ssize_t count, bytes
    cdef public bint crowded      # other messages wait for capacity and come first

    cpdef bint take(self, Py_ssize_t size) except -1
    cpdef give_back(self, Py_ssize_t size)

cdef class Lane:
    cdef object loop, result_type, stored, info, topic
    cdef dict infos               # of the route table: topic → the route that the lane's queues are from
    cdef SendFrames frames
    cdef UniqueIds ids
    cdef Allowance allowance
    cdef frozenset special        # properties that change the frame
    cdef list queues              # as results name them
    cdef list channels            # of each queue
    cdef list broker_names
    cdef list queue_ids
    cdef uint32_t turn
    cdef Py_ssize_t body_bytes_max
    cdef Writer spare

    cdef bint ordinary(self, message, bytes body) except -1
    cdef Calls channel_at(self, Py_ssize_t at)

cdef class LaneWaiter(Waiter):
    cdef Lane lane
    cdef object message, queue, beyond
    cdef int32_t queue_id
    cdef Py_ssize_t size
