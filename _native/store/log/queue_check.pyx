"""Queues compared with the log (see comparison.pxd). Knows no index."""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memset

from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.store.files.layout cimport (
    ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES, PRE_BLANK_SIZE, RECORD_FIXED_BYTES,
)
from firearrow._native.store.log.record cimport RECORD_OK, RecordView
from firearrow._native.store.files.segment cimport Segment

cdef enum:
    # so many lost messages are believed without a hole of that size in the log
    GAP_MAX = 10000
    # records of a queue that say it is elsewhere, before one is passed over
    HELD_MAX = 8


cdef class QueueRebuild:
    def __cinit__(self, CommitLog log not None, repair_log not None):
        self.log = log
        self.repair_log = repair_log
        self.placed = {}
        self.held = {}

    cdef int place(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """The log has this record for this place: the queue has it now, too, if it stands there. OSError."""
        state = self.placed.get(queue)
        if not is_valid_entry(entry, physical_offset):
            self.skip_entries(queue, entry, physical_offset)
        elif not self.fits(queue, state, entry, physical_offset):
            self.hold_entry(queue, entry, physical_offset, size, tags_code)
        elif state is None:
            self.begin(queue, entry)
            self.put(queue, entry, physical_offset, size, tags_code)
        else:
            self.put(queue, entry, physical_offset, size, tags_code)
        return 0

    cdef bint fits(self, ConsumeQueue queue, list state, int64_t entry, int64_t physical_offset) except -1:
        """Whether the queue stands there: for its first record its own entry says so; another goes on behind
        the last one, or where nothing better is."""
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
        """A record says that its queue is elsewhere: that counts as soon as two say so, one behind the other.
        OSError."""
        held = self.held.setdefault(queue, [])
        other = self.held_before(held, entry)
        if other is not None:
            held.remove(other)
            first, at, length, code = other
            restart_queue(queue, first)
            self.placed[queue] = [first, first, 0, 0]
            self.put(queue, first, at, length, code)
            self.put(queue, entry, physical_offset, size, tags_code)
            return 0
        held.append((entry, physical_offset, size, tags_code))
        if len(held) > HELD_MAX:
            first, at, _, _ = held.pop(0)
            self.skip_entries(queue, first, at)
        return 0

    cdef object held_before(self, list held, int64_t entry):
        """One that is held, behind which `entry` follows, but for one that was passed over; None if there is
        none."""
        cdef int64_t more = len(held) + 1 + self.lost_bytes // RECORD_FIXED_BYTES
        for other in held:
            if 0 < entry - <int64_t> other[0] <= more:
                return other
            more -= 1
        return None

    cdef int begin(self, ConsumeQueue queue, int64_t entry) except -1:
        """The first record whose place its queue knows: one that is held stood before it, if its own entry
        was damaged."""
        held = self.held.get(queue, [])
        other = self.held_before(held, entry)
        first, at, length, code = (entry, 0, 0, 0) if other is None else other
        self.placed[queue] = [first, first, 0, 0]
        if other is not None:
            held.remove(other)
            self.put(queue, first, at, length, code)
        return 0

    cdef int put(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        state = self.placed[queue]
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
            queue.dirty = True
            state[2] += 1
        state[1] = entry + 1
        return 0

    cdef int append_held(self, ConsumeQueue queue) except -1:
        """The whole log was walked: a record that stands alone counts if the queue does not name it
        elsewhere. OSError."""
        for entry, physical_offset, size, tags_code in self.held.pop(queue, ()):
            if queue in self.placed or points_to(queue, queue.end_entry - 1, physical_offset):
                self.skip_entries(queue, entry, physical_offset)
            else:
                restart_queue(queue, entry)
                self.placed[queue] = [entry, entry, 0, 0]
                self.put(queue, entry, physical_offset, size, tags_code)
        return 0

    cdef int skip_entries(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        self.repair_log.record(
            f"the record at {physical_offset} says place {entry} in queue {queue.queue_id} of {queue.topic}, "
            f"which has none "
            "there: passed over"
        )
        return 0

    cdef int64_t blank(
        self, ConsumeQueue queue, int64_t entry, int64_t until, int64_t physical_offset
    ) except -1:
        """No record came for these places: their entries point before the next record; how many."""
        cdef int64_t count = 0
        while entry < until:
            if not matches(self.log, queue, entry, False):
                put(<uint8_t *> queue.entry_at(entry), physical_offset - 1, PRE_BLANK_SIZE, 0)
                queue.dirty = True
                count += 1
            entry += 1
        return count

    cdef bint holds_valid_entry(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        """Another record says this place, too, and its queue names it."""
        cdef uint8_t other[ENTRY_BYTES]
        queue.look(entry, other)
        return (
            get_i64(other) != physical_offset and get_i32(other + ENTRY_AT_SIZE) != PRE_BLANK_SIZE
            and matches(self.log, queue, entry, False)
        )

    cdef bint is_later(self, ConsumeQueue queue, int64_t entry, int64_t physical_offset) except -1:
        """Its queue names a later record that says this place: the topic was made again."""
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
        """The whole log was walked: what no record stands for goes, and all is on the disk. OSError."""
        cdef ConsumeQueue queue
        for queue in queues:
            self.append_held(queue)
            state = self.placed.get(queue)
            if state is None:
                cut_to(queue, possible_end(self.log, queue))
                if (
                    queue.end_entry > queue.min_entry
                    and not matches(self.log, queue, queue.end_entry - 1, True)
                ):
                    queue.min_entry = queue.end_entry
                    self.repair_log.record(
                        f"queue {queue.queue_id} of {queue.topic} has no message in the log any more"
                    )
                continue
            first, behind, mended, lost = state
            gone = max(queue.end_entry - behind, 0)
            cut_to(queue, behind)
            queue.min_entry = first
            queue.max_physical, queue.min_physical = queue.last_end(), -1
            queue.visible = queue.next_entry = queue.end_entry
            if mended or gone or lost:
                sync(queue)
                self.repair_log.record(
                    f"queue {queue.queue_id} of {queue.topic} was built again from the log: "
                    f"{mended} entries put right, {gone} cut, "
                    f"{lost} of messages that are lost"
                )


cdef bint matches(CommitLog log, ConsumeQueue queue, int64_t entry, bint gone) except -1:
    """Whether an entry points to the record that it is for; a blank points to none, a light queue's record
    names another one. `gone`: the answer for a record below the log's start."""
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
    return (
        view.queue_id == queue.queue_id and view.queue_offset == entry
        and view.topic.length == len(topic)
        and memcmp(view.topic.at, PyBytes_AS_STRING(topic), len(topic)) == 0
    )


cdef int64_t possible_end(CommitLog log, ConsumeQueue queue) except -1:
    """Behind the last entry that may once have been one: of a record below the log's end, or a blank."""
    cdef uint8_t at[ENTRY_BYTES]
    cdef int64_t entry = queue.end_entry, size
    while entry > queue.min_entry and queue.look(entry - 1, at):
        size = get_i32(at + ENTRY_AT_SIZE)
        if size == PRE_BLANK_SIZE or (size > 0 and 0 <= get_i64(at) <= log.written - size):
            break
        entry -= 1
    return entry


cdef bint is_valid_entry(int64_t entry, int64_t physical_offset) noexcept:
    """Each message before it in its queue had a record of its own in the log before it."""
    return 0 <= entry <= physical_offset // RECORD_FIXED_BYTES


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


cdef int restart_queue(ConsumeQueue queue, int64_t entry) except -1:
    """Nothing that stands there is of use: the queue begins at `entry`."""
    cdef Segment file
    for file in queue.files:
        file.close()
        os.unlink(file.path)
    queue.files = []
    queue.begin_at(entry)
    return 0


cdef int cut_to(ConsumeQueue queue, int64_t entry) except -1:
    """Zero the entries from `entry` on; files that hold none any more go, the first one stays."""
    cdef Segment file
    while len(queue.files) > 1 and (<Segment> queue.files[-1]).base >= entry * ENTRY_BYTES:
        file = queue.files.pop()
        file.close()
        os.unlink(file.path)
        queue.end_entry = min(queue.end_entry, file.base // ENTRY_BYTES)
    while queue.end_entry > entry:
        memset(<uint8_t *> queue.entry_at(queue.end_entry - 1), 0, ENTRY_BYTES)
        queue.end_entry -= 1
        queue.dirty = True
    queue.next_entry = queue.end_entry
    return 0


cdef int sync(ConsumeQueue queue) except -1:
    """Every file, not only those that are appended to."""
    cdef Segment file
    cdef int status
    for file in queue.files:
        status = file.sync_map(file.size) if file.map is not NULL else file.sync_closed()
        if status < 0:
            raise OSError(-status, os.strerror(-status), file.path)
    return 0
