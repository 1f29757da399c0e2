"""Puller: plain pulls without a Python object for each record (see pull_message.pxd)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

from firearrow._native.fastpath.access_check cimport Login
from firearrow._native.fastpath.request_fields cimport is_ascii, pull_fields
from firearrow._native.fastpath.quotas cimport OUT
from firearrow._native.fastpath.pull_response cimport write_pull_response
from firearrow._native.base.clock cimport nanoseconds
from firearrow._native.fastpath.long_polling cimport HeldRequest
from firearrow._native.fastpath.request_times cimport (
    KIND_HELD_LITE_PULL, KIND_HELD_PULL, KIND_LITE_PULL, KIND_PULL,
)
from firearrow._native.fastpath.fast_connection cimport (
    HANDLED, LEFT_ACCESS, LEFT_FIELDS, LEFT_NO_MATCH, LEFT_OFFSET, LEFT_QUOTA,
    LEFT_SUBSCRIPTION, NOT_HANDLED,
)
from firearrow._native.store.get_message cimport FOUND, PICKED_MAX, copy_picked, pick
from firearrow._native.store.log.journal_page cimport ENTRY_HEAD_BYTES, OFFSET_ENTRY
from firearrow._native.wire.codes cimport (
    FLAG_ONEWAY, LITE_PULL_MESSAGE, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND,
)
from firearrow._native.wire.json cimport SPAN_ABSENT, Span

from firearrow._native.fastpath.long_polling import REQUEST_BYTES
from firearrow._native.wire.command import RemotingCommand

# type: class Offsets(Protocol):
# type:     @property
# type:     def resets(self) -> Mapping[tuple[str, str, int], int]: ...
# type:     @property
# type:     def table(self) -> Mapping[str, dict[int, int]]: ...
# type:     def pulls_of(self, group: str, topic: str) -> dict[int, int] | None: ...
# type:     def note_pull(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None: ...
# type:     def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
# type:         """ValueError: the offset is refused."""
# type:
# type:     def counted(self, group: str, moved: bool, /) -> None: ...
# type: class Stats(Protocol):
# type:     def got(self, group: str, topic: str, messages: int, size: int, requests: int) -> None: ...
# type:     def missed(self, requests: int) -> None: ...
# type: Readable = tuple[int, tuple[int, ...], int, int, int, bool, int, int]
# type: Resolve = Callable[[str, str, int, int, str, str], Readable | None]
# type: """Group, topic, flags, version, expression and expression type of a pull → number of queues, tags
# type: codes that match (empty: all), sysFlag of topic and group, longest wait in ms (-1: not held here),
# type: whether a topic of this name was deleted, the broker that is suggested to readers near the log's end,
# type: and to others. None: the pulls take the complete path."""


cdef enum:
    PLANS_MAX = 4096
    FRAME_HEAD = 8                # bytes before a header
    BYTES_MAX = 134217728         # of one response, as on the complete path
    NOT_COMMITTED = 0
    COMMITTED_BEFORE = 1
    MOVED = 2
    # entries after a held pull that match none of its tags; after more, its offset has to move
    LOOKED_THROUGH = 800
    KNOWN_FLAGS = PULL_COMMIT_OFFSET | PULL_SUSPEND | PULL_SUBSCRIPTION

cdef double RESOLVED_S_MAX = 1.0
cdef double BEFORE_ALL_TIME = -1e300
cdef Py_ssize_t HELD_BYTES = REQUEST_BYTES


cdef class PullSubscription:
    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id):
        """The queue, or None if it does not exist yet."""
        if self.forgotten != store.dispatch.forgotten:
            self.found.clear()
            self.forgotten = store.dispatch.forgotten
        known = self.found.get(queue_id)
        if known is None:
            known = store.dispatch.queue_of(self.name, queue_id, False)
            if known is not None:
                self.found[queue_id] = known
        return <ConsumeQueue> known

    cdef bint may_be_old(self, int64_t queue_id, int64_t queue_offset, ConsumeQueue queue) except -1:
        """Whether the group has not pulled this queue of a topic that was recreated, and the offset may be
        of the deleted queue: the handler decides."""
        if not self.recreated or queue_offset <= queue.min_entry:
            return False
        return self.pulled is None or queue_id not in self.pulled


