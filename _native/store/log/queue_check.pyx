"""QueueRebuild: compares queues with the log and repairs them (see queue_check.pxd). Knows no index."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memset

from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.store.files.layout cimport (
    BATCH_COUNT_MAX, BATCH_ENTRY_BYTES, BATCH_ITEM_BYTES_MIN, ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES,
    PRE_BLANK_SIZE, RECORD_FIXED_BYTES,
)
from firearrow._native.store.log.batch_consume_queue cimport (
    base_at, count_at, is_batch, messages_of, put_batch,
)
from firearrow._native.store.log.record cimport RECORD_OK, RecordView
from firearrow._native.store.files.segment cimport Segment

cdef enum:
    # a jump by at most this many messages is accepted without lost bytes in the log
    GAP_MAX = 10000
    # records of a queue held at a time; one more, and the oldest is skipped
    HELD_MAX = 8


LITE_PREFIX = "%LMQ%$"  # type: str


cdef class QueueRebuild:
    """Compares queues with the whole log; used by recovery."""

    def __cinit__(self, CommitLog log not None, repair_log not None):
        # type: (CommitLog, RepairLog) -> None
        self.log = log
        self.repair_log = repair_log
        self.states = {}
        self.held = {}
        self.batches = {}

    cdef int add_record(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """Give the queue the entry of a record in the log, unless the record is held or skipped. OSError."""
        state = self.states.get(queue)
        if not is_valid_entry(entry, physical_offset):
            self.skip_entries(queue, entry, physical_offset)
        elif entry == 0 and is_lite(queue):
            self.begin_lite(queue, physical_offset, size, tags_code)
        elif not self.fits(queue, state, entry, physical_offset):
            self.hold_entry(queue, entry, physical_offset, size, tags_code)
        elif state is None:
            self.begin(queue, entry)
            self.put(queue, entry, physical_offset, size, tags_code)
        else:
            self.put(queue, entry, physical_offset, size, tags_code)
        return 0

    cdef int begin_lite(
        self, ConsumeQueue queue, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """The first record of a lite topic. If there are earlier ones, it had expired after them. OSError."""
        self.held.pop(queue, None)
        if queue in self.states or not points_to(queue, 0, physical_offset):
            restart_queue(queue, 0)
        self.states[queue] = [0, 0, 0, 0]
        return self.put(queue, 0, physical_offset, size, tags_code)

    cdef int add_batch(
        self, ConsumeQueue queue, int64_t base, int64_t count, const RecordView *view, int64_t tags_code
    ) except -1:
        """As `add_record`, for a batch queue. OSError."""
        cdef BatchRebuild rebuild = self.batches.get(queue)
        if rebuild is None:
            rebuild = self.batches[queue] = BatchRebuild(queue)
        if count == 0 or not is_valid_batch(base, view.physical_offset):
            rebuild.slack += count or BATCH_COUNT_MAX
            self.skip_entries(queue, base, view.physical_offset)
            return 0
        record = base, count, view.physical_offset, view.size, tags_code, view.store_time
        rebuild.add(record, self.lost_bytes)
        return 0

    cdef bint fits(self, ConsumeQueue queue, list state, int64_t entry, int64_t physical_offset) except -1:
        """Whether an entry fits the sequence: the first record must match the queue's own entry, later ones
        must follow the last one or replace an entry without a record."""
        cdef uint8_t at[ENTRY_BYTES]
        if not queue.files or entry < (<Segment> queue.files[0]).base // ENTRY_BYTES:
            return False
        if state is None:
            return entry == queue.end_entry or points_to(queue, entry, physical_offset)
        if entry < state[0] or entry - queue.end_entry > GAP_MAX + self.lost_bytes // RECORD_FIXED_BYTES:
            return False
        return (
            entry >= state[1] or points_to(queue, entry, physical_offset)
            or (queue.look(entry, at) and get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE)
        )

    cdef int hold_entry(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """Hold a record out of the sequence; two that follow one another restart the queue there. OSError."""
        held = self.held.setdefault(queue, [])
        other = self.held_before(held, entry)
        if other is not None:
            held.remove(other)
            first, at, length, code = other
            restart_queue(queue, first)
            self.states[queue] = [first, first, 0, 0]
            self.put(queue, first, at, length, code)
            self.put(queue, entry, physical_offset, size, tags_code)
            return 0
        held.append((entry, physical_offset, size, tags_code))
        if len(held) > HELD_MAX:
            first, at, _, _ = held.pop(0)
            self.skip_entries(queue, first, at)
        return 0

    cdef object held_before(self, list held, int64_t entry):
        """A held record that `entry` follows, allowing for lost and held records in between; None if there is
        none."""
        cdef int64_t more = len(held) + 1 + self.lost_bytes // RECORD_FIXED_BYTES
        for other in held:
            if 0 < entry - <int64_t> other[0] <= more:
                return other
            more -= 1
        return None

    cdef int begin(self, ConsumeQueue queue, int64_t entry) except -1:
        """Begin with the first record that the queue confirms, or with a held one before it whose entry was
        damaged."""
        held = self.held.get(queue, [])
        other = self.held_before(held, entry)
        first, at, length, code = (entry, 0, 0, 0) if other is None else other
        self.states[queue] = [first, first, 0, 0]
        if other is not None:
            held.remove(other)
            self.put(queue, first, at, length, code)
        return 0

    cdef int put(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        state = self.states[queue]
        state[3] += self.blank(queue, state[1], min(entry, queue.end_entry), physical_offset)
        if entry >= queue.end_entry:
            state[3] += entry - queue.end_entry
            state[2] += 1
            self.append(queue, entry, physical_offset, size, tags_code)
        elif not has(queue, entry, physical_offset, size, tags_code):
            if entry != state[1] and self.holds_valid_entry(queue, entry, physical_offset):
                return 0
            if entry == state[1] and self.is_later(queue, entry, physical_offset):
                return 0
            put(<uint8_t *> queue.entry_at(entry), physical_offset, size, tags_code)
            queue.mark_dirty()
            state[2] += 1
        state[1] = entry + 1
        return 0

    cdef int append_held(self, ConsumeQueue queue) except -1:
        """After the whole log: use a held record only if the queue has no other one and does not contain it
        elsewhere. OSError."""
        for entry, physical_offset, size, tags_code in self.held.pop(queue, ()):
            if queue in self.states or points_to(queue, queue.end_entry - 1, physical_offset):
                self.skip_entries(queue, entry, physical_offset)
            else:
                restart_queue(queue, entry)
                self.states[queue] = [entry, entry, 0, 0]
                self.put(queue, entry, physical_offset, size, tags_code)
        return 0

    cdef int skip_entries(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        self.repair_log.record(
            f"the record at {physical_offset} claims offset {entry} in queue {queue.queue_id} of "
            f"{queue.topic}, which does not fit: skipped"
        )
        return 0

    cdef int64_t blank(
        self, ConsumeQueue queue, int64_t entry, int64_t until, int64_t physical_offset
    ) except -1:
        """Blank the entries that no record has, so that they point before the next record; returns how
        many."""
        cdef int64_t count = 0
        while entry < until:
            if not matches(self.log, queue, entry, False):
                put(<uint8_t *> queue.entry_at(entry), physical_offset - 1, PRE_BLANK_SIZE, 0)
                queue.mark_dirty()
                count += 1
            entry += 1
        return count

    cdef bint holds_valid_entry(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        """Whether the queue has a valid entry of another record at this offset."""
        cdef uint8_t other[ENTRY_BYTES]
        queue.look(entry, other)
        return (
            get_i64(other) != physical_offset and get_i32(other + ENTRY_AT_SIZE) != PRE_BLANK_SIZE
            and matches(self.log, queue, entry, False)
        )

    cdef bint is_later(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        """Whether that other record is a later one: the topic was created again."""
        cdef uint8_t other[ENTRY_BYTES]
        queue.look(entry, other)
        return get_i64(other) > physical_offset and self.holds_valid_entry(queue, entry, physical_offset)

    cdef int append(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        while queue.end_entry < entry:
            queue.append(physical_offset - 1, PRE_BLANK_SIZE, 0)
        queue.append(physical_offset, size, tags_code)
        return 0

    def finish(self, list queues not None):
        # type: (list[ConsumeQueue]) -> None
        """After the whole log: remove entries without a record and sync the queues. OSError."""
        cdef ConsumeQueue queue
        cdef BatchRebuild rebuild
        for queue in queues:
            rebuild = self.batches.get(queue)
            if rebuild is not None:
                self.finish_batches(rebuild)
                continue
            self.append_held(queue)
            state = self.states.get(queue)
            if state is None:
                truncate_to(queue, possible_end(self.log, queue))
                if (
                    queue.end_entry > queue.min_entry
                    and not matches(self.log, queue, queue.end_entry - 1, True)
                ):
                    queue.min_entry = queue.end_entry
                    self.repair_log.record(
                        f"queue {queue.queue_id} of {queue.topic} has no messages left in the log"
                    )
                continue
            first, end, repaired, lost = state
            removed = max(queue.end_entry - end, 0)
            truncate_to(queue, end)
            queue.min_entry = first
            queue.max_physical, queue.min_physical = queue.last_end(), -1
            queue.visible = queue.next_entry = queue.end_entry
            if repaired or removed or lost:
                sync(queue)
                self.repair_log.record(
                    f"queue {queue.queue_id} of {queue.topic} was rebuilt from the log: "
                    f"{repaired} entries repaired, {removed} removed, {lost} of lost messages"
                )

    def finish_batches(self, BatchRebuild rebuild):
        queue = rebuild.queue
        removed = rebuild.finish()
        if rebuild.repaired or removed:
            sync(queue)
            self.repair_log.record(
                f"batch queue {queue.queue_id} of {queue.topic} was rebuilt from the log: {rebuild.repaired} "
                f"entries repaired, {removed} removed"
            )


cdef class BatchRebuild:
    """The entries of one batch queue, written again in the order of the log."""

    def __cinit__(self, ConsumeQueue queue not None):
        cdef Segment file
        self.queue, self.end, self.before = queue, -1, queue.end_entry
        for file in queue.files:  # its blocks exist, and its entries must not be overwritten by a reservation
            if (file.base + file.size) // queue.entry_bytes <= queue.end_entry:
                file.reserved = file.size
        queue.min_entry = queue.end_entry = queue.next_entry = queue.visible = queue.first_entry
        queue.min_physical = -1

    cdef int add(self, tuple record, int64_t lost_bytes) except -1:
        """Append a record's entry if it continues the queue; else hold it, until a second one follows it.
        OSError."""
        cdef int64_t base = record[0], physical = record[2]
        if self.held is None and self.end < 0 and (base == 0 or self.has_first(physical)):
            return self.put(record)
        if self.end >= 0 and self.continues(self.end, base, lost_bytes):
            self.skip()
            return self.put(record)
        if self.held is not None and self.continues(self.held[0] + self.held[1], base, lost_bytes):
            held, self.held = self.held, None
            if held[0] < self.end:  # the topic was created again
                self.queue.end_entry = self.queue.next_entry = self.queue.first_entry
            self.put(held)
            return self.put(record)
        self.skip()
        self.held = record
        return 0

    cdef bint continues(self, int64_t end, int64_t base, int64_t lost_bytes) noexcept:
        """Whether a record follows where others end, allowing for lost and skipped ones in between."""
        cdef int64_t held = 0 if self.held is None else <int64_t> self.held[1]
        return 0 <= base - end <= self.slack + held + lost_bytes // BATCH_ITEM_BYTES_MIN

    def has_first(self, int64_t physical_offset):
        """Whether the queue's first entry in the file points to the record."""
        cdef const uint8_t *at
        if not self.queue.files:
            return False
        at = self.queue.slot_at(self.queue.end_entry)
        return get_i64(at) == physical_offset and get_i32(at + ENTRY_AT_SIZE) > 0

    cdef int skip(self) except -1:
        if self.held is not None:
            self.slack += <int64_t> self.held[1]
            self.repaired += 1
            self.held = None
        return 0

    cdef int put(self, tuple record) except -1:
        cdef uint8_t before[BATCH_ENTRY_BYTES]
        cdef uint8_t *at = self.queue.slot_at(self.queue.end_entry)
        base, count, physical, size, tags_code, store_time = record
        memcpy(before, at, BATCH_ENTRY_BYTES)
        put_batch(at, store_time, base, count)
        self.queue.append(physical, size, tags_code)
        self.queue.visible = self.queue.end_entry
        self.repaired += memcmp(before, at, BATCH_ENTRY_BYTES) != 0
        self.end, self.slack = base + count, 0
        return 0

    cdef int finish(self) except -1:
        """After the whole log: a held record counts if there is no other. Returns how many old entries were
        removed. OSError."""
        cdef ConsumeQueue queue = self.queue
        cdef int64_t end
        if self.held is not None and self.end < 0:
            held, self.held = self.held, None
            self.put(held)
        self.skip()
        end = queue.end_entry
        queue.end_entry = max(end, self.before)
        truncate_to(queue, end)
        queue.max_physical = queue.last_end()
        queue.visible = queue.next_entry = queue.end_entry
        return <int> max(self.before - end, <int64_t> 0)


