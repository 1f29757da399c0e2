"""Waiting and Parked: replies that wait for their turn's write (see parked.pxd)."""

from firearrow._native.wire.codes import ResponseCode


cdef class Waiting:
    cdef int name_queues(self, list queues) except -1:
        """Append the queues that have new messages."""
        raise NotImplementedError

    cdef int let_go(self) except -1:
        raise NotImplementedError

    cdef int let_go_early(self) except -1:
        raise NotImplementedError

    cdef int let_go_late(self) except -1:
        raise NotImplementedError

    cdef int refuse(self, str remark) except -1:
        """Nothing was stored."""
        raise NotImplementedError

    cdef int refuse_late(self, str remark) except -1:
        raise NotImplementedError

    cdef int expire(self) except -1:
        """Answer the late ones with FLUSH_DISK_TIMEOUT; their messages stay."""
        raise NotImplementedError


cdef class Parked(Waiting):
    cdef int name_queues(self, list queues) except -1:
        queues.append(self.queue)
        return 0

    cdef int let_go(self) except -1:
        if self.peer is not None and self.answer is not None and not self.peer.closed:
            self.peer.reply(self.answer)
        return 0

    cdef int let_go_early(self) except -1:
        return 0 if self.waits else self.let_go()

    cdef int let_go_late(self) except -1:
        return self.let_go() if self.waits else 0

    cdef int refuse(self, str remark) except -1:
        if self.answer is not None:
            self.answer = self.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            self.let_go()
        return 0

    cdef int refuse_late(self, str remark) except -1:
        return self.refuse(remark) if self.waits else 0

    cdef int expire(self) except -1:
        if self.waits and self.answer is not None:
            self.answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            self.let_go()
            self.waits = False
        return 0
