"""Follower: appends the log that a master sends (see follower.pxd)."""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memmove

from firearrow._native.base.endian cimport get_i32, get_i64
from firearrow._native.base.hash cimport whole_crc
from firearrow._native.store.files.layout cimport (
    AT_MAGIC, MAGIC_BLANK, PRE_BLANK_SIZE, RECORD_END_BYTES, SYS_INNER_BATCH, SYS_PREPARED, SYS_ROLLBACK,
    SYS_TRANSACTION,
)
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.log.batch_consume_queue cimport is_batch, messages_of, next_offset, put_batch
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.dispatcher cimport Dispatch, multi_entries
from firearrow._native.store.log.queue_check cimport is_lite, is_valid_batch, is_valid_entry
from firearrow._native.store.log.record cimport (
    RECORD_BAD_CRC, RECORD_BAD_MAGIC, RECORD_BLANK, RECORD_CUT, RECORD_OK, check_record, scan_properties,
)

import os

from firearrow._native.store.log.results import PutRefused, WriteRefusal

cdef enum:
    HEADER_BYTES = 12
    WIRE_BYTES = 1 << 19
    RECORD_BYTES_MAX = 1 << 28            # of one record or blank
    # messages that a master may have lost, as in recovery; after more, the queue starts again
    GAP_MAX = 10000
    NONE = -1                             # nothing whole is pending
    COMMIT_FIRST = 0

FAULTS = {RECORD_BAD_MAGIC: "it has no magic number", RECORD_BAD_CRC: "its body does not match its CRC"}


class FollowError(Exception):
    """What a master sends cannot be followed; the text states why."""
    pass


class RecordDamaged(FollowError):
    """Bytes that are not a valid record: they are not appended. `offset`: where they begin."""

    # type: offset: int
    def __init__(self, offset, fault):
        super().__init__(f"the master sent no valid record at {offset}: {fault}")
        self.offset = offset


class RecordDoubted(FollowError):
    """A valid record that does not continue its queue, seen for the first time: ask for it again."""

    # type: offset: int
    def __init__(self, offset, entry, topic, queue_id, expected):
        super().__init__(
            f"the record at {offset} has offset {entry} in queue {queue_id} of {topic}, not {expected}"
        )
        self.offset = offset


