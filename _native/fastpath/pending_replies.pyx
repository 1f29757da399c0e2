"""Replies that wait for the write of their write batch (see pending_replies.pxd)."""

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.wire.codes cimport FLUSH_DISK_TIMEOUT, SERVICE_NOT_AVAILABLE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from firearrow._native.wire.command import RemotingCommand


cdef class AnsweredCall:
    """A request that did not come as a frame; for native code only."""

    cdef int write(self, Writer out, const Text *unique_key, int64_t queue_offset) except -1:
        """Write the reply to a stored message."""
        raise NotImplementedError

    cdef int answered(self, const uint8_t *reply, Py_ssize_t length) except -1:
        """Send the reply."""
        raise NotImplementedError

    cdef int failed(self, const uint8_t *reply, Py_ssize_t length, int32_t code, str remark) except -1:
        """Send one with this code in its place. `remark` None: the message is stored."""
        raise NotImplementedError


cdef class Pending:
    """Replies that wait for their write batch."""

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

    cdef int expire(self, int32_t code) except -1:
        """Answer the synced ones with a code that says what did not come in time; their messages stay."""
        raise NotImplementedError


cdef class PendingReply(Pending):
    """One reply of a handler."""

    cdef int collect_queues(self, list queues) except -1:
        queues.append(self.queue)
        return 0

    cdef int send(self) except -1:
        if self.peer is not None and self.answer is not None:
            self.peer.reply(self.answer)      # also of one that is closed: it may have taken messages
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

    cdef int expire(self, int32_t code) except -1:
        if self.waits and self.answer is not None:
            if code == FLUSH_DISK_TIMEOUT or self.is_send:
                self.answer.code = ResponseCode(code)
            self.send()
            self.waits = False
        return 0


cdef enum Readiness:
    ALL, UNSYNCED, SYNCED


