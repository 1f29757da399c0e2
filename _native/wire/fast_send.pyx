"""TopicFastSend: the client's fast path for plain messages (see fast_send.pxd)."""

# type: Sent = TypeVar("Sent", bound=tuple[Any, ...])
# type: Sendable = TypeVar("Sendable", bound=Outgoing)
# type: Queue = TypeVar("Queue")
# type: SlowPath = Callable[
# type:     [Sendable, Queue, asyncio.Future[Sent], int, float, SendAnswer | BaseException], object
# type: ]

cimport cython

from firearrow._native.base.clock cimport wall_ns
from firearrow._native.wire.codes cimport SEND_MESSAGE_V2
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.message_properties cimport put_properties
from firearrow._native.wire.send_request cimport Send, SendAnswer, answer_of

from firearrow._native.wire.command import FieldError


cdef class InFlightLimit:
    """Limits the messages and the bytes of bodies in flight. A single message always fits."""

    def __init__(self, Py_ssize_t count_max, Py_ssize_t bytes_max):
        # type: (...) -> None
        self.count_max = count_max
        self.bytes_max = bytes_max

    cpdef bint try_acquire(self, Py_ssize_t size) except -1:
        # type: (...) -> bool
        if self.crowded or not self.fits(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    def fits(self, Py_ssize_t size):
        # type: (...) -> bool
        return self.count == 0 or (self.count < self.count_max and self.bytes + size <= self.bytes_max)

    cpdef release(self, Py_ssize_t size):
        # type: (...) -> None
        self.count -= 1
        self.bytes -= size
        if self.crowded or self.count == 0:
            self.freed()

    def freed(self):
        # type: (...) -> None
        """For subclasses: capacity was released while it was crowded, or nothing is in flight anymore."""


@cython.final
cdef class PlainMessages:  # type: Generic[Sent]
    """Plain messages of a producer: bodies of at most `body_bytes_max` bytes, and no property in `special`. A
    result is a `result_type` whose status is `stored`."""

    def __init__(self, frozenset special not None, Py_ssize_t body_bytes_max, result_type, stored):
        # type: (frozenset[str], int, type[Sent], object) -> None
        self.special = special
        self.body_bytes_max = body_bytes_max
        self.result_type = result_type
        self.stored = stored


@cython.final
cdef class TopicFastSend:  # type: Generic[Sendable, Queue, Sent]
    """Sends plain messages of one topic over open connections. A result is a `result_type`:

    (stored, unique id, offset message id, queue, queue offset, transaction id, recall handle, region,
    trace_on)."""

    def __init__(
        self,
        loop,  # type: asyncio.AbstractEventLoop
        topic not None,  # type: str
        SendFrames frames not None,
        UniqueIds ids not None,
        InFlightLimit limit not None,
        PlainMessages plain not None,  # type: PlainMessages[Sent]
        *,
        dict infos not None,  # type: Mapping[str, object]
        uint32_t next_queue=0,
    ):
        # type: (...) -> None
        """`infos` is the route table's own dict, `topic` its key."""
        self.loop = loop
        self.topic = topic
        self.frames = frames
        self.ids = ids
        self.limit = limit
        self.infos = infos
        self.special = plain.special
        self.body_bytes_max = plain.body_bytes_max
        self.result_type = plain.result_type
        self.stored = plain.stored
        self.next_queue = next_queue
        self.queues = []

    def set_queues(self, info not None, targets not None, double attempt_share=1):
        # type: (object, Sequence[tuple[int, str, Queue, PendingCalls]], float) -> None
        """Send to these queues in turn, while `infos` has this `info` object.

        Each is (queue id, broker name, queue as in results, channel); at least one. `attempt_share`: the
        part of a send's time after which `slow_path` gets its failure, with the deadline of the whole.
        """
        if not targets:
            raise ValueError("at least one queue is needed")
        self.queue_ids = [queue_id for queue_id, _, _, _ in targets]
        self.broker_names = [broker_name for _, broker_name, _, _ in targets]
        self.queues = [queue for _, _, queue, _ in targets]
        self.channels = [channel for _, _, _, channel in targets]
        self.attempt_share = attempt_share
        self.info = info

    def forget_queues(self):
        # type: (...) -> None
        """Send nothing more until `set_queues` is called again."""
        self.info = None

    @property
    def has_queues(self):
        # type: (...) -> bool
        """Whether it has queues of the current route."""
        return self.info is not None and self.infos.get(self.topic) is self.info

    def submit(
        self,
        message not None,  # type: Sendable
        double timeout_s,
        slow_path not None,  # type: SlowPath[Sendable, Queue, Sent]
    ):
        # type: (...) -> asyncio.Future[Sent] | None
        """The future of the result; None: not plain, no queues, or no capacity, and nothing was done.

        An outcome other than success goes to `slow_path(message, queue, future, size, deadline, outcome)`,
        which has to complete the future and release `size`. ValueError: the properties cannot be encoded."""
        cdef bytes body = message.body
        cdef Py_ssize_t size = len(body)
        cdef Py_ssize_t at
        cdef PendingCalls channel
        cdef FastSendWaiter waiter
        cdef Send send
        cdef Writer properties
        if (
            self.info is None
            or self.infos.get(self.topic) is not self.info
            or not self.is_fast_path_message(message, body)
        ):
            return None
        self.next_queue += 1
        at = self.next_queue % <uint32_t> len(self.queues)
        channel = self.channel_at(at)
        if channel is None or not self.limit.try_acquire(size):
            return None
        try:
            send.opaque = channel.number()
            send.code = SEND_MESSAGE_V2
            send.queue_id = self.queue_ids[at]
            send.flag = message.flag
            send.frame_flag = send.sys_flag = send.reconsume_times = 0
            send.max_reconsume_times = -1
            send.batch = False
            send.born_ms = wall_ns() // 1000000
            properties = self.free_writer if self.free_writer is not None else Writer()
            self.free_writer = None
            properties.size = 0
            put_properties(properties, message, self.ids, None)
            frame = self.frames.frame_at(&send, self.broker_names[at], properties.data, properties.size, body)
            self.free_writer = properties
        except BaseException:
            self.limit.release(size)
            raise
        waiter = FastSendWaiter.__new__(FastSendWaiter)
        waiter.topic_send = self
        waiter.message = message
        waiter.slow_path = slow_path
        waiter.queue = self.queues[at]
        waiter.queue_id = send.queue_id
        waiter.size = size
        waiter.share = <float> self.attempt_share
        waiter.future = self.loop.create_future()
        channel.post(send.opaque, frame, waiter, timeout_s * self.attempt_share)
        return waiter.future

    cdef bint is_fast_path_message(self, message, bytes body) except -1:
        if not 0 < len(body) <= self.body_bytes_max or message.sharding_key is not None:
            return False
        properties = message.properties
        return not properties or self.special.isdisjoint(properties)

    cdef PendingCalls channel_at(self, Py_ssize_t at):
        """None: it cannot send, and the queues are no longer valid."""
        cdef PendingCalls channel = self.channels[at]
        if channel.closed or channel.retired or len(channel.pending_calls) >= channel.pending_max:
            self.info = None
            return None
        return channel


@cython.final
cdef class FastSendWaiter(CallWaiter):
    cdef bint is_waiting(self) except -1:
        return True

    cdef int response_received(self, const Frame *frame, const Header *header) except -1:
        cdef SendAnswer answer
        try:
            answer = answer_of(header)
        except FieldError as fault:
            return self.call_failed(fault)
        if answer.code != 0 or answer.queue_id != self.queue_id:
            return self.call_failed(answer)
        self.topic_send.limit.release(self.size)
        if not self.future.done():
            self.future.set_result(tuple.__new__(self.topic_send.result_type, (
                self.topic_send.stored, self.message.unique_id, answer.offset_message_id or "", self.queue,
                answer.queue_offset, answer.transaction_id, answer.recall_handle, answer.region,
                answer.trace_on,
            )))
        return 0

    cdef int call_failed(self, object outcome) except -1:
        """`slow_path` takes over and releases the message's share of the limit."""
        cdef double end = self.posted + (self.deadline - self.posted) / self.share
        self.slow_path(self.message, self.queue, self.future, self.size, end, outcome)
        return 0