@cython.final
cdef class Follower:
    """Appends a master's log to `store`, which takes no other messages (`store.write_refusal`).

    A reader of the socket writes into `wire` and calls `received`, then `append` and a commit, until `append`
    returns False."""

    def __cinit__(self, MessageStore store not None):
        # type: (object) -> None
        self.store = store
        self.wire = bytearray(WIRE_BYTES)
        self.touched = set()
        self.doubted_offset = -1
        store.write_refusal = WriteRefusal.SLAVE

    def __dealloc__(self):
        PyMem_Free(self.pending)

    # ---- pieces ----

    @property
    def is_empty(self):
        # type: (...) -> bool
        """The log has no byte yet, also if it is known where it begins."""
        return not self.store.log.segments

    def begin(self, int64_t min_offset, int64_t end):
        # type: (...) -> int
        """Forget unfinished bytes; returns the offset to ask for: the end of the log, of an empty one the
        master's `min_offset`, or 1 if that is 0 and the master has messages (`end` > 0), because a request
        for 0 gets the last file only. FollowError: the master's files have another size."""
        cdef CommitLog log = self.store.log
        self.header_bytes = self.pending_bytes = 0
        self.piece_left = 0
        if log.segments:
            self.next_offset = log.written
            return log.written
        if min_offset % log.segment_bytes or min_offset < 0:
            raise FollowError(
                f"the master's log begins at {min_offset}, which is not a multiple of our "
                f"mappedFileSizeCommitLog={log.segment_bytes}: set the master's value"
            )
        log.written = log.flushed = self.store.reader.confirmed = self.next_offset = min_offset
        if min_offset == 0 and end > 0:
            self.keep(b"\0", 1)           # a record's size is less than 16 MiB or so: its first byte is 0
            self.next_offset = 1
        return self.next_offset

    def received(self, Py_ssize_t length):
        # type: (...) -> None
        """Take `length` bytes of `wire`. FollowError: an offset or size that cannot be; close the
        connection."""
        cdef const uint8_t *at = <const uint8_t *> PyByteArray_AS_STRING(self.wire)
        cdef const uint8_t *end
        cdef Py_ssize_t part
        if not 0 <= length <= len(self.wire):
            raise ValueError("more bytes than the buffer has")
        end = at + length
        while at < end:
            if self.piece_left > 0:
                part = <Py_ssize_t> min(<int64_t> (end - at), self.piece_left)
                self.keep(at, part)
                self.piece_left -= part
                self.next_offset += part
            else:
                part = min(end - at, <Py_ssize_t> (HEADER_BYTES - self.header_bytes))
                memcpy(self.header + self.header_bytes, at, part)
                self.header_bytes += <int> part
                if self.header_bytes == HEADER_BYTES:
                    self.begin_piece()
            at += part

    def take(self, int64_t offset, const uint8_t[::1] data not None):
        # type: (int, bytes | memoryview) -> None
        """Take bytes of the log that a frame of FireArrow's wire brought, in the place of `received`.
        FollowError: they are not the next ones, or cross the end of a file."""
        cdef int64_t left = self.store.log.segment_bytes - self.next_offset % self.store.log.segment_bytes
        if offset != self.next_offset:
            raise FollowError(f"the master sent offset {offset}, but {self.next_offset} is next")
        if not 0 < len(data) <= left:
            raise FollowError(
                f"the master sent {len(data)} bytes at {offset}, but its file has {left} bytes left: "
                "both need the same mappedFileSizeCommitLog"
            )
        self.keep(&data[0], len(data))
        self.next_offset += len(data)
        self.pieces += 1

    cdef int begin_piece(self) except -1:
        cdef int64_t offset = get_i64(self.header)
        cdef int32_t size = get_i32(self.header + 8)
        cdef int64_t left = self.store.log.segment_bytes - self.next_offset % self.store.log.segment_bytes
        self.header_bytes = 0
        if offset != self.next_offset:
            raise FollowError(f"the master sent offset {offset}, but {self.next_offset} is next")
        if not 0 <= size <= left:
            raise FollowError(
                f"the master sent a piece of {size} bytes at {offset}, but its file has {left} bytes left: "
                "both need the same mappedFileSizeCommitLog"
            )
        self.pieces += size > 0
        self.heartbeats += size == 0
        self.piece_left = size
        return 0

    cdef int keep(self, const uint8_t *at, Py_ssize_t length) except -1:
        """Add bytes to `pending`. MemoryError."""
        cdef Py_ssize_t needed = self.pending_bytes + length
        cdef uint8_t *larger
        if needed > self.pending_capacity:
            needed = max(needed, 2 * self.pending_capacity, <Py_ssize_t> WIRE_BYTES)
            larger = <uint8_t *> PyMem_Realloc(self.pending, needed)
            if larger is NULL:
                raise MemoryError()
            self.pending, self.pending_capacity = larger, needed
        memcpy(self.pending + self.pending_bytes, at, length)
        self.pending_bytes += length
        return 0

    # ---- records ----

    def append(self):
        # type: (...) -> bool
        """Stage the whole records that are here. True: commit, and call it again. FollowError, after which
        the records before are staged; OSError: no space for a queue's or the index's entry."""
        cdef Py_ssize_t used = 0
        cdef int64_t size = NONE
        try:
            while used < self.pending_bytes:
                size = self.stage_next(self.pending + used, self.pending_bytes - used)
                if size <= 0:
                    break
                used += size
        finally:
            if used:
                self.pending_bytes -= used
                memmove(self.pending, self.pending + used, self.pending_bytes)
        return size == COMMIT_FIRST

    cdef int64_t stage_next(self, const uint8_t *at, Py_ssize_t available) except -2:
        """Stage the record or blank that begins at `at`: its size, NONE or COMMIT_FIRST."""
        cdef CommitLog log = self.store.log
        cdef int64_t physical = log.staged_end()
        cdef int64_t left = log.segment_bytes - physical % log.segment_bytes
        cdef RecordView view
        cdef int state
        if available < RECORD_END_BYTES:
            return NONE
        if get_i32(at + AT_MAGIC) == MAGIC_BLANK:
            return self.stage_blank(at, physical, available)
        state = check_record(at, available, min(left, <int64_t> RECORD_BYTES_MAX), True, &view)
        if state == RECORD_CUT:
            return NONE
        if state != RECORD_OK:
            raise RecordDamaged(physical, FAULTS.get(state, "its lengths do not add up"))
        if view.physical_offset != physical:
            raise RecordDamaged(physical, f"it says that its offset is {view.physical_offset}")
        return self.stage_record(at, &view)

    cdef int64_t stage_blank(self, const uint8_t *at, int64_t physical, Py_ssize_t available) except -2:
        """Stage what fills the end of a file, as it comes."""
        cdef CommitLog log = self.store.log
        cdef int64_t size = get_i32(at)
        cdef int64_t left = log.segment_bytes - physical % log.segment_bytes
        if size != left or size > RECORD_BYTES_MAX:
            raise RecordDamaged(physical, f"a blank of {size} bytes, where the file has {left} bytes left")
        if size > available:
            return NONE
        memcpy(log.stage(physical, size), at, size)
        return size

    cdef int64_t stage_record(self, const uint8_t *at, const RecordView *view) except -2:
        """Stage bytes, queue entry and keys, as a put does: what fails afterwards needs no new disk block."""
        cdef CommitLog log = self.store.log
        cdef Dispatch dispatch = self.store.dispatch
        cdef int transaction = view.sys_flag & SYS_TRANSACTION
        cdef int64_t staged = log.staging_bytes
        cdef ConsumeQueue queue = None
        cdef Properties properties
        if transaction != SYS_PREPARED and transaction != SYS_ROLLBACK:
            queue = dispatch.find_queue(&view.topic, view.queue_id)
        if queue is not None and view.sys_flag & SYS_INNER_BATCH and not is_batch(queue):
            if log.staging_bytes:
                return COMMIT_FIRST
            self.store.set_batch_topic(queue.topic, True)
            dispatch.recent = None
            queue = dispatch.find_queue(&view.topic, view.queue_id)
        if queue is not None and next_offset(queue) != view.queue_offset:
            if not self.move_queue(queue, at, view):
                return COMMIT_FIRST
            queue = dispatch.find_queue(&view.topic, view.queue_id)
        if queue is not None and is_batch(queue) and messages_of(view) == 0:
            raise RecordDamaged(view.physical_offset, "the numbers of its inner batch are wrong")
        scan_properties(&view.properties, &properties)
        if dispatch.lmq and properties.multi_offsets.length and not self.start_lmqs(&properties):
            return COMMIT_FIRST
        try:
            memcpy(log.stage(log.staged_end(), view.size), at, view.size)
            if transaction != SYS_ROLLBACK:
                self.dispatch_record(queue, &properties, view)
        except BaseException:
            log.staging_bytes = staged
            raise
        self.store.staged_ms = max(self.store.staged_ms, view.store_time)
        self.records += 1
        if queue is not None:
            self.touched.add(queue)
        return view.size

    cdef int dispatch_record(
        self, ConsumeQueue queue, const Properties *properties, const RecordView *view
    ) except -1:
        """Stage queue entry and keys; without the entries of its LMQs where these do not continue there."""
        cdef Dispatch dispatch = self.store.dispatch
        cdef bint lmq = dispatch.lmq
        if queue is not None and is_batch(queue):
            put_batch(
                queue.slot_at(queue.next_entry), view.store_time, view.queue_offset, messages_of(view)
            )
        try:
            dispatch.stage(queue, &view.topic, properties, view.physical_offset, view.size, view.store_time)
        except PutRefused:
            self.skipped_lmqs += 1
            dispatch.lmq = False
            try:
                dispatch.stage(
                    queue, &view.topic, properties, view.physical_offset, view.size, view.store_time
                )
            finally:
                dispatch.lmq = lmq
        return 0

    # ---- queues that do not continue ----

    cdef bint move_queue(self, ConsumeQueue queue, const uint8_t *at, const RecordView *view) except -1:
        """Make the record's offset the next one of its queue. False: the queue has staged entries."""
        cdef Dispatch dispatch = self.store.dispatch
        cdef int64_t entry = view.queue_offset
        cdef bint is_new = not queue.files and queue.end_entry == 0
        cdef bint valid = is_valid_entry(entry, view.physical_offset)
        if is_batch(queue):
            valid = is_valid_batch(entry, view.physical_offset)
        if queue.next_entry != queue.end_entry:
            return False
        if not valid:
            raise RecordDamaged(view.physical_offset, f"it says that its queue's offset is {entry}")
        # a new queue at 0: the topic was deleted and created again; a new one here: the log began earlier
        if entry > 0 and not (is_new and self.store.log.start() > 0):
            self.believe(at, view, queue)
        if next_offset(queue) < entry <= next_offset(queue) + GAP_MAX and not is_new:
            if not is_batch(queue):
                self.fill_gap(queue, view)
            return True
        if not is_new:
            dispatch.forget(os.fsencode(queue.topic), queue.queue_id)
            queue = dispatch.find_queue(&view.topic, view.queue_id)
        if entry > 0 and not is_batch(queue):
            queue.begin_at(entry)
            dispatch.count_again()
        return True

    cdef int believe(self, const uint8_t *at, const RecordView *view, ConsumeQueue queue) except -1:
        """RecordDoubted, unless the same bytes came before: no CRC covers where a record belongs."""
        cdef uint32_t crc = whole_crc(at, view.size)
        if self.doubted_offset != view.physical_offset or self.doubted_crc != crc:
            self.doubted_offset, self.doubted_crc = view.physical_offset, crc
            raise RecordDoubted(
                view.physical_offset, view.queue_offset, queue.topic, queue.queue_id, next_offset(queue)
            )
        return 0

    cdef int fill_gap(self, ConsumeQueue queue, const RecordView *view) except -1:
        """Give messages that the master has lost entries without a record, as recovery does. OSError."""
        while queue.end_entry < view.queue_offset:
            queue.append(view.physical_offset - 1, PRE_BLANK_SIZE, 0)
            if self.store.confirm_later:
                self.store.dispatch.wait(<void *> queue, view.physical_offset)
            else:
                queue.visible += 1
        return 0

    cdef bint start_lmqs(self, const Properties *properties) except -1:
        """Begin LMQs that the record names where it states, if they are new. A lite topic's at 0 has expired
        at the master and was created again. False: such a queue has staged entries."""
        cdef Dispatch dispatch = self.store.dispatch
        cdef ConsumeQueue queue
        for name, entry in multi_entries(properties):
            queue = dispatch.queue_of(name, 0, True)
            if entry == 0 and queue.next_entry > 0 and is_lite(queue):
                if queue.next_entry != queue.end_entry:
                    return False
                self.touched.discard(queue)
                dispatch.forget(name, 0, False)
            elif entry > 0 and queue.next_entry == 0 and not queue.files:
                queue.begin_at(entry)
                dispatch.count_again()
        return True

    # ---- for the slave ----

    def drain_queues(self):
        # type: (...) -> list[tuple[str, int]]
        """Topic and id of the queues that got entries since the last call."""
        cdef ConsumeQueue queue
        found = [(queue.topic, queue.queue_id) for queue in self.touched]
        self.touched.clear()
        return found

    def last_record(self):
        # type: (...) -> tuple[int, bytes] | None
        """Offset and bytes of the newest record; None if the log has none."""
        cdef CommitLog log = self.store.log
        cdef RecordView view
        cdef int64_t available = 0, at = self.newest_entry(), found = -1
        cdef int state
        while at < log.written:
            state = log.look(at, False, &view)
            if state == RECORD_BLANK:
                at = (<Segment> log.segment_at(at)).base + log.segment_bytes
            elif state == RECORD_OK and view.physical_offset == at:
                found = at
                at += view.size
            else:
                break
        if found < 0 or log.look(found, False, &view) != RECORD_OK:
            return None
        return found, (<const char *> log.bytes_at(found, &available))[:view.size]

    def newest_entry(self):
        """Offset of the newest record with a queue, or the start of the last file with records."""
        cdef ConsumeQueue queue
        cdef int64_t newest = -1
        for queue in self.store.dispatch.queues.values():
            if queue.end_entry > queue.min_entry and queue.max_physical > newest:
                last = queue.entries(queue.end_entry - 1, 1)
                if last and self.store.log.start() <= last[0][0] < self.store.log.written:
                    newest = max(newest, <int64_t> last[0][0])
        if newest >= 0:
            return newest
        bases = [base for base in self.store.log.bases if base < self.store.log.written]
        return bases[-1] if bases else self.store.log.written