cdef uint8_t *put_key(uint8_t *to, const Span *span) noexcept nogil:
    """A string preceded by its length."""
    memcpy(to, &span.length, 4)
    memcpy(to + 4, span.at, span.length)
    return to + 4 + span.length


cdef str text_of(const Span *span):
    """ASCII only."""
    return "" if span.kind == SPAN_ABSENT else (<const char *> span.at)[:span.length].decode("ascii")


cdef PullSubscription plan_for(const PullFields *fields):
    """A subscription that is not resolved yet."""
    cdef PullSubscription subscription = PullSubscription.__new__(PullSubscription)
    subscription.group, subscription.topic = text_of(&fields.group), text_of(&fields.topic)
    subscription.expression = text_of(&fields.expression)
    subscription.expression_type = text_of(&fields.expression_type)
    subscription.flags, subscription.version = fields.flags & PULL_SUBSCRIPTION, fields.version
    subscription.name = subscription.topic.encode()
    subscription.key = f"{subscription.topic}@{subscription.group}"
    subscription.noted = subscription.key.encode()
    subscription.found = {}
    subscription.made = BEFORE_ALL_TIME
    return subscription


cdef class Puller:
    """Plain pulls without a Python object for each record; they find messages at once or wait in
    `hold_service`.

    `beyond(request, peer, generation)` runs a held pull a last time on the complete path and replies;
    `generation`: of users and rules when it was held. `journal_page` records each commit to a queue that
    has an offset in `offsets.table`; others go to `offsets.commit`.
    """

    def __cinit__(
        self,
        MessageStore store not None,
        PullHoldService hold_service not None,
        resolve,  # type: Resolve
        beyond,  # type: Callable[[RemotingCommand, Any, int], object]
        offsets,  # type: Offsets
        JournalPage journal_page not None,
        stats,  # type: Stats
        Clock clock not None,
        RequestTimes times=None,
    ):
        # type: (...) -> None
        self.store = store
        self.hold_service = hold_service
        self.resolve = resolve
        self.beyond = beyond
        self.offsets = offsets
        self.resets = offsets.resets
        self.committed = offsets.table
        self.journal_page = journal_page
        self.stats = stats
        self.clock = clock
        self.subscriptions = {}
        self.counted = []
        self.times = RequestTimes() if times is None else times
        self.picked = <PickedRecord *> PyMem_Malloc(PICKED_MAX * sizeof(PickedRecord))
        if self.picked is NULL:
            raise MemoryError()
        self.scan.picked = self.picked
        self.lite_pull = True

    def __dealloc__(self):
        PyMem_Free(self.picked)

    def protect(self, AccessCheck access not None):
        # type: (...) -> None
        """Handle only what `access` lets through."""
        self.access = access

    def limit(self, Quotas quotas):
        # type: (Quotas | None) -> None
        """None: no quota limits reads."""
        self.quotas = quotas

    def configure(self, bint lite_pull):
        # type: (...) -> None
        """Whether LITE_PULL_MESSAGE is permitted."""
        self.lite_pull = lite_pull

    def forget(self):
        # type: (...) -> None
        """Drop the results of `resolve`, which may be out of date."""
        for subscription in self.subscriptions.values():
            (<PullSubscription> subscription).made = BEFORE_ALL_TIME
        self.subscriptions.clear()

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header
    ) except -1:
        cdef PullFields fields
        cdef PullSubscription subscription
        cdef ConsumeQueue queue
        if header.flag & FLAG_ONEWAY or frame.body_bytes > 0 or not pull_fields(header, &fields):
            return self.leave(LEFT_FIELDS)
        if fields.flags & ~<int64_t> KNOWN_FLAGS:
            return self.leave(LEFT_FIELDS)
        if self.access is not None and not (
            self.access.is_signed(connection, frame, header)
            and self.access.may_use(connection, &fields.topic, &fields.group)
        ):
            return self.leave(LEFT_ACCESS)
        subscription = self.subscription_of(&fields, connection.last_seen)
        if subscription is None or not subscription.mine or fields.queue_id >= subscription.queues:
            return self.leave(LEFT_SUBSCRIPTION)
        if header.code == LITE_PULL_MESSAGE and not self.lite_pull:
            return self.leave(LEFT_SUBSCRIPTION)
        queue = subscription.queue(self.store, <int32_t> fields.queue_id)
        if queue is None or self.is_reset(subscription, fields.queue_id):
            return self.leave(LEFT_OFFSET)
        if not queue.min_entry <= fields.queue_offset <= queue.visible:
            return self.leave(LEFT_OFFSET)
        if subscription.may_be_old(fields.queue_id, fields.queue_offset, queue):
            return self.leave(LEFT_OFFSET)
        if self.quotas is not None and self.quotas.debt_here(
            OUT, connection, subscription.topic, subscription.group
        ) > 0:
            return self.leave(LEFT_QUOTA)  # also what would be held: an arrival answers it, whatever the debt
        if fields.queue_offset == queue.visible:
            if queue.min_entry == queue.visible and fields.queue_offset > 0:
                return self.leave(LEFT_OFFSET)
            return self.hold(connection, frame, header, subscription, &fields)
        if not self.find(subscription, queue, fields.queue_offset, fields.max_messages):
            return self.leave(LEFT_NO_MATCH)
        self.note(subscription, fields.queue_id, self.scan.next_offset)
        if not self.commit(subscription, &fields):
            return self.leave(LEFT_OFFSET)
        self.times.answered(KIND_LITE_PULL if header.code == LITE_PULL_MESSAGE else KIND_PULL, 1)
        self.answer(connection, frame.serializer, header.opaque, subscription, queue)
        return HANDLED

    cdef inline int leave(self, int reason) noexcept:
        self.reason = reason
        return NOT_HANDLED

    cdef inline bint is_reset(self, PullSubscription subscription, int64_t queue_id) except -1:
        """Whether the group's next pull of the queue is answered with another offset."""
        return len(self.resets) > 0 and (subscription.group, subscription.topic, queue_id) in self.resets

    # ---- permissions and subscription ----

    cdef PullSubscription subscription_of(self, const PullFields *fields, double now):
        """None: the strings are too long for the key, or not ASCII."""
        cdef uint8_t *to = self.key
        cdef int64_t given = fields.flags & PULL_SUBSCRIPTION
        cdef PullSubscription subscription
        if (
            fields.group.length + fields.topic.length
            + fields.expression.length + fields.expression_type.length > KEY_MAX - 64
        ):
            return None
        to = put_key(put_key(to, &fields.group), &fields.topic)
        to = put_key(put_key(to, &fields.expression), &fields.expression_type)
        memcpy(to, &given, 8)
        memcpy(to + 8, &fields.version, 8)
        key = PyBytes_FromStringAndSize(<const char *> self.key, to + 16 - self.key)
        found = self.subscriptions.get(key)
        if found is None:
            if not is_ascii(self.key, to - self.key):
                return None
            found = plan_for(fields)
            if len(self.subscriptions) >= PLANS_MAX:
                self.forget()
            self.subscriptions[key] = found
        subscription = <PullSubscription> found
        self.refresh(subscription, now)
        return subscription

    cdef int refresh(self, PullSubscription subscription, double now) except -1:
        """Resolve it again if the result is too old."""
        if now - subscription.made < RESOLVED_S_MAX:
            return 0
        subscription.made = now
        may = self.resolve(
            subscription.group, subscription.topic, subscription.flags, subscription.version,
            subscription.expression, subscription.expression_type,
        )
        subscription.mine = may is not None and len(may[1]) <= CODES_MAX
        subscription.pulled = self.offsets.pulls_of(subscription.group, subscription.topic)
        if subscription.mine:
            subscription.queues, codes, subscription.topic_sys_flag = may[:3]
            subscription.group_sys_flag, subscription.wait_ms_max, subscription.recreated = may[3:6]
            subscription.near, subscription.far = may[6:8]
            for n, code in enumerate(codes):
                subscription.codes[n] = code
            subscription.codes_count = len(codes)
        return 0

    # ---- messages ----

    cdef int find(
        self, PullSubscription subscription, ConsumeQueue queue, int64_t queue_offset, int64_t max_messages
    ) except -1:
        """Whether it found messages; a response that only moves the offset is not handled here."""
        try:
            pick(
                self.store.log, queue, &self.store.reader.limits, queue_offset,
                min(max(max_messages, <int64_t> 1), <int64_t> PICKED_MAX), BYTES_MAX, subscription.codes,
                subscription.codes_count,
                None, None, &self.scan,
            )
        except OSError:
            return False
        return self.scan.status == FOUND

    cdef int note(self, PullSubscription subscription, int64_t queue_id, int64_t next_offset) except -1:
        """Record the offset at which the group pulls."""
        if subscription.pulled is not None and queue_id in subscription.pulled:
            subscription.pulled[queue_id] = next_offset
            return 0
        self.offsets.note_pull(subscription.group, subscription.topic, queue_id, next_offset)
        subscription.pulled = self.offsets.pulls_of(subscription.group, subscription.topic)
        return 0

    cdef bint commit(self, PullSubscription subscription, const PullFields *fields) except -1:
        """Apply the pull's commit; False: it is refused."""
        cdef int committed
        if not fields.flags & PULL_COMMIT_OFFSET:
            return True
        if self.offsets.not_here:
            return True
        committed = self.commit_again(subscription, fields.queue_id, fields.commit_offset)
        if committed != NOT_COMMITTED:
            self.offsets.counted(subscription.group, committed == MOVED)
            return True
        try:
            self.offsets.commit(subscription.group, subscription.topic, fields.queue_id, fields.commit_offset)
        except ValueError:
            return False
        return True

    cdef int commit_again(
        self, PullSubscription subscription, int64_t queue_id, int64_t queue_offset
    ) except -1:
        """Commit to a queue that has a committed offset. NOT_COMMITTED: it has none, or the journal's file is
        full."""
        queues = self.committed.get(subscription.key)
        if queues is None:
            return NOT_COMMITTED
        before = (<dict> queues).get(queue_id)
        if before is None:
            return NOT_COMMITTED
        if before == queue_offset:
            return COMMITTED_BEFORE
        if not self.journal_page.append_entry(
            OFFSET_ENTRY, subscription.noted, <int32_t> queue_id, queue_offset, 0, ENTRY_HEAD_BYTES
        ):
            return NOT_COMMITTED
        (<dict> queues)[queue_id] = queue_offset
        return MOVED

    def count(self):
        # type: (...) -> None
        """Report the counts since the last call to the statistics."""
        cdef PullSubscription subscription
        for subscription in self.counted:
            self.stats.got(
                subscription.group, subscription.topic, subscription.messages, subscription.bytes,
                subscription.requests,
            )
            subscription.requests = subscription.messages = subscription.bytes = 0
        self.counted.clear()
        if self.missed:
            self.stats.missed(self.missed)
            self.missed = 0

    cdef int answer(
        self, FastConnection connection, int serializer, int32_t opaque, PullSubscription subscription,
        ConsumeQueue queue,
    ) except -1:
        """Send the messages found."""
        cdef int64_t values[6]
        cdef Scan *scan = &self.scan
        values[0], values[1], values[2] = subscription.near, scan.next_offset, queue.min_entry
        if self.store.log.written - scan.last_physical > self.store.reader.limits.in_memory_bytes:
            values[0] = subscription.far
        values[3] = queue.visible
        values[4], values[5] = subscription.topic_sys_flag, subscription.group_sys_flag
        write_pull_response(connection.out, serializer, opaque, values, scan.bytes)
        copy_picked(scan, connection.out.data + connection.out.size)
        connection.out.size += scan.bytes
        connection.answer_bytes = connection.out.size
        if subscription.requests == 0:
            self.counted.append(subscription)
        subscription.requests += 1
        subscription.messages += scan.count
        subscription.bytes += scan.bytes
        if self.quotas is not None:
            self.quotas.use_here(
                OUT, connection, subscription.topic, subscription.group, scan.count, scan.bytes
            )
        return connection.schedule_flush()

    # ---- long polling ----

    cdef int hold(
        self, FastConnection connection, const Frame *frame, const Header *header,
        PullSubscription subscription, const PullFields *fields,
    ) except -1:
        cdef HeldPull held
        cdef Py_ssize_t weight = HELD_BYTES + frame.header_bytes
        if (
            not fields.flags & PULL_SUSPEND
            or subscription.wait_ms_max < 0
            or not self.hold_service.has_capacity(weight)
        ):
            return self.leave(LEFT_NO_MATCH)
        self.note(subscription, fields.queue_id, fields.queue_offset)
        if not self.commit(subscription, fields):
            return self.leave(LEFT_OFFSET)
        self.missed += 1
        held = HeldPull.__new__(HeldPull)
        held.queue, held.peer, held.weight = (subscription.topic, fields.queue_id), connection, weight
        held.deadline_ms = (
            self.clock.monotonic_ms() + max(min(fields.suspend_ms, subscription.wait_ms_max), 0)
        )
        held.puller, held.subscription = self, subscription
        held.since, held.is_lite = connection.now(), header.code == LITE_PULL_MESSAGE
        held.frame = PyBytes_FromStringAndSize(<const char *> frame.header - FRAME_HEAD, frame.size)
        held.queue_id, held.queue_offset = <int32_t> fields.queue_id, fields.queue_offset
        if self.access is not None:
            held.generation, held.user = self.access.generation, (<Login> connection.login).user
        held.max_messages, held.opaque, held.serializer = fields.max_messages, header.opaque, frame.serializer
        self.hold_service.hold(held)
        return HANDLED


