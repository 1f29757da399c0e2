"""Puller: plain pulls without a Python object for each record (see pull.pxd)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

from firearrow._native.path.fields cimport is_ascii, pull_fields
from firearrow._native.path.found cimport put_found
from firearrow._native.path.holds cimport Held
from firearrow._native.path.lane cimport NOT_MINE, TAKEN
from firearrow._native.store.fetch cimport FOUND, PICKED_MAX, copy_picked, pick
from firearrow._native.store.notes cimport NOTE_HEAD_BYTES, NOTE_OFFSET
from firearrow._native.wire.codes cimport FLAG_ONEWAY, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from firearrow._native.wire.json cimport SPAN_ABSENT, Span

from firearrow._native.path.holds import REQUEST_BYTES
from firearrow._native.wire.command import RemotingCommand

cdef enum:
    PLANS_MAX = 4096
    FRAME_HEAD = 8                # bytes before a header
    BYTES_MAX = 134217728         # of one answer, as on the complete path
    # entries after a held pull that match none of its tags; after more, its offset has to move
    LOOKED_THROUGH = 800
    KNOWN_FLAGS = PULL_COMMIT_OFFSET | PULL_SUSPEND | PULL_SUBSCRIPTION

cdef double PLAN_S = 1.0
cdef double BEFORE_ALL_TIME = -1e300
cdef Py_ssize_t HELD_BYTES = REQUEST_BYTES


cdef class Plan:
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


cdef uint8_t *put_key(uint8_t *to, const Span *span) noexcept nogil:
    """A string preceded by its length."""
    memcpy(to, &span.length, 4)
    memcpy(to + 4, span.at, span.length)
    return to + 4 + span.length


cdef str text_of(const Span *span):
    """ASCII only."""
    return "" if span.kind == SPAN_ABSENT else (<const char *> span.at)[:span.length].decode("ascii")


cdef Plan plan_for(const PullFields *fields):
    """A plan that is not resolved yet."""
    cdef Plan plan = Plan.__new__(Plan)
    plan.group, plan.topic = text_of(&fields.group), text_of(&fields.topic)
    plan.expression, plan.expression_type = text_of(&fields.expression), text_of(&fields.expression_type)
    plan.flags, plan.version = fields.flags & PULL_SUBSCRIPTION, fields.version
    plan.name = plan.topic.encode()
    plan.key = f"{plan.topic}@{plan.group}"
    plan.noted = plan.key.encode()
    plan.found = {}
    plan.made = BEFORE_ALL_TIME
    return plan


cdef class Puller:
    def __cinit__(
        self, MessageStore store not None, Holds holds not None, resolve, beyond, offsets,
        Notes notes not None, stats, Clock clock not None,
    ):
        self.store = store
        self.holds = holds
        self.resolve = resolve
        self.beyond = beyond
        self.offsets = offsets
        self.resets = offsets.resets
        self.committed = offsets.table
        self.notes = notes
        self.stats = stats
        self.clock = clock
        self.plans = {}
        self.counted = []
        self.picked = <Picked *> PyMem_Malloc(PICKED_MAX * sizeof(Picked))
        if self.picked is NULL:
            raise MemoryError()
        self.scan.picked = self.picked

    def __dealloc__(self):
        PyMem_Free(self.picked)

    def forget(self):
        for plan in self.plans.values():
            (<Plan> plan).made = BEFORE_ALL_TIME
        self.plans.clear()

    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1:
        cdef PullFields fields
        cdef Plan plan
        cdef ConsumeQueue queue
        if header.flag & FLAG_ONEWAY or len(self.resets) > 0 or not pull_fields(header, &fields):
            return NOT_MINE
        if fields.flags & ~<int64_t> KNOWN_FLAGS or frame.body_bytes > 0:
            return NOT_MINE
        plan = self.plan_of(&fields, front.last_seen)
        if plan is None or not plan.mine or fields.queue_id >= plan.queues:
            return NOT_MINE
        queue = plan.queue(self.store, <int32_t> fields.queue_id)
        if queue is None or not queue.min_entry <= fields.queue_offset <= queue.visible:
            return NOT_MINE
        if fields.queue_offset == queue.visible:
            if queue.min_entry == queue.visible and fields.queue_offset > 0:
                return NOT_MINE
            return self.hold(front, frame, header, plan, &fields)
        if not self.find(plan, queue, fields.queue_offset, fields.wanted):
            return NOT_MINE
        self.note(plan, fields.queue_id, self.scan.next_offset)
        if not self.commit(plan, &fields):
            return NOT_MINE
        self.answer(front, frame.serializer, header.opaque, plan, queue)
        return TAKEN

    # ---- permissions and subscription ----

    cdef Plan plan_of(self, const PullFields *fields, double now):
        """None: the strings are too long for a plan, or not ASCII."""
        cdef uint8_t *to = self.key
        cdef int64_t given = fields.flags & PULL_SUBSCRIPTION
        cdef Plan plan
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
        found = self.plans.get(key)
        if found is None:
            if not is_ascii(self.key, to - self.key):
                return None
            found = plan_for(fields)
            if len(self.plans) >= PLANS_MAX:
                self.forget()
            self.plans[key] = found
        plan = <Plan> found
        self.settle(plan, now)
        return plan

    cdef int settle(self, Plan plan, double now) except -1:
        """Resolve the plan again if its result is too old."""
        if now - plan.made < PLAN_S:
            return 0
        plan.made = now
        may = self.resolve(
            plan.group, plan.topic, plan.flags, plan.version, plan.expression, plan.expression_type
        )
        plan.mine = may is not None and len(may[1]) <= CODES_MAX
        plan.pulled = self.offsets.pulls_of(plan.group, plan.topic)
        if plan.mine:
            plan.queues, codes, plan.topic_sys_flag, plan.group_sys_flag, plan.wait_ms_max = may
            for n, code in enumerate(codes):
                plan.codes[n] = code
            plan.codes_count = len(codes)
        return 0

    # ---- messages ----

    cdef int find(self, Plan plan, ConsumeQueue queue, int64_t queue_offset, int64_t wanted) except -1:
        """Whether it found messages; an answer that only moves the offset is not taken."""
        try:
            pick(
                self.store.log, queue, &self.store.reader.limits, queue_offset,
                min(max(wanted, <int64_t> 1), <int64_t> PICKED_MAX), BYTES_MAX, plan.codes, plan.codes_count,
                None, None, &self.scan,
            )
        except OSError:
            return False
        return self.scan.status == FOUND

    cdef int note(self, Plan plan, int64_t queue_id, int64_t next_offset) except -1:
        """Record the offset at which the group pulls."""
        if plan.pulled is not None and queue_id in plan.pulled:
            plan.pulled[queue_id] = next_offset
            return 0
        self.offsets.note_pull(plan.group, plan.topic, queue_id, next_offset)
        plan.pulled = self.offsets.pulls_of(plan.group, plan.topic)
        return 0

    cdef bint commit(self, Plan plan, const PullFields *fields) except -1:
        """Apply the pull's commit; False: it is refused."""
        if not fields.flags & PULL_COMMIT_OFFSET:
            return True
        if self.commit_again(plan, fields.queue_id, fields.commit_offset):
            self.offsets.counted(plan.group)
            return True
        try:
            self.offsets.commit(plan.group, plan.topic, fields.queue_id, fields.commit_offset)
        except ValueError:
            return False
        return True

    cdef bint commit_again(self, Plan plan, int64_t queue_id, int64_t queue_offset) except -1:
        """Commit to a queue that has a committed offset; False: it has none, or the journal's file is
        full."""
        queues = self.committed.get(plan.key)
        if queues is None:
            return False
        before = (<dict> queues).get(queue_id)
        if before is None:
            return False
        if before != queue_offset:
            if not self.notes.put_note(
                NOTE_OFFSET, plan.noted, <int32_t> queue_id, queue_offset, 0, NOTE_HEAD_BYTES
            ):
                return False
            (<dict> queues)[queue_id] = queue_offset
        return True

    def count(self):
        cdef Plan plan
        for plan in self.counted:
            self.stats.got(plan.group, plan.topic, plan.messages, plan.bytes, plan.requests)
            plan.requests = plan.messages = plan.bytes = 0
        self.counted.clear()
        if self.missed:
            self.stats.missed(self.missed)
            self.missed = 0

    cdef int answer(
        self, Front front, int serializer, int32_t opaque, Plan plan, ConsumeQueue queue
    ) except -1:
        """What was found."""
        cdef int64_t values[6]
        cdef Scan *scan = &self.scan
        values[0], values[1], values[2] = 0, scan.next_offset, queue.min_entry
        values[3], values[4], values[5] = queue.visible, plan.topic_sys_flag, plan.group_sys_flag
        put_found(front.out, serializer, opaque, values, scan.bytes)
        copy_picked(scan, front.out.data + front.out.size)
        front.out.size += scan.bytes
        front.answer_bytes = front.out.size
        if plan.requests == 0:
            self.counted.append(plan)
        plan.requests += 1
        plan.messages += scan.count
        plan.bytes += scan.bytes
        return front.plan()

    # ---- long polling ----

    cdef int hold(
        self, Front front, const Frame *frame, const Header *header, Plan plan, const PullFields *fields
    ) except -1:
        cdef HeldPull held
        cdef Py_ssize_t weight = HELD_BYTES + frame.header_bytes
        if not fields.flags & PULL_SUSPEND or plan.wait_ms_max < 0 or not self.holds.has_room(weight):
            return NOT_MINE
        self.note(plan, fields.queue_id, fields.queue_offset)
        if not self.commit(plan, fields):
            return NOT_MINE
        self.missed += 1
        held = HeldPull.__new__(HeldPull)
        held.queue, held.peer, held.weight = (plan.topic, fields.queue_id), front, weight
        held.deadline_ms = self.clock.monotonic_ms() + max(min(fields.suspend_ms, plan.wait_ms_max), 0)
        held.puller, held.plan = self, plan
        held.frame = PyBytes_FromStringAndSize(<const char *> frame.header - FRAME_HEAD, frame.size)
        held.queue_id, held.queue_offset = <int32_t> fields.queue_id, fields.queue_offset
        held.wanted, held.opaque, held.serializer = fields.wanted, header.opaque, frame.serializer
        self.holds.enter(held)
        return TAKEN


cdef class HeldPull(Held):
    cdef bint wants(self) except -1:
        """Matches by the last known tags if its pulls are not taken any more."""
        cdef Puller puller = self.puller
        cdef Plan plan = self.plan
        cdef Front front = <Front> self.peer
        cdef ConsumeQueue queue
        self.found = False
        if front.writing_paused:
            return False
        puller.settle(plan, front.now())
        queue = plan.queue(puller.store, self.queue_id)
        if queue is None or not queue.min_entry <= self.queue_offset <= queue.visible:
            return True
        if self.queue_offset == queue.visible:
            return False
        if not puller.find(plan, queue, self.queue_offset, self.wanted):
            return queue.visible - self.queue_offset > LOOKED_THROUGH
        self.found = plan.mine and len(puller.resets) == 0 and self.queue_id < plan.queues
        return True

    cdef int again(self) except -1:
        cdef Puller puller = self.puller
        cdef Plan plan = self.plan
        if not self.found:
            puller.beyond(RemotingCommand.decode(self.frame), self.peer)
            return 0
        self.found = False
        puller.note(plan, self.queue_id, puller.scan.next_offset)
        return puller.answer(
            <Front> self.peer, self.serializer, self.opaque, plan, plan.queue(puller.store, self.queue_id)
        )