cdef bint matches(CommitLog log, ConsumeQueue queue, int64_t entry, bint gone) except -1:
    """Whether an entry points to its own record. A blank entry counts as matching; the record of an LMQ's
    entry names another queue. `gone`: the result for a record below the start of the log."""
    cdef uint8_t at[ENTRY_BYTES]
    cdef RecordView view
    cdef bytes topic
    if not queue.look(entry, at):
        return False
    if get_i32(at + ENTRY_AT_SIZE) <= 0:
        return False
    if get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE:
        return True
    if 0 <= get_i64(at) < log.start():
        return gone
    if get_i64(at) < 0 or log.look(get_i64(at), False, &view) != RECORD_OK:
        return False
    if view.physical_offset != get_i64(at) or view.size != get_i32(at + ENTRY_AT_SIZE):
        return False
    if queue.topic.startswith("%LMQ%"):
        return True
    topic = os.fsencode(queue.topic)
    if is_batch(queue):
        if messages_of(&view) != count_at(queue, entry):
            return False
        entry = base_at(queue, entry)
    return (
        view.queue_id == queue.queue_id and view.queue_offset == entry
        and view.topic.length == len(topic)
        and memcmp(view.topic.at, PyBytes_AS_STRING(topic), len(topic)) == 0
    )


cdef int64_t possible_end(CommitLog log, ConsumeQueue queue) except -1:
    """The entry after the last plausible one: a blank, or of a record below the end of the log."""
    cdef uint8_t at[ENTRY_BYTES]
    cdef int64_t entry = queue.end_entry, size
    while entry > queue.min_entry and queue.look(entry - 1, at):
        size = get_i32(at + ENTRY_AT_SIZE)
        if size == PRE_BLANK_SIZE or (size > 0 and 0 <= get_i64(at) <= log.written - size):
            break
        entry -= 1
    return entry


