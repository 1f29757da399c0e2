"""Recovery: finds the end of the log and makes queues and index agree with it.

Order: walk the records from a safe offset (each with its CRC and its own offset checked) and add missing
queue and index entries on the way; fill gaps of damaged records; truncate the log at its end and zero the
rest; only then truncate queues and index. Safe offsets: after a clean stop the newest record that a queue
has; after a crash the newest segment that starts before the checkpoint; if files have changed, the start of
the log.
"""

from libc.stdint cimport int64_t, uint8_t, uintptr_t
from libc.string cimport memchr

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.queue_check cimport QueueRebuild, matches
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.store.recovery.log_salvage cimport fill_gap, next_valid_record
from firearrow._native.store.log.record cimport RECORD_BLANK, RECORD_CUT, RECORD_OK, RecordView
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.recovery.untrusted_tail cimport truncate_unsynced_keys, truncate_unsynced_entries

from firearrow._native.store.files.errors import StoreDamaged

PROGRESS_BYTES = 256 << 20
ANY_TIME_MS = 1 << 62
cdef enum:
    SECTOR_BYTES = 512


cdef class Recovery:
    """`known_end`: the log is known to have reached this offset; `known_ms`: records stored up to this time
    are known to be on the disk. An invalid record before these, with valid ones after it, is damage; any
    other one starts the torn tail."""

    cdef CommitLog log
    cdef Dispatch dispatch
    cdef object repair_log, progress
    cdef bint clean, check_crc
    cdef int64_t known_end, known_ms, newest_ms, start, filled

    def __cinit__(
        self, CommitLog log not None, Dispatch dispatch not None, checkpoint, repair_log not None, bint clean,
        bint check_crc, progress,
    ):
        self.log, self.dispatch, self.repair_log, self.progress = log, dispatch, repair_log, progress
        self.clean, self.check_crc = clean, check_crc
        self.known_ms = (checkpoint.physic_ms or ANY_TIME_MS) if clean else checkpoint.safe_ms
        self.known_end = repair_log.highest_offset

    cdef int64_t run(self, int64_t start, int64_t indexed) except -1:
        self.start = start
        self.dispatch.gaps = self.dispatch.late_starts = self.filled = 0
        self.dispatch.kinds_changed = False
        return self.walk(start, indexed)

    cdef int64_t walk(self, int64_t at, int64_t indexed) except -1:
        """Add missing entries for each valid record from `at` on; returns the end of the log."""
        cdef RecordView view
        cdef int state
        cdef int64_t reported = at, next_offset
        while True:
            state = self.log.look(at, self.check_crc, &view)
            if state == RECORD_BLANK:
                at = (<Segment> self.log.segment_at(at)).base + self.log.segment_bytes
                continue
            if (
                state != RECORD_OK
                or view.physical_offset != at
                or is_torn(self.log, &view)
                or (not self.clean and has_hole(&view))
            ):
                next_offset = self.beyond(at)
                if next_offset < 0:
                    return at
                at = next_offset
                continue
            self.newest_ms = max(self.newest_ms, view.store_time)
            self.dispatch.recovered(&view, indexed)
            at += view.size
            if self.progress is not None and at - reported >= PROGRESS_BYTES:
                reported = at
                low, high = self.log.min_offset, self.log.ends
                self.progress(f"recovering: {(at - low) >> 20} of {(high - low) >> 20} MiB of the log")

    cdef int64_t beyond(self, int64_t at) except -2:
        """Fill the gap at an invalid record and return where the log continues; -1 if the log ends here."""
        cdef RecordView view
        cdef int64_t end = next_valid_record(self.log, at, &view)
        if end < 0:
            return -1
        if at >= self.known_end and not self.newest_ms <= view.store_time <= self.known_ms:
            return -1
        fill_gap(self.log, at, end, self.newest_ms, self.repair_log)
        self.filled += end - at
        self.dispatch.lost(end - at)
        return end

    cdef int truncate_log(self, int64_t end) except -1:
        """End the log here. Copy the removed bytes unless they are only a torn record."""
        cdef RecordView view
        cdef Segment segment
        if end < self.known_end or next_valid_record(self.log, end, &view) >= 0:
            copies = []
            for segment in self.log.segments:
                if segment.base + segment.size > end:
                    position = max(end - segment.base, 0)
                    copies.append(self.repair_log.save_copy(segment.path, position, segment.size - position))
            kept = ", ".join(copy for copy in copies if copy) or "none, all bytes are zero"
            reached = f", which had reached {self.known_end}," if end < self.known_end else ""
            self.repair_log.record(
                f"{self.log.folder}{reached} is truncated at {end}: later records cannot be used; "
                f"copies: {kept}"
            )
        self.log.truncate(end)
        return 0

    cdef int cut_log(self, int64_t at) except -1:
        """End the log at a record or blank before its end, and keep copies of what comes after it.
        StoreDamaged: none begins there."""
        cdef RecordView view
        cdef Segment segment
        cdef int state = RECORD_CUT
        if at >= self.log.min_offset:
            state = self.log.look(at, True, &view)
        if state != RECORD_BLANK and (state != RECORD_OK or view.physical_offset != at):
            raise StoreDamaged(
                f"{self.log.folder} cannot be truncated at {at}: no record begins there; start with an empty "
                "store"
            )
        copies = []
        for segment in self.log.segments:
            if segment.base + segment.size > at:
                position = max(at - segment.base, 0)
                copies.append(self.repair_log.save_copy(segment.path, position, segment.size - position))
        self.repair_log.record(
            f"{self.log.folder} is truncated at {at}, as it was asked for; copies of what came later: "
            + ", ".join(copy for copy in copies if copy)
        )
        self.known_end = min(self.known_end, at)
        return 0


