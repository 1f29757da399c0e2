"""Puller: plain pulls without a Python object for each record (see pull.pxd)."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy

from firearrow._native.path.fields cimport is_ascii, pull_fields
from firearrow._native.path.found cimport put_found
from firearrow._native.path.lane cimport NOT_MINE, TAKEN
from firearrow._native.store.fetch cimport FOUND, PICKED_MAX, copy_picked, pick
from firearrow._native.wire.codes cimport FLAG_ONEWAY, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from firearrow._native.wire.json cimport SPAN_ABSENT, Span

cdef enum:
    PLANS_MAX = 4096
    BYTES_MAX = 134217728         # of one answer, as the complete way asks for
    KNOWN_FLAGS = PULL_COMMIT_OFFSET | PULL_SUSPEND | PULL_SUBSCRIPTION

cdef double PLAN_S = 1.0


cdef class Plan:
    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id):
        """The queue, or None if it has none yet."""
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
    """A text with its length before it."""
    memcpy(to, &span.length, 4)
    memcpy(to + 4, span.at, span.length)
    return to + 4 + span.length


cdef str text_of(const Span *span):
    """Only of ASCII."""
    return "" if span.kind == SPAN_ABSENT else (<const char *> span.at)[:span.length].decode("ascii")


cdef class Puller:
    def __cinit__(self, MessageStore store not None, resolve, offsets, stats):
        self.store = store
        self.resolve = resolve
        self.offsets = offsets
        self.resets = offsets.resets
        self.stats = stats
        self.plans = {}
        self.picked = <Picked *> PyMem_Malloc(PICKED_MAX * sizeof(Picked))
        if self.picked is NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_Free(self.picked)

    def forget(self):
        self.plans.clear()

    cdef int take(self, Front front, const Frame *frame, const Header *header) except -1:
        cdef PullFields fields
        cdef Scan scan
        cdef Plan plan
        cdef ConsumeQueue queue
        if header.flag & FLAG_ONEWAY or len(self.resets) > 0 or not pull_fields(header, &fields):
            return NOT_MINE
        if fields.flags & ~<int64_t> KNOWN_FLAGS:
            return NOT_MINE
        plan = self.plan_of(&fields, front.last_seen)
        if plan is None or not plan.mine or fields.queue_id >= plan.queues:
            return NOT_MINE
        queue = plan.queue(self.store, <int32_t> fields.queue_id)
        if queue is None or not queue.min_entry <= fields.queue_offset < queue.visible:
            return NOT_MINE
        if not self.find(plan, queue, &fields, &scan) or not self.note(plan, &fields, &scan):
            return NOT_MINE
        self.answer(front, frame, header, plan, queue, &scan)
        return TAKEN

    # ---- what it may get ----

    cdef Plan plan_of(self, const PullFields *fields, double now):
        """None: the texts are too long for a plan, or are no ASCII."""
        cdef uint8_t *to = self.key
        cdef int64_t given = fields.flags & PULL_SUBSCRIPTION
        if fields.group.length + fields.topic.length + fields.expression.length + fields.expression_type.length > KEY_MAX - 64:
            return None
        to = put_key(put_key(to, &fields.group), &fields.topic)
        to = put_key(put_key(to, &fields.expression), &fields.expression_type)
        memcpy(to, &given, 8)
        memcpy(to + 8, &fields.version, 8)
        key = PyBytes_FromStringAndSize(<const char *> self.key, to + 16 - self.key)
        found = self.plans.get(key)
        if found is not None and now - (<Plan> found).made < PLAN_S:
            return <Plan> found
        if not is_ascii(self.key, to - self.key):
            return None
        found = self.made(fields, now)
        if len(self.plans) >= PLANS_MAX:
            self.plans.clear()
        self.plans[key] = found
        return <Plan> found

    cdef Plan made(self, const PullFields *fields, double now):
        cdef Plan plan = Plan.__new__(Plan)
        plan.group, plan.topic = text_of(&fields.group), text_of(&fields.topic)
        plan.name = plan.topic.encode()
        plan.made = now
        plan.found = {}
        plan.forgotten = self.store.dispatch.forgotten
        may = self.resolve(
            plan.group, plan.topic, fields.flags & PULL_SUBSCRIPTION, fields.version, text_of(&fields.expression),
            text_of(&fields.expression_type),
        )
        plan.mine = may is not None and len(may[1]) <= CODES_MAX
        if plan.mine:
            plan.queues, codes, plan.topic_sys_flag, plan.group_sys_flag = may
            for n, code in enumerate(codes):
                plan.codes[n] = code
            plan.codes_count = len(codes)
        return plan

    # ---- what it gets ----

    cdef int find(self, Plan plan, ConsumeQueue queue, const PullFields *fields, Scan *scan) except -1:
        """Whether there is something; an answer that only moves the consumer on is not mine."""
        scan.picked = self.picked
        try:
            pick(
                self.store.log, queue, &self.store.limits, fields.queue_offset, min(max(fields.wanted, <int64_t> 1), <int64_t> PICKED_MAX),
                BYTES_MAX, plan.codes, plan.codes_count, None, None, scan,
            )
        except OSError:
            return False
        return scan.status == FOUND

    cdef bint note(self, Plan plan, const PullFields *fields, const Scan *scan) except -1:
        """Remember where the group pulls, what it committed and what it got; False if the commit is refused."""
        self.offsets.note_pull(plan.group, plan.topic, fields.queue_id, scan.next_offset)
        if fields.flags & PULL_COMMIT_OFFSET:
            try:
                self.offsets.commit(plan.group, plan.topic, fields.queue_id, fields.commit_offset)
            except ValueError:
                return False
        self.stats.got(plan.group, plan.topic, scan.count, scan.bytes)
        return True

    cdef int answer(self, Front front, const Frame *frame, const Header *header, Plan plan, ConsumeQueue queue, const Scan *scan) except -1:
        cdef int64_t values[6]
        values[0], values[1], values[2] = 0, scan.next_offset, queue.min_entry
        values[3], values[4], values[5] = queue.visible, plan.topic_sys_flag, plan.group_sys_flag
        put_found(front.out, frame.serializer, header.opaque, values, scan.bytes)
        copy_picked(scan, front.out.data + front.out.size)
        front.out.size += scan.bytes
        front.answer_bytes = front.out.size
        return front.plan()
