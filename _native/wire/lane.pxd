# The short way of an ordinary message: from Message to frame, from answer to result, without a Python frame
# of ours.
#
# A Lane belongs to a producer and a topic. `submit` answers None for all that is not ordinary: then nothing
# was done, and the whole way (firearrow.client.submission) is taken. What does not end in success is handed
# to `beyond`, which owns future and allowance from then on. An Allowance is how much may be on the way; lanes
# of a producer share one.
#
# Order: a message counts against the allowance until its answer, its time-out or the loss of its connection,
# also when nobody waits for its future any more. Thread: the loop's.

from libc.stdint cimport int32_t, uint32_t

from firearrow._native.wire.calls cimport Calls, Waiter
from firearrow._native.wire.sends cimport SendFrames
from firearrow._native.wire.uniqueid cimport UniqueIds
from firearrow._native.wire.writer cimport Writer

cdef class Allowance:
    cdef readonly Py_ssize_t count_max, bytes_max
    cdef public Py_ssize_t count, bytes
    cdef public bint crowded      # others wait for room and come first

    cpdef bint take(self, Py_ssize_t size) except -1
    cpdef give_back(self, Py_ssize_t size)

cdef class Lane:
    cdef object loop, result_type, stored, info, topic
    cdef dict infos               # of the route table: topic → what a lane was laid out for
    cdef SendFrames frames
    cdef UniqueIds ids
    cdef Allowance allowance
    cdef frozenset special        # properties that mean something for the frame
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
