"""Sender: plain sends without a Python object for each (see send.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from firearrow._native.path.batch cimport ITEMS_MAX, item_at, items_bytes
from firearrow._native.path.completion cimport ROOM_BYTES, add, give_key, take_given
from firearrow._native.path.fields cimport PROPERTIES_VALUE, TOPIC_VALUE, send_fields
from firearrow._native.path.lane cimport NOT_MINE, TAKEN
from firearrow._native.path.pattern cimport Pattern
from firearrow._native.store.layout cimport (
    PROPERTIES_BYTES_MAX, RECORD_END_BYTES, RECORD_OVER_BODY_BYTES, SYS_BORN_V6, SYS_STORE_V6,
    SYS_TRANSACTION,
)
from firearrow._native.store.record cimport Text, record_bytes
from firearrow._native.wire.codes cimport SERIALIZER_JSON
from firearrow._native.wire.json cimport Span

from firearrow._native.store.places import PutRefused

cdef enum:
    # bits of a client's sysFlag that are stored: compressed, multi tags, compression type
    KEPT = 0x703
    MULTI_TAGS = 0x2
    ANSWERS_BYTES = 65536                 # reserved at once for a turn, if the one before took as many


cdef inline Text text_of(bytes data):
    return Text(at=<const uint8_t *> PyBytes_AS_STRING(data), length=len(data))


cdef class Sender:
    def __cinit__(
        self, Gate gate not None, MessageStore store not None, Turn turn not None, stats,
        Clock clock not None, UniqueIds ids not None, bytes host not None,
    ):
        self.gate = gate
        self.store = store
        self.turn = turn
        self.stats = stats
        self.clock = clock
        self.ids = ids
        self.host = host
        self.counted = []
        self.room = <uint8_t *> PyMem_Malloc(ROOM_BYTES)
        if self.room is NULL:
            raise MemoryError()
        self.configure(b"", {}, 0)

    def __dealloc__(self):
        PyMem_Free(self.room)

    def configure(self, bytes added not None, dict marks not None, int64_t from_ms):
        self.added = added
        self.receipt = Receipt(marks, self.host)
        self.from_ms = from_ms

    # ---- one request ----

    cdef int take(self, Front front, const Frame *frame, const Header *header, bint long_names) except -1:
        cdef SendFields fields
        cdef Completed done
        done.text.at = NULL
        if not send_fields(header, long_names, &fields) or self.accept(front, frame, &fields, &done) != TAKEN:
            return NOT_MINE
        if frame.serializer == SERIALIZER_JSON:
            if front.pattern is None:
                front.pattern = Pattern.__new__(Pattern)
            front.pattern.learn(frame, &fields)
        return TAKEN

    cdef int take_alike(self, Front front, const Frame *frame) except -1:
        cdef SendFields fields
        cdef Completed done
        done.text.at = NULL
        if not front.pattern.read(frame, &fields, self.room, &done):
            return NOT_MINE
        return self.accept(front, frame, &fields, &done)

    cdef int accept(
        self, Front front, const Frame *frame, const SendFields *fields, Completed *done
    ) except -1:
        """`done`: empty, or the client's properties."""
        cdef const Span *name = &fields.value[TOPIC_VALUE]
        cdef void *found = self.gate.find(name.at, name.length)
        cdef Message message
        cdef Topic topic
        cdef Run run
        if (
            frame.body_bytes == 0
            or frame.body_bytes > self.store.max_message_bytes
            or fields.sys_flag & SYS_TRANSACTION
        ):
            return NOT_MINE
        if self.store.broken or self.store.closed or self.store.full is not None or len(front.host) == 0:
            return NOT_MINE
        if found is NULL or (done.text.at is NULL and not self.take_properties(front, fields, done)):
            return NOT_MINE
        topic = <Topic> found
        if not topic.sendable or fields.queue_id >= topic.queues:
            return NOT_MINE
        topic.call_for_last()
        self.gate.call_for_next(frame, name)
        run = self.open_run()
        if run.now_ms < self.from_ms:
            return NOT_MINE
        self.fill(&message, front, topic, fields, run.now_ms)
        if fields.batch:
            return self.put_batch(front, frame, fields, topic, &message, done)
        return self.put(front, frame, fields, topic, &message, done)

    cdef bint take_properties(self, Front front, const SendFields *fields, Completed *done) except -1:
        if not take_given(&fields.value[PROPERTIES_VALUE], self.room, done):
            return False
        if front.pattern is not None:
            front.pattern.properties.learn(&fields.value[PROPERTIES_VALUE], done)
        return True

    cdef int fill(
        self, Message *message, Front front, Topic topic, const SendFields *fields, int64_t now_ms
    ) except -1:
        """Set all fields except body, properties and the flag of a batch's items."""
        cdef const Span *name = &fields.value[TOPIC_VALUE]    # Topic.name may not be in the cache
        message.topic = Text(at=name.at, length=name.length)
        message.born_host, message.store_host = text_of(front.host), text_of(self.host)
        message.queue_id = <int32_t> fields.queue_id
        message.flag = fields.flag
        message.sys_flag = fields.sys_flag & KEPT | (MULTI_TAGS if topic.multi_tags else 0)
        if len(front.host) == 20:
            message.sys_flag |= SYS_BORN_V6
        if len(self.host) == 20:
            message.sys_flag |= SYS_STORE_V6
        message.born_time, message.store_time = fields.born_ms, now_ms
        message.reconsume_times = fields.reconsume_times
        message.prepared_offset = 0
        return 0

    cdef int put(
        self, Front front, const Frame *frame, const SendFields *fields, Topic topic, Message *message,
        Completed *done,
    ) except -1:
        cdef int64_t size, end
        cdef ConsumeQueue queue
        if not self.complete(done) or done.text.length > PROPERTIES_BYTES_MAX:
            return NOT_MINE
        message.body = Text(at=frame.body, length=frame.body_bytes)
        message.properties = done.text
        size = record_bytes(message)
        if not self.fits(size):
            return NOT_MINE
        queue = topic.queue(self.store, message.queue_id)
        try:
            end = self.store.stage(message, &done.found, queue)
        except PutRefused:
            end = -1
        if end < 0:
            return NOT_MINE
        self.note(topic, queue, 1, end, size)
        self.answer(front, frame, fields, done, queue, message.queue_offset, &message.physical_offset, 1)
        return TAKEN

    cdef bint complete(self, Completed *done) except -1:
        """Add a unique key if there is none, and the properties that every message gets."""
        if done.found.unique_key.length == 0:
            give_key(self.ids, self.run.now_ms, self.room, done)
        return add(self.added, self.room, done)

    cdef int put_batch(
        self, Front front, const Frame *frame, const SendFields *fields, Topic topic, Message *message,
        const Completed *done,
    ) except -1:
        cdef int64_t places[ITEMS_MAX]
        cdef int count = 0
        cdef ConsumeQueue queue
        cdef int64_t end, first
        cdef int64_t total = items_bytes(frame.body, frame.body_bytes, message, &count)
        if total < 0 or self.store.dispatch.lmq or not self.fits(total):
            return NOT_MINE
        queue = topic.queue(self.store, message.queue_id)
        first = queue.next_entry
        end = self.stage_items(frame, queue, message, total, places)
        if end < 0:
            return NOT_MINE
        self.note(topic, queue, count, end, end - places[0])
        self.answer(front, frame, fields, done, queue, first, places, count)
        return TAKEN

    cdef int64_t stage_items(
        self, const Frame *frame, ConsumeQueue queue, Message *message, int64_t total, int64_t *places
    ) except? -1:
        """Stage all items or none. Returns the end of the log after them, -1: none."""
        cdef const uint8_t *at = frame.body
        cdef const uint8_t *stop = at + frame.body_bytes
        cdef int n = 0
        cdef int64_t end = -1
        self.store.log.keep_together(total)
        dispatch = self.store.dispatch
        mark = dispatch.staged_count, dispatch.hashes.count, self.store.log.staging_bytes
        try:
            while at < stop:
                at = item_at(at, message)
                end = self.store.stage(message, NULL, queue)
                places[n] = message.physical_offset
                n += 1
        except BaseException as error:
            self.store.take_back(mark, queue)
            if isinstance(error, PutRefused):
                return -1
            raise
        return end

    cdef bint fits(self, int64_t size) noexcept:
        return (
            size <= self.store.max_message_bytes + RECORD_OVER_BODY_BYTES
            and size + RECORD_END_BYTES <= self.store.log.segment_bytes
        )

    cdef int answer(
        self, Front front, const Frame *frame, const SendFields *fields, const Completed *done,
        ConsumeQueue queue, int64_t queue_offset, const int64_t *places, int count,
    ) except -1:
        if fields.oneway:
            return 0
        self.run.begin(front, done.waits)
        self.receipt.write(
            self.run.answers, frame.serializer, fields.opaque, &done.found.unique_key, queue.queue_id,
            queue_offset, places, count
        )
        self.answers_bytes = self.run.answers.size
        return self.run.finish()

    # ---- the turn ----

    cdef Run open_run(self):
        """The turn's last Run, or a new one."""
        cdef Run run
        if self.run is None or self.run.closed:
            self.runs += 1
            run = Run(self.runs, self.clock.now_ms(), self.clock.monotonic_ms())
            run.answers.reserve(min(self.answers_bytes, <Py_ssize_t> ANSWERS_BYTES))
            self.turn.join(run)
            self.run = run
        return self.run

    # ---- statistics ----

    cdef int note(
        self, Topic topic, ConsumeQueue queue, int64_t messages, int64_t end, int64_t size
    ) except -1:
        """`messages` of one request were staged in the queue, up to `end` of the log."""
        if topic.requests == 0:
            self.counted.append(topic)
        topic.messages += messages
        topic.bytes += size
        topic.requests += 1
        return self.run.note(queue, end)

    def count(self):
        """Report what was put to all topics since the last call."""
        cdef int64_t messages = 0, size = 0, requests = 0
        cdef Topic topic
        for topic in self.counted:
            messages += topic.messages
            size += topic.bytes
            requests += topic.requests
            topic.tell(self.stats)
        self.counted.clear()
        if requests > 0:
            self.stats.put_all(messages, size, requests)
