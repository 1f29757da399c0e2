# FastLane: which request goes to which of the path's parts. A lane of its own for each listener: the VIP port
# takes no pulls. Thread: the loop's.

from firearrow._native.path.lane cimport Lane
from firearrow._native.path.pull cimport Puller
from firearrow._native.path.send cimport Sender

cdef class FastLane(Lane):
    cdef Sender sender
    cdef Puller puller                    # None: pulls are not taken