def recover(
    CommitLog log not None,
    Dispatch dispatch not None,
    checkpoint,  # type: Checkpoint
    repair_log not None,  # type: RepairLog
    *,
    bint clean,
    bint sealed,
    on_unclean,  # type: Callable[[], None]
    bint check_crc,
    progress,  # type: Callable[[str], None] | None
    int64_t truncate_at=-1,
):
    # type: (...) -> tuple[int, int]
    """Make log, queues and index of an opened store agree: (end of the log, store time of the newest record
    walked). StoreDamaged, OSError.

    `sealed`: the checkpoint's offset is where the log ended at a clean stop. `on_unclean()` is called before
    queues and index are rebuilt: if that is killed, the next start must not trust the checkpoint.
    `truncate_at`: where the log is to end if it is longer; -1: nowhere.
    """
    cdef Recovery recovery = Recovery(log, dispatch, checkpoint, repair_log, clean, check_crc, progress)
    cdef int64_t end, start, synced = log.min_offset
    cdef ConsumeQueue queue
    if not log.bases:
        forget_all(log, dispatch, checkpoint)
        return 0, 0
    if sealed:
        recovery.known_end, recovery.known_ms = max(checkpoint.confirm_offset, repair_log.highest_offset), -1
    elif clean:
        recovery.known_end = max(
            [queue.max_physical for queue in dispatch.queues.values()] + [repair_log.highest_offset]
        )
    end = -1
    if not repair_log.rebuild:
        start = safe_start(log, dispatch, checkpoint, clean)
        synced = start
        if not clean:
            start = trusted(log, dispatch, start)
        end = recovery.run(start, newest_key(dispatch))
        if recovery.filled or dispatch.gaps or (dispatch.late_starts and start > log.min_offset) or (
            not sealed and checkpoint.safe_ms > recovery.newest_ms
        ):
            repair_log.rebuild = True
    if repair_log.rebuild:
        on_unclean()
        dispatch.make_files()
        while True:
            if dispatch.index is not None:
                dispatch.index.remove_from(0)
            dispatch.queue_rebuild = QueueRebuild(log, repair_log)
            end = recovery.run(log.min_offset, -1)
            if not dispatch.kinds_changed:
                break
    if 0 <= truncate_at < end:
        recovery.cut_log(truncate_at)
        on_unclean()
        end = truncate_at
        recovery.log.truncate(end)
    else:
        recovery.truncate_log(end)
    if dispatch.queue_rebuild is not None:
        dispatch.queue_rebuild.finish(list(dispatch.queues.values()))
        dispatch.queue_rebuild = None
        dispatch.pending.suspended = False
    dispatch.recent, dispatch.plain_topics = None, frozenset()
    for queue in dispatch.queues.values():
        queue.truncate(end)
        queue.correct_min(log.min_offset)
    if dispatch.index is not None and dispatch.index.last[1] >= end:
        dispatch.index.remove_from(end)
    if not clean:
        log.sync_from(synced)
    log.trusted = min(recovery.start, end) if check_crc else end
    return end, recovery.newest_ms


