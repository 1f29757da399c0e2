"""GroupSums: the progress of one group after the other in its topics, added up (see group_sums.pxd)."""

from libc.stdint cimport int64_t

from firearrow._native.metrics.lag_table cimport KnownAge
from firearrow._native.store.log.batch_consume_queue cimport first_offset, queue_store_time, visible_offset
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

NEVER_MS = 1 << 62  # type: int


cdef class QueueEnds:
    pass


cdef class GroupSums:
    """Of the group that `begin` began: `count` topics, `consumed` (its offsets), `lag`, `oldest_ms`."""

    def __cinit__(self, StoreReader reader not None, read_queues):
        # type: (StoreReader, Callable[[str], int]) -> None
        """`read_queues(topic)`: 0 if there is no such topic."""
        self.reader, self.log, self.read_queues, self.topics = reader, reader.log, read_queues, {}
        self.begin()

    def begin(self):
        # type: () -> None
        """Begin with another group."""
        self.count = self.consumed = self.lag = 0
        self.oldest_ms = NEVER_MS

    def add(
        self,
        str group not None,
        list topics not None,  # type: list[str]
        Py_ssize_t start,
        Py_ssize_t end,
        dict offsets not None,  # type: Mapping[str, dict[int, int]]
    ):
        # type: (...) -> None
        """Add `topics[start:end]`, as consumerProgress counts them: queues that can be read, and those that
        were taken away and have more than the group has read. `offsets`: `topic@group` → queue → offset."""
        cdef Py_ssize_t n
        cdef str suffix = "@" + group
        for n in range(start, min(end, len(topics))):
            self.add_topic(<str> topics[n], offsets.get(<str> topics[n] + suffix))

    cdef int add_topic(self, str topic, dict offsets) except -1:
        cdef ConsumeQueue queue
        cdef int64_t committed
        cdef Py_ssize_t n
        found = self.topics.get(topic)
        cdef QueueEnds ends = self.look_up(topic) if found is None else <QueueEnds> found
        if ends.read_queues == 0:
            return 0
        self.count += 1
        for n in range(len(ends.queues)):
            queue = <ConsumeQueue> ends.queues[n]
            committed = 0 if offsets is None else <int64_t> offsets.get(queue.queue_id, 0)
            self.add_queue(ends, queue, committed)
        if not offsets or max(offsets) < ends.read_queues:
            return 0
        for number, offset in offsets.items():
            if number >= ends.read_queues:
                queue = self.reader.queue(topic, number)
                if queue is not None and visible_offset(queue) > <int64_t> offset:
                    self.add_queue(ends, queue, offset)
        return 0

    cdef int add_queue(self, QueueEnds ends, ConsumeQueue queue, int64_t committed) except -1:
        cdef KnownAge *known
        cdef int64_t visible = visible_offset(queue)
        self.consumed += committed
        if visible <= committed:
            return 0
        self.lag += visible - committed
        committed = max(committed, first_offset(queue))
        known = &ends.times[(committed * 5 + queue.queue_id) & (TIMES_KEPT - 1)]
        if known.queue != <void *> queue or known.entry != committed:
            known.queue, known.entry = <void *> queue, committed
            known.age = queue_store_time(self.log, queue, committed)
        if 0 <= known.age < self.oldest_ms:
            self.oldest_ms = known.age
        return 0

    cdef QueueEnds look_up(self, str topic):
        cdef QueueEnds ends = QueueEnds.__new__(QueueEnds)
        cdef ConsumeQueue queue
        cdef Py_ssize_t number
        ends.queues, ends.read_queues = [], self.read_queues(topic)
        for number in range(ends.read_queues):
            queue = self.reader.queue(topic, number)
            if queue is not None and queue.visible > 0:
                ends.queues.append(queue)
        self.topics[topic] = ends
        return ends
