"""FastLane: request code → what takes it in native code (see fast.pxd)."""

from firearrow._native.path.lane cimport NOT_MINE, Front
from firearrow._native.wire.codes cimport SEND_BATCH_MESSAGE, SEND_MESSAGE, SEND_MESSAGE_V2
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header


cdef class FastLane(Lane):
    def __cinit__(self, Sender sender not None):
        self.sender = sender

    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1:
        if header.code == SEND_MESSAGE_V2 or header.code == SEND_BATCH_MESSAGE:
            return self.sender.take(front, frame, header, False)
        if header.code == SEND_MESSAGE:
            return self.sender.take(front, frame, header, True)
        self.sender.settle()
        return NOT_MINE