cdef class HeldPull(HeldRequest):
    cdef bint has_match(self) except -1:
        """Matches by the last known tags if its pulls are no longer handled here."""
        cdef Puller puller = self.puller
        cdef PullSubscription subscription = self.subscription
        cdef FastConnection connection = <FastConnection> self.peer
        cdef ConsumeQueue queue
        self.found = False
        if connection.is_full():
            return False
        puller.refresh(subscription, connection.now())
        queue = subscription.queue(puller.store, self.queue_id)
        if queue is None or not queue.min_entry <= self.queue_offset <= queue.visible:
            return True
        if self.queue_offset == queue.visible:
            return False
        if not puller.find(subscription, queue, self.queue_offset, self.max_messages):
            return queue.visible - self.queue_offset > LOOKED_THROUGH
        self.found = (
            subscription.mine and self.queue_id < subscription.queues
            and not puller.is_reset(subscription, self.queue_id)
            and not subscription.may_be_old(self.queue_id, self.queue_offset, queue)
        )
        return True

    cdef int run_again(self) except -1:
        cdef Puller puller = self.puller
        cdef PullSubscription subscription = self.subscription
        cdef FastConnection connection = <FastConnection> self.peer
        cdef int64_t waited_ns = <int64_t> (1e9 * max(connection.now() - self.since, 0.0))
        if not self.found or (puller.access is not None and self.generation != puller.access.generation):
            self.found = False
            command = RemotingCommand.decode(self.frame)
            command.since_ns, command.held = nanoseconds() - waited_ns, True
            command.user = self.user
            puller.beyond(command, self.peer, self.generation)
            return 0
        puller.times.record(KIND_HELD_LITE_PULL if self.is_lite else KIND_HELD_PULL, waited_ns, 1)
        self.found = False
        puller.note(subscription, self.queue_id, puller.scan.next_offset)
        return puller.answer(
            connection, self.serializer, self.opaque, subscription,
            subscription.queue(puller.store, self.queue_id),
        )