cdef class ReplyBatch:  # type: Pending
    """Consecutive replies of the fast path in one write batch."""

    def __cinit__(self, int64_t number, int64_t now_ms, int64_t since_ms, RequestTimes times not None):
        self.times = times
        self.since_ns = nanoseconds()
        self.is_plain = True                  # the fast path has only plain topics
        self.number = number
        self.now_ms = now_ms
        self.since_ms = since_ms
        self.answers = Writer()
        self.queues = []

    def __dealloc__(self):
        self.drop()
        PyMem_Free(self.slices)

    cdef void drop(self) noexcept:
        """After all replies are sent: release connections and replies."""
        while self.count > 0:
            self.count -= 1
            Py_DECREF(<object> self.slices[self.count].connection)
            if self.slices[self.count].call is not NULL:
                Py_DECREF(<object> self.slices[self.count].call)
        self.answers = None

    # ---- called by the sender ----

    cdef int add_queue(self, ConsumeQueue queue, int64_t end) except -1:
        """Messages were staged in the queue, up to `end` of the log."""
        if queue.reply_batch_number != self.number:
            self.queues.append(queue)
            queue.reply_batch_number = self.number
        self.end = end
        return 0

    cdef int begin(self, FastConnection connection, bint waits) except -1:
        """Start a reply to `connection`."""
        cdef ReplySlice *last = &self.slices[self.count - 1] if self.count > 0 else NULL
        if (
            last is NULL or last.connection != <void *> connection or last.waits != waits
            or last.call is not NULL
        ):
            self.add_slice(connection, waits)
        return 0

    cdef int begin_call(self, FastConnection connection, AnsweredCall call, bint waits) except -1:
        """Start the reply to a call on `connection`."""
        cdef ReplySlice *reply_slice = self.add_slice(connection, waits)
        reply_slice.call = <void *> call
        Py_INCREF(call)
        return 0

    cdef ReplySlice *add_slice(self, FastConnection connection, bint waits) except NULL:
        cdef ReplySlice *added
        if self.count == self.capacity:
            larger = <ReplySlice *> PyMem_Realloc(
                self.slices, max(2 * self.capacity, 16) * sizeof(ReplySlice)
            )
            if larger is NULL:
                raise MemoryError()
            self.slices = larger
            self.capacity = max(2 * self.capacity, 16)
        added = &self.slices[self.count]
        added.connection, added.call = <void *> connection, NULL
        added.at, added.length, added.waits = self.answers.size, 0, waits
        Py_INCREF(connection)
        self.count += 1
        return added

    cdef int finish(self) except -1:
        """The reply is complete."""
        self.slices[self.count - 1].length = self.answers.size - self.slices[self.count - 1].at
        return 0

    # ---- called by the write batch ----

    cdef int collect_queues(self, list queues) except -1:
        cdef ConsumeQueue queue
        for queue in self.queues:
            queues.append((queue.topic, queue.queue_id))
        return 0

    cdef int send(self) except -1:
        cdef int kind
        for kind in range(KINDS):
            if self.kinds[kind]:
                self.times.answered(kind, self.kinds[kind])
        self.deliver(ALL)
        self.drop()
        return 0

    cdef int send_unsynced(self) except -1:
        return self.deliver(UNSYNCED)

    cdef int send_synced(self) except -1:
        self.deliver(SYNCED)
        self.drop()
        return self.count_synced()

    cdef int reject(self, str remark) except -1:
        self.replace(SERVICE_NOT_AVAILABLE, remark, ALL)
        self.drop()
        return self.count_refused(SERVICE_NOT_AVAILABLE)

    cdef int reject_synced(self, str remark) except -1:
        self.replace(SERVICE_NOT_AVAILABLE, remark, SYNCED)
        self.drop()
        return self.count_refused(SERVICE_NOT_AVAILABLE)

    cdef int count_synced(self) except -1:
        cdef int kind
        cdef int64_t ns = nanoseconds() - self.since_ns
        for kind in range(KINDS):
            if self.kinds[kind]:
                self.times.record(kind, ns, self.kinds[kind])
        return 0

    cdef int count_refused(self, int32_t code) except -1:
        cdef int kind
        for kind in range(KINDS):
            if self.kinds[kind]:
                self.times.refused(kind, code, self.kinds[kind])
                self.kinds[kind] = 0
        return 0

    cdef int expire(self, int32_t code) except -1:
        self.replace(code, None, SYNCED)
        self.count_refused(code)
        for n in range(self.count):
            self.slices[n].waits = False
        return 0

    cdef int deliver(self, int which) except -1:
        cdef Py_ssize_t following, n = self.next_of(which, 0)
        while n < self.count:
            following = self.next_of(which, n + 1)
            self.send_slice(
                &self.slices[n],
                following < self.count and self.slices[following].connection == self.slices[n].connection,
            )
            n = following
        return 0

    cdef Py_ssize_t next_of(self, int which, Py_ssize_t n) noexcept:
        while n < self.count and not goes_with(&self.slices[n], which):
            n += 1
        return n

    cdef int send_slice(self, const ReplySlice *reply_slice, bint more) except -1:
        """Pass a slice to its connection, which sends when `more` is false: one send for all."""
        cdef FastConnection connection = <FastConnection> reply_slice.connection
        try:
            if reply_slice.call is not NULL:
                (<AnsweredCall> reply_slice.call).answered(
                    self.answers.data + reply_slice.at, reply_slice.length
                )
            elif more or connection.flush_planned:
                connection.append_reply(self.answers.data + reply_slice.at, reply_slice.length)
            else:
                connection.write_through(self.answers.data + reply_slice.at, reply_slice.length)
        except MemoryError as error:
            connection.abort_with(error)
        return 0

    cdef int replace(self, int32_t code, str remark, int which) except -1:
        """Send a reply with this code instead of each; `remark` None: the rest of it stays."""
        cdef Py_ssize_t n, at, end, size
        cdef ReplySlice *reply_slice
        cdef bytes whole = b""
        if self.count > 0:
            whole = PyBytes_FromStringAndSize(<const char *> self.answers.data, self.answers.size)
        for n in range(self.count):
            reply_slice = &self.slices[n]
            at, end = reply_slice.at, reply_slice.at + reply_slice.length
            if reply_slice.call is not NULL and goes_with(reply_slice, which):
                (<AnsweredCall> reply_slice.call).failed(self.answers.data + at, end - at, code, remark)
                continue
            while at < end and goes_with(reply_slice, which):
                size = 4 + int.from_bytes(whole[at:at + 4], "big")
                command = RemotingCommand.decode(whole[at:at + size])
                if remark is None:
                    command.code = ResponseCode(code)
                else:
                    command = command.answer(ResponseCode(code), remark)
                (<FastConnection> reply_slice.connection).send(command.encode())
                at += size
        return 0


cdef inline bint goes_with(const ReplySlice *reply_slice, int which) noexcept:
    """Whether it is selected and its connection is open; calls know themselves what to do then."""
    if which != ALL and reply_slice.waits != (which == SYNCED):
        return False
    return reply_slice.call is not NULL or not (<FastConnection> reply_slice.connection).closed
