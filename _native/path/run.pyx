"""Run: answers of the fast path that wait for their turn's write (see run.pxd)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport Py_DECREF, Py_INCREF

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand

cdef enum Which:
    ALL, EARLY, LATE


cdef class Run:
    def __cinit__(self, int64_t number, int64_t now_ms, int64_t since_ms):
        self.plain = True                     # the gate has only plain topics
        self.number = number
        self.now_ms = now_ms
        self.since_ms = since_ms
        self.answers = Writer()
        self.queues = []

    def __dealloc__(self):
        self.drop()
        PyMem_Free(self.parcels)

    cdef void drop(self) noexcept:
        """All answers are sent: release connections and answers."""
        while self.count > 0:
            self.count -= 1
            Py_DECREF(<object> self.parcels[self.count].front)
        self.answers = None

    # ---- called by the sender ----

    cdef int note(self, ConsumeQueue queue, int64_t end) except -1:
        """Messages were staged in the queue, up to `end` of the log."""
        if queue.run != self.number:
            self.queues.append(queue)
            queue.run = self.number
        self.end = end
        return 0

    cdef int begin(self, Front front, bint waits) except -1:
        """Start an answer to `front`."""
        cdef Parcel *last = &self.parcels[self.count - 1] if self.count > 0 else NULL
        if last is not NULL and last.front == <void *> front and last.waits == waits:
            return 0
        if self.count == self.room:
            larger = <Parcel *> PyMem_Realloc(self.parcels, max(2 * self.room, 16) * sizeof(Parcel))
            if larger is NULL:
                raise MemoryError()
            self.parcels = larger
            self.room = max(2 * self.room, 16)
        last = &self.parcels[self.count]
        last.front, last.at, last.length, last.waits = <void *> front, self.answers.size, 0, waits
        Py_INCREF(front)
        self.count += 1
        return 0

    cdef int finish(self) except -1:
        """The answer is complete."""
        self.parcels[self.count - 1].length = self.answers.size - self.parcels[self.count - 1].at
        return 0

    # ---- called by the turn ----

    cdef int name_queues(self, list queues) except -1:
        cdef ConsumeQueue queue
        for queue in self.queues:
            queues.append((queue.topic, queue.queue_id))
        return 0

    cdef int let_go(self) except -1:
        self.deliver(ALL)
        self.drop()
        return 0

    cdef int let_go_early(self) except -1:
        return self.deliver(EARLY)

    cdef int let_go_late(self) except -1:
        self.deliver(LATE)
        self.drop()
        return 0

    cdef int refuse(self, str remark) except -1:
        self.replace(lambda answer: answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark), ALL)
        self.drop()
        return 0

    cdef int refuse_late(self, str remark) except -1:
        self.replace(lambda answer: answer.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark), LATE)
        self.drop()
        return 0

    cdef int expire(self) except -1:
        def expired(answer):
            answer.code = ResponseCode.FLUSH_DISK_TIMEOUT
            return answer

        self.replace(expired, LATE)
        for n in range(self.count):
            self.parcels[n].waits = False
        return 0

    cdef int deliver(self, int which) except -1:
        cdef Py_ssize_t behind, n = self.next_of(which, 0)
        while n < self.count:
            behind = self.next_of(which, n + 1)
            self.hand(
                &self.parcels[n], behind < self.count and self.parcels[behind].front == self.parcels[n].front
            )
            n = behind
        return 0

    cdef Py_ssize_t next_of(self, int which, Py_ssize_t n) noexcept:
        while n < self.count and not is_of(&self.parcels[n], which):
            n += 1
        return n

    cdef int hand(self, const Parcel *parcel, bint more) except -1:
        """Pass it to its connection, which sends once no more answers follow: one send for all."""
        cdef Front front = <Front> parcel.front
        try:
            if more or front.flush_planned:
                front.put(self.answers.data + parcel.at, parcel.length)
            else:
                front.pass_on(self.answers.data + parcel.at, parcel.length)
        except MemoryError as error:
            front.cut(error)
        return 0

    def replace(self, other, int which):
        """Send the result of `other` for each answer."""
        cdef Py_ssize_t n, at, end, size
        cdef Parcel *parcel
        cdef bytes whole = b""
        if self.count > 0:
            whole = PyBytes_FromStringAndSize(<const char *> self.answers.data, self.answers.size)
        for n in range(self.count):
            parcel = &self.parcels[n]
            at, end = parcel.at, parcel.at + parcel.length
            while at < end and is_of(parcel, which):
                size = 4 + int.from_bytes(whole[at:at + 4], "big")
                (<Front> parcel.front).send(other(RemotingCommand.decode(whole[at:at + size])).encode())
                at += size


cdef inline bint is_of(const Parcel *parcel, int which) noexcept:
    """Whether it is selected and its connection is open."""
    if which != ALL and parcel.waits != (which == LATE):
        return False
    return not (<Front> parcel.front).closed