cdef int64_t trusted(CommitLog log, Dispatch dispatch, int64_t start) except -1:
    """Truncate queues and index to what the checkpoint guarantees; returns from where to walk the log.
    OSError."""
    cdef ConsumeQueue queue
    for queue in dispatch.queues.values():
        truncate_unsynced_entries(queue, start)
    if dispatch.index is None:
        return start
    return max(truncate_unsynced_keys(dispatch.index, start), <int64_t> log.min_offset)


def forget_all(CommitLog log, Dispatch dispatch, checkpoint):
    """Delete queues and index of a log that never reached the disk. StoreDamaged: the checkpoint knows of
    messages."""
    if checkpoint.confirm_offset > 0 or checkpoint.physic_ms > 0:
        raise StoreDamaged(
            f"{log.folder} is empty, but it held messages: restore or mount it, "
            f"or move the checkpoint away to start without them"
        )
    for topic, _ in list(dispatch.queues):
        dispatch.forget(topic)
    if dispatch.index is not None:
        dispatch.index.remove_from(0)


cdef int64_t newest_key(Dispatch dispatch) except -2:
    return -1 if dispatch.index is None or dispatch.index.empty else dispatch.index.last[1]


def mismatched_queue(CommitLog log not None, Dispatch dispatch not None):
    # type: (...) -> ConsumeQueue | None
    """A queue whose last or middle entry does not point to its record; None if there is none."""
    cdef ConsumeQueue queue
    for queue in dispatch.queues.values():
        if queue.end_entry > queue.min_entry:
            middle = (queue.min_entry + queue.end_entry) // 2
            if not matches(log, queue, queue.end_entry - 1, True) or not matches(log, queue, middle, True):
                return queue
    return None


cdef int64_t safe_start(CommitLog log, Dispatch dispatch, checkpoint, bint clean) except -1:
    """From where to walk the log if nothing has changed: see the module's docstring."""
    cdef int64_t newest = -1
    cdef RecordView view
    cdef ConsumeQueue queue
    if clean:
        for queue in dispatch.queues.values():
            last = []
            if queue.visible > queue.min_entry and queue.max_physical > newest:
                last = queue.entries(queue.visible - 1, 1)
            if last:
                newest = max(newest, last[0][0])
        if (
            newest >= log.min_offset
            and log.look(newest, True, &view) == RECORD_OK
            and view.physical_offset == newest
        ):
            return newest
    for base in reversed(log.bases):
        if log.look(base, True, &view) == RECORD_OK and view.physical_offset == base and view.store_time > 0:
            if clean and base <= max(newest, 0):
                return base
            if (
                not clean
                and view.store_time <= checkpoint.safe_ms
                and base <= (checkpoint.confirm_offset or base)
            ):
                return base
    return log.min_offset


cdef bint is_torn(CommitLog log, const RecordView *view) except -1:
    """Whether the end of the last record was never written: topic and properties have no CRC, but they never
    end in zeros."""
    cdef RecordView following
    cdef int64_t end = view.physical_offset + view.size
    cdef bint empty = view.properties.length > 0 and view.properties.at[view.properties.length - 1] == 0
    if not empty and memchr(view.topic.at, 0, view.topic.length) is NULL:
        return False
    state = log.look(end, False, &following)
    return state != RECORD_BLANK and (state != RECORD_OK or following.physical_offset != end)


cdef bint has_hole(const RecordView *view) noexcept:
    """Whether a sector of the properties was never written although later ones were, as after a power cut."""
    cdef const uint8_t *end = view.properties.at + view.properties.length
    cdef const uint8_t *at = view.properties.at + (-<uintptr_t> view.properties.at) % SECTOR_BYTES
    cdef const uint8_t *stop
    while at < end:
        stop = min(at + SECTOR_BYTES, end)
        while at < stop and at[0] == 0:
            at += 1
        if at == stop:
            return True
        at += (-<uintptr_t> at) % SECTOR_BYTES or SECTOR_BYTES
    return False
