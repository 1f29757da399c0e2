"""AckTemplates: acknowledgements that differ in one number (see ack_templates.pxd)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from firearrow._native.fastpath.quotas cimport Quotas
from firearrow._native.store.files.layout cimport SYS_BORN_V6, SYS_STORE_V6
from firearrow._native.store.log.batch_consume_queue cimport first_offset, next_offset
from firearrow._native.store.log.record cimport Message
from firearrow._native.store.message_store cimport is_refusing
from firearrow._native.wire.text_writer cimport DECIMAL_BYTES, decimal

cdef enum:
    TEMPLATES_MAX = 1024
    TEXT_BYTES_MAX = 2048                 # of its body, and of its properties; a longer one is not kept


cdef inline Text text_of(bytes data):
    return Text(at=<const uint8_t *> PyBytes_AS_STRING(data), length=PyBytes_GET_SIZE(data))


cdef class AckTemplate:
    pass


cdef class AckTemplates:
    """`host`: the broker's address as in records. `stored(group, topic, count)`: that many acknowledgements
    were staged."""

    def __cinit__(
        self,
        MessageStore store not None,
        WriteBatch write_batch not None,
        Clock clock not None,
        bytes host not None,
        stored not None,  # type: Callable[[str, str, int], None]
    ):
        # type: (...) -> None
        self.store, self.write_batch, self.clock = store, write_batch, clock
        self.host = host
        self.stored = stored
        self.templates, self.counted = {}, []
        self.buffer = <uint8_t *> PyMem_Malloc(2 * (TEXT_BYTES_MAX + DECIMAL_BYTES))
        if self.buffer is NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    # ---- templates ----

    def add(
        self,
        bytes key not None,
        str group not None,
        str topic not None,
        int queue_id,
        tuple queue not None,  # type: tuple[str, int]
        tuple body not None,  # type: tuple[bytes, bytes]
        tuple properties not None,  # type: tuple[bytes, bytes]
        int64_t visible_ms,
    ):
        # type: (...) -> None
        """The complete path has stored an acknowledgement: in this queue, with these bytes before and after
        the offset."""
        cdef AckTemplate template = AckTemplate.__new__(AckTemplate)
        template.group, template.topic, template.queue_id = group, topic, queue_id
        template.name = topic.encode("utf-8", "replace")
        template.stored_topic, template.stored_queue = (<str> queue[0]).encode(), queue[1]
        template.body, template.body_at = (<bytes> body[0]) + (<bytes> body[1]), len(<bytes> body[0])
        template.properties = (<bytes> properties[0]) + (<bytes> properties[1])
        template.properties_at = len(<bytes> properties[0])
        template.visible_ms = visible_ms
        if max(len(template.body), len(template.properties)) > TEXT_BYTES_MAX:
            return
        if self.store.log.segment_bytes < 4 * TEXT_BYTES_MAX:
            return                            # each record fits
        if len(self.templates) >= TEMPLATES_MAX:
            self.templates.clear()
        self.templates[key] = template

    def forget(self):
        # type: (...) -> None
        """Topics or options changed."""
        self.templates.clear()

    def limit(self, Quotas sends, Quotas reads):
        # type: (Quotas | None, Quotas | None) -> None
        """What limits sends, and what limits reads; None: nothing does."""
        self.limited = sends is not None or reads is not None

    # ---- acknowledgements ----

    def put(self, bytes key not None, int64_t offset):
        # type: (...) -> int
        """Stage the acknowledgement of a message. Returns the end of the log; -1: it is left to the complete
        path. PutRefused."""
        cdef int64_t now_ms = self.clock.now_ms()
        cdef AckTemplate template = self.find(key, offset, now_ms)
        return -1 if template is None else self.stage(template, offset, now_ms)

    cdef AckTemplate find(self, bytes key, int64_t offset, int64_t now_ms):
        """None: the complete path is needed."""
        cdef AckTemplate template
        cdef ConsumeQueue acked
        found = self.templates.get(key)
        if found is None or is_refusing(self.store):
            return None
        template = <AckTemplate> found
        if template.visible_ms <= now_ms:
            return None
        acked = self.store.dispatch.queue_of(template.name, <int32_t> template.queue_id, False)
        if acked is None or not first_offset(acked) <= offset <= next_offset(acked):
            return None
        return template

    cdef ConsumeQueue queue_of(self, AckTemplate template):
        return self.store.dispatch.queue_of(template.stored_topic, <int32_t> template.stored_queue, True)

    cdef int64_t stage(self, AckTemplate template, int64_t offset, int64_t now_ms) except -1:
        """Returns the end of the log. PutRefused: nothing was staged."""
        cdef Message message
        cdef uint8_t *end = with_offset(self.buffer, template.body, template.body_at, offset)
        cdef int64_t staged
        message.topic = text_of(template.stored_topic)
        message.body = Text(at=self.buffer, length=end - self.buffer)
        message.properties = Text(
            at=end, length=with_offset(end, template.properties, template.properties_at, offset) - end
        )
        message.born_host = message.store_host = text_of(self.host)
        message.queue_id = <int32_t> template.stored_queue
        message.flag = message.reconsume_times = 0
        message.sys_flag = SYS_BORN_V6 | SYS_STORE_V6 if len(self.host) == 20 else 0
        message.born_time = message.store_time = now_ms
        message.prepared_offset = 0
        staged = self.store.stage(&message, NULL, self.queue_of(template))
        self.count(template)
        return staged

    cdef int count(self, AckTemplate template) except -1:
        if not self.counted:
            self.write_batch.before_write(self.report)
        if template.count == 0:
            self.counted.append(template)
        template.count += 1
        return 0

    def report(self):
        # type: (...) -> None
        """Before the write: what was staged since the last one."""
        cdef AckTemplate template
        cdef list counted = self.counted
        self.counted = []
        for template in counted:
            number, template.count = template.count, 0
            self.stored(template.group, template.topic, number)


cdef uint8_t *with_offset(uint8_t *to, bytes text, Py_ssize_t at, int64_t offset) noexcept:
    """Write the text with the offset in it; returns the end."""
    cdef Py_ssize_t rest = PyBytes_GET_SIZE(text) - at
    memcpy(to, PyBytes_AS_STRING(text), at)
    to = decimal(to + at, offset)
    memcpy(to, PyBytes_AS_STRING(text) + at, rest)
    return to + rest