cdef bint is_lite(ConsumeQueue queue) except -1:
    return queue.topic.startswith(LITE_PREFIX)


cdef bint is_valid_entry(int64_t entry, int64_t physical_offset) noexcept:
    """Whether the log before a record has space for the records of all earlier entries of its queue."""
    return 0 <= entry <= physical_offset // RECORD_FIXED_BYTES


cdef bint is_valid_batch(int64_t base, int64_t physical_offset) noexcept:
    """As `is_valid_entry`, where records have several messages."""
    return 0 <= base <= physical_offset // BATCH_ITEM_BYTES_MIN


cdef bint points_to(ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
    cdef uint8_t at[ENTRY_BYTES]
    return queue.look(entry, at) and get_i64(at) == physical_offset


cdef bint has(
    ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
) except -1:
    cdef const uint8_t *at = queue.entry_at(entry)
    return (
        at is not NULL and get_i64(at) == physical_offset and get_i32(at + ENTRY_AT_SIZE) == size
        and get_i64(at + ENTRY_AT_TAGS) == tags_code
    )


cdef void put(uint8_t *at, int64_t physical_offset, int32_t size, int64_t tags_code) noexcept nogil:
    put_i64(at, physical_offset)
    put_i32(at + ENTRY_AT_SIZE, size)
    put_i64(at + ENTRY_AT_TAGS, tags_code)


cdef int delete_files(ConsumeQueue queue) except -1:
    """Delete all files of the queue, which is empty then."""
    cdef Segment file
    queue.drop_buffer()
    for file in queue.files:
        file.close()
        os.unlink(file.path)
    queue.files = []
    queue.min_entry = queue.end_entry = queue.next_entry = queue.visible = 0
    queue.max_physical = queue.tail_from = queue.tail_until = queue.synced_entry = 0
    return 0


cdef int restart_queue(ConsumeQueue queue, int64_t entry) except -1:
    """Delete all files of the queue and start it at `entry`."""
    delete_files(queue)
    queue.begin_at(entry)
    return 0


cdef int truncate_to(ConsumeQueue queue, int64_t entry) except -1:
    """Zero the entries from `entry` on and delete files that become empty, except the first."""
    cdef Segment file
    while len(queue.files) > 1 and (<Segment> queue.files[-1]).base >= entry * queue.entry_bytes:
        file = queue.files.pop()
        file.close()
        os.unlink(file.path)
        queue.end_entry = min(queue.end_entry, file.base // queue.entry_bytes)
    while queue.end_entry > entry:
        memset(<uint8_t *> queue.entry_at(queue.end_entry - 1), 0, queue.entry_bytes)
        queue.end_entry -= 1
        queue.mark_dirty()
    queue.next_entry = queue.end_entry
    return 0


cdef int sync(ConsumeQueue queue) except -1:
    """Sync every file, not only those that were appended to. OSError."""
    cdef Segment file
    cdef int status
    for file in queue.files:
        status = file.sync_map(file.size) if file.map is not NULL else file.sync_closed()
        if status < 0:
            raise OSError(-status, os.strerror(-status), file.path)
    return 0
