"""Sender: plain sends without a Python object for each (see send_message.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from firearrow._native.fastpath.batch_items cimport ITEMS_MAX, item_at, items_bytes
from firearrow._native.fastpath.quotas cimport IN
from firearrow._native.fastpath.send_properties cimport BUFFER_BYTES, add, add_unique_key, read_given
from firearrow._native.fastpath.request_fields cimport PROPERTIES_VALUE, TOPIC_VALUE, send_fields
from firearrow._native.fastpath.request_times cimport (
    KIND_SEND, KIND_SEND_BATCH, KIND_SEND_V2, SMALL_BYTES, PutCounts,
)
from firearrow._native.fastpath.fast_connection cimport (
    HANDLED, LEFT_ACCESS, LEFT_BODY, LEFT_FIELDS, LEFT_PROPERTIES, LEFT_QUOTA, LEFT_SIZE, LEFT_STORE,
    LEFT_TOPIC, NOT_HANDLED,
)
from firearrow._native.fastpath.header_template cimport HeaderTemplate, with_header
from firearrow._native.store.files.layout cimport (
    PROPERTIES_BYTES_MAX, RECORD_END_BYTES, RECORD_OVER_BODY_BYTES, SYS_BORN_V6, SYS_STORE_V6,
    SYS_TRANSACTION,
)
from firearrow._native.store.log.record cimport Properties, Text, record_bytes, scan_properties
from firearrow._native.store.message_store cimport is_refusing
from firearrow._native.wire.codes cimport SEND_BATCH_MESSAGE, SERIALIZER_JSON
from firearrow._native.wire.json cimport Span

from firearrow._native.fastpath.quotas import DELAY_MAX_S
from firearrow._native.store.log.results import PutRefused, PutStatus

# type: class Stats(Protocol):
# type:     def counts(self, topic: str) -> tuple[Count, Count]: ...
# type:     def put_counts(self, topic: str, message_type: str) -> PutCounts: ...
# type:     def put_all(self, messages: int, size: int, requests: int) -> None: ...


cdef double DELAY_MAX = DELAY_MAX_S

cdef enum:
    # bits of a client's sysFlag that are stored: compressed, multi tags, compression type
    KEPT = 0x703
    MULTI_TAGS = 0x2
    UNMATCHED_MAX = 64                    # sends in turn that match no template; then only
    RETRY_EACH = 256                      # one of so many tries
    ANSWERS_BYTES = 65536                 # reserved at once for a reply batch, if the last one was as large


cdef inline Text text_of(bytes data):
    return Text(at=<const uint8_t *> PyBytes_AS_STRING(data), length=len(data))


cdef class Sender:
    """Plain sends without a Python object for each."""

    def __cinit__(
        self,
        PlainTopics plain_topics not None,
        MessageStore store not None,
        WriteBatch write_batch not None,
        stats,  # type: Stats
        Clock clock not None,
        UniqueIds ids not None,
        bytes host not None,
        RequestTimes times=None,
    ):
        # type: (...) -> None
        """`ids`: unique keys of messages without one; `host`: the broker's address as in records."""
        self.plain_topics = plain_topics
        self.store = store
        self.write_batch = write_batch
        self.stats = stats
        self.clock = clock
        self.ids = ids
        self.host = host
        self.counted = []
        self.times = RequestTimes() if times is None else times
        self.buffer = <uint8_t *> PyMem_Malloc(BUFFER_BYTES)
        if self.buffer is NULL:
            raise MemoryError()
        self.configure(b"", {}, 0)

    def protect(self, AccessCheck access not None):
        # type: (...) -> None
        """Handle only what `access` lets through."""
        self.access = access

    def limit(self, Quotas quotas):
        # type: (Quotas | None) -> None
        """None: no quota limits sends."""
        self.quotas = quotas

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    def configure(self, bytes added not None, dict marks not None, int64_t from_ms):
        # type: (bytes, dict[str, str], int) -> None
        """`added`: properties that every message gets; `marks`: fields at the start of every response;
        `from_ms`: earlier sends are not handled here."""
        self.added = added
        self.response = SendResponse(marks, self.host)
        self.from_ms = from_ms

    # ---- one request ----

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header, bint long_names
    ) except -1:
        cdef SendFields fields
        cdef CompletedProperties done
        done.text.at = NULL
        if not send_fields(header, long_names, &fields):
            return self.leave(LEFT_FIELDS)
        if self.access is not None and not (
            self.access.is_signed(connection, frame, header)
            and self.access.may_use(connection, &fields.value[TOPIC_VALUE], NULL)
        ):
            return self.leave(LEFT_ACCESS)
        fields.kind = KIND_SEND if long_names else KIND_SEND_V2
        if header.code == SEND_BATCH_MESSAGE:
            fields.kind = KIND_SEND_BATCH
        if self.accept(connection, frame, &fields, &done, None) != HANDLED:
            return NOT_HANDLED
        connection.unmatched += 1
        if frame.serializer == SERIALIZER_JSON and self.may_match(connection):
            connection.template = with_header(connection.template, frame, &fields)
            if self.access is not None:
                connection.template.plan = self.access.plan_of(header, &fields)
        return HANDLED

    cdef inline bint may_match(self, FastConnection connection) noexcept:
        """Whether templates are worth their time: a client may order its fields at random, as Go's does."""
        return connection.unmatched < UNMATCHED_MAX or connection.unmatched % RETRY_EACH <= 1

    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1:
        cdef HeaderTemplate before = None
        cdef HeaderTemplate template = connection.template
        cdef SendFields fields
        cdef CompletedProperties done
        done.text.at = NULL
        if not self.may_match(connection):
            return NOT_HANDLED
        while not template.read(frame, &fields, self.buffer, &done):
            done.text.at = NULL
            before, template = template, template.following
            if template is None:
                return NOT_HANDLED
        if self.access is not None and not (
            self.access.is_templated_signed(connection, frame, &fields, template.plan)
            and self.access.may_use(connection, &fields.value[TOPIC_VALUE], NULL)
        ):
            return NOT_HANDLED
        connection.unmatched = 0
        if before is not None:
            before.following, template.following = template.following, connection.template
            connection.template = template
        return self.accept(connection, frame, &fields, &done, template)

    cdef int handle_call(
        self, FastConnection connection, AnsweredCall call, const Text *body, const SendFields *fields
    ) except -1:
        """Over a quota, calls are left to the complete path, which throttles one client of several."""
        cdef CompletedProperties done
        cdef Frame frame
        if self.quotas is not None:
            return self.leave(LEFT_QUOTA)
        done.text.at = NULL
        frame.body, frame.body_bytes = body.at, body.length
        frame.size, frame.after = 0, 0
        self.call = call
        try:
            return self.accept(connection, &frame, fields, &done, None)
        finally:
            self.call = None

    cdef inline int leave(self, int reason) noexcept:
        self.reason = reason
        return NOT_HANDLED

    cdef int accept(
        self, FastConnection connection, const Frame *frame, const SendFields *fields,
        CompletedProperties *done, HeaderTemplate template,
    ) except -1:
        """`done`: empty, or the client's properties. `template`: what the header matched, or None."""
        cdef const Span *name = &fields.value[TOPIC_VALUE]
        cdef void *found = self.plain_topics.find(name.at, name.length)
        cdef Message message
        cdef Topic topic
        cdef ReplyBatch reply_batch
        if frame.body_bytes == 0 or frame.body_bytes > self.store.max_message_bytes:
            return self.leave(LEFT_BODY)
        if is_refusing(self.store) or self.write_batch.refuses_sends or len(connection.host) == 0:
            return self.leave(LEFT_STORE)
        if found is NULL:
            return self.leave(LEFT_TOPIC)
        if (
            fields.sys_flag & SYS_TRANSACTION
            or (done.text.at is NULL and not self.complete_properties(template, fields, done))
        ):
            return self.leave(LEFT_PROPERTIES)
        topic = <Topic> found
        if not topic.sendable or fields.queue_id >= topic.queues:
            return self.leave(LEFT_TOPIC)
        topic.prefetch_last()
        self.plain_topics.prefetch_next(frame, name)
        reply_batch = self.open_reply_batch()
        if reply_batch.now_ms < self.from_ms:
            return self.leave(LEFT_STORE)
        self.fill(&message, connection, topic, fields, reply_batch.now_ms)
        if self.quotas is not None:
            return self.put_limited(connection, frame, fields, topic, &message, done)
        if fields.batch:
            return self.put_batch(connection, frame, fields, topic, &message, done)
        return self.put(connection, frame, fields, topic, &message, done)

    cdef int put_limited(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message, CompletedProperties *done,
    ) except -1:
        """As `put` or `put_batch`, if the quotas allow it. Over them, the connection is throttled."""
        cdef int64_t before = topic.messages
        cdef int64_t given_bytes = frame.body_bytes + done.text.length  # `put` adds the broker's properties
        cdef int status
        if self.quotas.debt_here(IN, connection, topic.text, None) > DELAY_MAX:
            return self.leave(LEFT_QUOTA)
        if fields.batch:
            status = self.put_batch(connection, frame, fields, topic, message, done)
        else:
            status = self.put(connection, frame, fields, topic, message, done)
        if status == HANDLED:
            self.quotas.use_here(
                IN, connection, topic.text, None, topic.messages - before, given_bytes
            )
        return status

    cdef bint complete_properties(
        self, HeaderTemplate template, const SendFields *fields, CompletedProperties *done
    ) except -1:
        if not read_given(&fields.value[PROPERTIES_VALUE], self.buffer, done):
            return False
        if template is not None:
            template.properties.remember(&fields.value[PROPERTIES_VALUE], done)
        return True

    cdef int fill(
        self, Message *message, FastConnection connection, Topic topic, const SendFields *fields,
        int64_t now_ms,
    ) except -1:
        """Set all fields except body, properties and the flag of a batch's items."""
        cdef const Span *name = &fields.value[TOPIC_VALUE]    # Topic.name may not be in the cache
        message.topic = Text(at=name.at, length=name.length)
        message.born_host, message.store_host = text_of(connection.host), text_of(self.host)
        message.queue_id = <int32_t> fields.queue_id
        message.flag = fields.flag
        message.sys_flag = fields.sys_flag & KEPT | (MULTI_TAGS if topic.multi_tags else 0)
        if len(connection.host) == 20:
            message.sys_flag |= SYS_BORN_V6
        if len(self.host) == 20:
            message.sys_flag |= SYS_STORE_V6
        message.born_time, message.store_time = fields.born_ms, now_ms
        message.reconsume_times = fields.reconsume_times
        message.prepared_offset = 0
        return 0

    cdef int put(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message,
        CompletedProperties *done,
    ) except -1:
        cdef int64_t size, end
        cdef ConsumeQueue queue
        if not self.add_broker_properties(done) or done.text.length > PROPERTIES_BYTES_MAX:
            return self.leave(LEFT_SIZE)
        message.body = Text(at=frame.body, length=frame.body_bytes)
        message.properties = done.text
        size = record_bytes(message)
        if not self.fits(size):
            return self.leave(LEFT_SIZE)
        queue = topic.queue(self.store, message.queue_id)
        try:
            end = self.store.stage(message, &done.found, queue)
        except PutRefused:
            end = -1
        if end < 0:
            return self.leave(LEFT_STORE)
        self.note(topic, queue, 1, end, size, done.ordered)
        self.answer(connection, frame, fields, done, queue, message.queue_offset, &message.physical_offset, 1)
        return HANDLED

    cdef bint add_broker_properties(self, CompletedProperties *done) except -1:
        """Add a unique key if there is none, and the properties that every message gets."""
        if done.found.unique_key.length == 0:
            add_unique_key(self.ids, self.reply_batch.now_ms, self.buffer, done)
        return add(self.added, self.buffer, done)

    cdef int put_batch(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message,
        const CompletedProperties *done,
    ) except -1:
        cdef int64_t physical_offsets[ITEMS_MAX]
        cdef int count = 0
        cdef ConsumeQueue queue
        cdef int64_t end, first
        cdef int64_t total = items_bytes(frame.body, frame.body_bytes, message, &count)
        if total < 0 or self.store.dispatch.lmq or not self.fits(total):
            return self.leave(LEFT_SIZE)
        queue = topic.queue(self.store, message.queue_id)
        first = queue.next_entry
        end = self.stage_items(frame, queue, message, total, physical_offsets)
        if end < 0:
            return self.leave(LEFT_STORE)
        self.note(topic, queue, count, end, end - physical_offsets[0], done.ordered)
        self.answer(connection, frame, fields, done, queue, first, physical_offsets, count)
        return HANDLED

    cdef int64_t stage_items(
        self, const Frame *frame, ConsumeQueue queue, Message *message, int64_t total,
        int64_t *physical_offsets,
    ) except? -1:
        """Stage all items or none. Returns the end of the log after them, -1: none."""
        cdef const uint8_t *at = frame.body
        cdef const uint8_t *stop = at + frame.body_bytes
        cdef Properties found
        cdef int n = 0
        cdef int64_t end = -1
        self.store.log.reserve_contiguous(total)
        dispatch = self.store.dispatch
        mark = dispatch.staged_count, dispatch.hashes.count, self.store.log.staging_bytes
        try:
            while at < stop:
                at = item_at(at, message)
                scan_properties(&message.properties, &found)
                # only the broker may state offsets in LMQs, or that a message is several
                if found.multi_offsets.length or found.inner_count.length:
                    raise PutRefused(PutStatus.MESSAGE_ILLEGAL, "batch")
                end = self.store.stage(message, &found, queue)
                physical_offsets[n] = message.physical_offset
                n += 1
        except BaseException as error:
            self.store.rollback_staged(mark, queue)
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
        self, FastConnection connection, const Frame *frame, const SendFields *fields,
        const CompletedProperties *done,
        ConsumeQueue queue, int64_t queue_offset, const int64_t *physical_offsets, int count,
    ) except -1:
        if fields.oneway:
            return 0
        if self.call is not None:
            return self.answer_call(connection, done, queue_offset)
        self.reply_batch.begin(connection, done.waits)
        self.response.write(
            self.reply_batch.answers, frame.serializer, fields.opaque, &done.found.unique_key, queue.queue_id,
            queue_offset, physical_offsets, count
        )
        self.answers_bytes = self.reply_batch.answers.size
        self.reply_batch.kinds[fields.kind] += 1
        return self.reply_batch.finish()

    cdef int answer_call(
        self, FastConnection connection, const CompletedProperties *done, int64_t queue_offset
    ) except -1:
        self.reply_batch.begin_call(connection, self.call, done.waits)
        self.call.write(self.reply_batch.answers, &done.found.unique_key, queue_offset)
        self.answers_bytes = self.reply_batch.answers.size
        self.calls += 1                       # their caller measures them
        return self.reply_batch.finish()

    # ---- the write batch ----

    cdef ReplyBatch open_reply_batch(self):
        """The write batch's last ReplyBatch, or a new one."""
        cdef ReplyBatch reply_batch
        if self.reply_batch is None or self.reply_batch.closed:
            self.batch_number += 1
            reply_batch = ReplyBatch(
                self.batch_number, self.clock.now_ms(), self.clock.monotonic_ms(), self.times
            )
            reply_batch.answers.reserve(min(self.answers_bytes, <Py_ssize_t> ANSWERS_BYTES))
            self.write_batch.add_reply_batch(reply_batch)
            self.reply_batch = reply_batch
        return self.reply_batch

    # ---- statistics ----

    cdef int note(
        self, Topic topic, ConsumeQueue queue, int64_t messages, int64_t end, int64_t size, bint ordered
    ) except -1:
        """`messages` of one request were staged in the queue, up to `end` of the log."""
        if topic.requests == 0:
            self.counted.append(topic)
        topic.messages += messages
        topic.bytes += size
        topic.requests += 1
        if ordered or size > SMALL_BYTES * messages:
            self.note_special(topic, messages, size, ordered)
        return self.reply_batch.add_queue(queue, end)

    cdef int note_special(self, Topic topic, int64_t messages, int64_t size, bint ordered) except -1:
        """They are of type FIFO, or large."""
        cdef PutCounts counts
        topic.find_counts(self.stats)
        counts = topic.ordered_counts if ordered else topic.plain_counts
        if size > SMALL_BYTES * messages:
            counts.note_size(size // messages, messages)
        if ordered:
            counts.messages += messages
            counts.bytes += size
            topic.ordered += messages
            topic.ordered_bytes += size
        return 0

    def count(self):
        # type: (...) -> None
        """Report the counts of all topics since the last call."""
        cdef int64_t messages = 0, size = 0, requests = 0
        cdef Topic topic
        for topic in self.counted:
            messages += topic.messages
            size += topic.bytes
            requests += topic.requests
            topic.record_stats(self.stats)
        self.counted.clear()
        if requests > 0:
            self.stats.put_all(messages, size, requests)
