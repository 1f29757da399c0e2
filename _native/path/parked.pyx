"""Waiting and Parked: replies that wait for their turn's write (see parked.pxd)."""

from firearrow._native.wire.codes import ResponseCode


cdef class Pending:
    cdef int collect_queues(self, list queues) except -1:
        """Append the queues that have new messages."""
        raise NotImplementedError

    cdef int send(self) except -1:
        raise NotImplementedError

    cdef int send_unsynced(self) except -1:
        raise NotImplementedError

    cdef int send_synced(self) except -1:
        raise NotImplementedError

    cdef int reject(self, str remark) except -1:
        """Nothing was stored."""
        raise NotImplementedError

    cdef int reject_synced(self, str remark) except -1:
        raise NotImplementedError

    cdef int expire(self) except -1:
        """Answer the late ones with FLUSH_DISK_TIMEOUT; their messages stay."""
        raise NotImplementedError


cdef class PendingReply(Pending):
    cdef int collect_queues(self, list queues) except -1:
        queues.append(self.queue)
        return 0

    cdef int send(self) except -1:
        if self.peer is not None and self.answer is not None and not self.peer.closed:
            self.peer.reply(self.answer)
        return 0

    cdef int send_unsynced(self) except -1:
        return 0 if self.waits else self.send()

    cdef int send_synced(self) except -1:
        return self.send() if self.waits else 0

    cdef int reject(self, str remark) except -1:
        if self.answer is not None:
            self.answer = self.answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            self.send()
        return 0

    cdef int reject_synced(self, str remark) except -1:
        return self.reject(remark) if self.waits else 0

    cdef int expire(self) except -1:
        if self.waits and self.answer is not None:
            self.answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            self.send()
            self.waits = False
        return 0
