"""FastDispatch: dispatches requests by their code to the fast path (see fast_dispatch.pxd)."""

from firearrow._native.fastpath.fast_connection cimport NOT_HANDLED, FastConnection
from firearrow._native.wire.codes cimport PULL_MESSAGE, SEND_BATCH_MESSAGE, SEND_MESSAGE, SEND_MESSAGE_V2
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header


cdef class FastDispatch(FastHandler):
    def __cinit__(self, Sender sender not None, Puller puller):
        self.sender = sender
        self.puller = puller

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1:
        if header.code == SEND_MESSAGE_V2 or header.code == SEND_BATCH_MESSAGE:
            return self.sender.handle_frame(connection, frame, header, False)
        if header.code == PULL_MESSAGE and self.puller is not None:
            return self.puller.handle_frame(connection, frame, header)
        if header.code == SEND_MESSAGE:
            return self.sender.handle_frame(connection, frame, header, True)
        return NOT_HANDLED

    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1:
        return self.sender.handle_templated(connection, frame)
