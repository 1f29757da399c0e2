"""ConsumeQueue: the entries of one topic and queue (see consume_queue.pxd).

Reads the log only for store times.
"""

import os
import sys
import threading
import time

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
cimport cython
from libc.errno cimport EIO
from libc.string cimport memcpy, memset

from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.key_index cimport keys_of
from firearrow._native.store.files.layout cimport (
    BATCH_ENTRY_BYTES, ENTRY_AT_SIZE, ENTRY_AT_TAGS, ENTRY_BYTES, PRE_BLANK_SIZE,
)
from firearrow._native.store.files.mmap_budget cimport Mappings, sync_file
from firearrow._native.store.log.record cimport store_time_at
from firearrow._native.store.files.segment cimport Segment, unmappings

from firearrow._native.store.files.segment_files import rolled_files

cdef enum:
    RESERVE_STEP_MAX = 262144
    BUFFERED_MAX = 64                     # entries of a queue without files

cdef list NO_FILES = []                   # of all queues that have none: it never changes

# type: FILE_SIZE_KEYS: dict[int, str]
FILE_SIZE_KEYS = {
    ENTRY_BYTES: "mappedFileSizeConsumeQueue", BATCH_ENTRY_BYTES: "mapperFileSizeBatchConsumeQueue",
}

# type: ENTRY_FIELDS: list[tuple[str, str]]
ENTRY_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]


cdef class PendingFiles:
    """Queues of lite topics whose entries are in memory only, since their files are not made yet."""

    def __cinit__(self):
        self.queues, self.turn, self.retired, self.lock = [], [], [], threading.Lock()

    def __len__(self):
        # type: (...) -> int
        return len(self.queues) + len(self.turn)

    def clear(self):
        # type: (...) -> None
        """Call at the end: it and its queues refer to each other."""
        self.queues, self.turn, self.retired = [], [], []

    cdef bint begin_turn(self, bint all) except -1:
        """Let the queues of now have their turn, if the last turn has ended. `all`: also if not."""
        if self.turn and not all:
            return False
        queues, self.queues, self.retired = self.queues, [], []
        self.turn.extend(queues)
        return True

    cdef bint make(self, double until) except -1:
        """Make the files of the turn; whether it has ended by this monotonic time. OSError: it has not."""
        cdef ConsumeQueue queue
        while self.turn and time.monotonic() < until:
            queue = self.turn[-1]
            queue.make_files()
            self.turn.pop()
        return not self.turn


@cython.no_gc  # a full collection would look at each of a million
cdef class ConsumeQueue:
    """The entries of one topic and queue; readers see those below `visible`."""

    def __cinit__(
        self, str parent not None, str topic, int32_t queue_id, int64_t file_bytes, Mappings mappings=None,
        int32_t entry_bytes=ENTRY_BYTES,
    ):
        self.entry_bytes = entry_bytes
        self.parent = parent
        self.topic = sys.intern(topic)        # one string for all queues of a topic
        cdef bytes name = os.fsencode(topic)
        self.topic_key_hash = keys_of(name, len(name))
        self.queue_id = queue_id
        self.reply_batch_number = -1
        self.file_bytes = (file_bytes + self.entry_bytes - 1) // self.entry_bytes * self.entry_bytes
        self.readonly = mappings is None
        self.mappings = mappings
        self.min_physical = -1
        self.files = NO_FILES

    @property
    def folder(self):
        # type: (...) -> str
        return os.path.join(self.parent, self.topic, str(self.queue_id))

    def folders(self):
        # type: (...) -> list[str]
        """The folders that a new file changes; of a batch queue also that of all: the first one makes it."""
        topic_folder = os.path.join(self.parent, self.topic)
        found = [self.folder, topic_folder, self.parent]
        return found if self.entry_bytes == ENTRY_BYTES else [*found, os.path.dirname(self.parent)]

    def __fspath__(self):
        # type: (...) -> str
        """The folder: its files ask for it, since a million strings would take more memory than all else."""
        return self.folder

    # ---- opening ----

    @staticmethod
    def open_readonly(folder, int64_t file_bytes=0):
        # type: (str | PathLike[str], int) -> ConsumeQueue
        """Open `consumequeue/TOPIC/QUEUE` for reading, also while a broker writes; takes no lock. A context
        manager."""
        cdef ConsumeQueue queue
        folder = os.path.abspath(os.fspath(folder))
        if file_bytes == 0:
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            file_bytes = os.path.getsize(os.path.join(folder, names[0])) if names else 6000000
        topic_folder, number = os.path.split(folder)
        parent, topic = os.path.split(topic_folder)
        queue = ConsumeQueue(parent, topic, int(number), file_bytes)
        key = FILE_SIZE_KEYS[queue.entry_bytes]
        queue.load([position for position, _ in rolled_files(folder, queue.file_bytes, key)])
        return queue

    def close(self):
        # type: (...) -> None
        for file in self.files:
            file.close()
        self.files = []

    def __enter__(self):
        # type: (...) -> ConsumeQueue
        return self

    def __exit__(self, *_):
        # type: (*object) -> None
        self.close()

    cdef int load(self, positions) except -1:
        """Open the files that begin there, and find the end of the entries; reads only the ends of files."""
        self.files = [Segment(self, position, self.file_bytes) for position in positions]
        if self.files:
            self.min_entry = (<Segment> self.files[0]).base // self.entry_bytes
        self.end_entry = self.min_entry
        self.find_end()
        self.visible = self.next_entry = self.synced_entry = self.end_entry
        return 0

    cdef int find_end(self) except -1:
        """Set the end: the first invalid entry of the last file that has entries; later files are empty."""
        cdef uint8_t last[ENTRY_BYTES]
        cdef Segment file
        cdef int64_t count
        self.max_physical = 0
        for file in reversed(self.files):
            file.open_file(False, False)
            try:
                count = self.valid_entries(file)
                if count > 0:
                    file.read_at((count - 1) * self.entry_bytes, last, ENTRY_BYTES)
            finally:
                file.release_fd()
            file.reserved = count * self.entry_bytes
            if count > 0:
                self.end_entry = file.base // self.entry_bytes + count
                if get_i32(last + ENTRY_AT_SIZE) != PRE_BLANK_SIZE:
                    self.max_physical = get_i64(last) + get_i32(last + ENTRY_AT_SIZE)
                return 0
        return 0

    cdef int64_t valid_entries(self, Segment file) except -1:
        """How many entries a file has: all before the first invalid one are valid. Steps that double, then a
        binary search: a lite topic has a few entries in a file for 300,000."""
        cdef uint8_t entry[ENTRY_BYTES]
        cdef int64_t low = 0, high = file.size // self.entry_bytes, middle
        while low < high:
            middle = min((low + high) // 2, 2 * low + 1)
            file.read_at(middle * self.entry_bytes, entry, ENTRY_BYTES)
            if get_i64(entry) >= 0 and get_i32(entry + ENTRY_AT_SIZE) > 0:
                low = middle + 1
            else:
                high = middle
        return low

    # ---- reading ----

    cdef Segment file_of(self, int64_t entry):
        cdef int64_t n, at = entry * self.entry_bytes
        cdef Segment file = <Segment> self.files[-1] if self.files else None
        if file is None or entry < 0:
            return None
        if at >= file.base:                   # appends and most reads: saves the division
            return file if at - file.base < self.file_bytes else None
        n = (at - (<Segment> self.files[0]).base) // self.file_bytes
        return (
            <Segment> self.files[n] if at >= (<Segment> self.files[0]).base
            and n < len(self.files) else None
        )

    cdef const uint8_t *entry_at(self, int64_t entry) except? NULL:
        cdef int64_t count
        return self.entries_at(entry, &count)

    cdef const uint8_t *entries_at(self, int64_t entry, int64_t *count) except? NULL:
        """Borrowed entries from `entry` to the end of its file or of the queue; NULL without an exception if
        there are none. OSError."""
        cdef Segment file
        count[0] = 0
        if self.buffer is not None and 0 <= entry < self.end_entry:
            count[0] = self.end_entry - entry
            return <const uint8_t *> PyByteArray_AS_STRING(self.buffer) + entry * self.entry_bytes
        file = self.file_of(entry) if entry < self.end_entry else None
        if file is None:
            return NULL
        self.ensure_mapped(file)
        count[0] = min(entries_below(self, file.base + file.size), self.end_entry) - entry
        return file.map + (entry * self.entry_bytes - file.base)

    cdef int ensure_mapped(self, Segment file) except -1:
        if file.map is NULL:
            if self.mappings is None:
                file.ensure_mapped(False)
            else:
                self.mappings.map(file)
        file.touched = True
        return 0

    cdef bint look(self, int64_t entry, uint8_t *to) except -1:
        """Copy one entry without mapping its file; False if it does not exist. OSError."""
        cdef Segment file
        cdef int status
        if self.buffer is not None and 0 <= entry < self.end_entry:
            memcpy(to, PyByteArray_AS_STRING(self.buffer) + entry * self.entry_bytes, ENTRY_BYTES)
            return True
        file = self.file_of(entry) if entry < self.end_entry else None
        if file is None:
            return False
        if file.map is not NULL:
            memcpy(to, file.map + entry * self.entry_bytes - file.base, ENTRY_BYTES)
            return True
        file.open_file(False, False)
        status = file.read_at(entry * self.entry_bytes - file.base, to, ENTRY_BYTES)
        file.release_fd()
        if status < 0:
            raise OSError(-status, os.strerror(-status), file.path)
        return True

    def entries(self, int64_t entry, int64_t count):
        # type: (...) -> list[tuple[int, int, int]]
        """(physical offset, record size, tags code) of up to `count` visible entries."""
        cdef const uint8_t *at
        found = []
        while len(found) < count and self.min_entry <= entry < self.visible:
            at = self.entry_at(entry)
            if at is NULL:
                break
            found.append((get_i64(at), get_i32(at + ENTRY_AT_SIZE), get_i64(at + ENTRY_AT_TAGS)))
            entry += 1
        return found

    @property
    def first_entry(self):
        # type: (...) -> int
        """First entry of the first file."""
        return (<Segment> self.files[0]).base // self.entry_bytes if self.files else 0

    def __len__(self):
        # type: (...) -> int
        return self.visible - self.min_entry

    def __iter__(self):
        # type: (...) -> Iterator[tuple[int, int, int]]
        cdef int64_t entry = self.min_entry
        while entry < self.visible:
            yield from self.entries(entry, 1024)
            entry += 1024

    def arrays(self):
        # type: (...) -> list[Any]
        """numpy views of the entries, one structured array per file: big-endian fields (ENTRY_FIELDS),
        nothing copied. A closed queue keeps its mappings while views exist."""
        import numpy

        dtype = numpy.dtype(ENTRY_FIELDS)
        views = []
        for file in self.files:
            whole = numpy.frombuffer(file, dtype)
            first = file.base // self.entry_bytes
            low, high = max(self.min_entry - first, 0), min(self.visible - first, len(whole))
            if low < high:
                views.append(whole[low:high])
        return views

    def offset_by_time(self, CommitLog log not None, int64_t timestamp_ms, bint upper=False):
        # type: (...) -> int
        """The first entry stored at or after a time (`upper`: the last one at or before it), within the
        queue."""
        cdef int64_t low = self.min_entry, high = self.visible, middle, stored
        while low < high:
            middle = (low + high) // 2
            stored = self.store_time(log, middle)
            if stored < timestamp_ms or (upper and stored == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(low - 1, self.min_entry) if upper else low

    def store_time(self, CommitLog log not None, int64_t entry):
        # type: (...) -> int
        """Store time (ms) of the entry's record; -1 if the entry or the record does not exist."""
        cdef const uint8_t *at = self.entry_at(entry) if self.min_entry <= entry < self.visible else NULL
        cdef const uint8_t *record
        cdef int64_t available = 0
        if at is NULL or get_i64(at) < log.start() or get_i64(at) + get_i32(at + ENTRY_AT_SIZE) > log.written:
            return -1
        record = log.bytes_at(get_i64(at), &available)
        return -1 if record is NULL or available < 91 else store_time_at(record)

    # ---- appending ----

    cdef uint8_t *next_slot(self) except NULL:
        """Reserve entry `next_entry` with its disk block; returns its current memory. OSError: nothing is
        reserved."""
        cdef uint8_t *slot = self.slot_at(self.next_entry)
        self.next_entry += 1
        return slot

    cdef int append(self, int64_t physical_offset, int32_t size, int64_t tags_code) except -1:
        """Append an entry; a reserved one needs no new disk block. OSError: the queue is as before."""
        cdef uint8_t *to = self.slot_at(self.end_entry)
        put_i64(to, physical_offset)
        put_i64(to + ENTRY_AT_TAGS, tags_code)
        put_i32(to + ENTRY_AT_SIZE, size)
        self.end_entry += 1
        if self.next_entry < self.end_entry:
            self.next_entry = self.end_entry
        self.max_physical = physical_offset + size
        if not self.dirty:
            self.mark_dirty()
        return 0

    cdef int mark_dirty(self) except -1:
        """Call after each change: the next sync looks only at queues in `changed`, of millions. Without files
        there is nothing to sync."""
        if not self.dirty and self.buffer is None:
            self.dirty = True
            if self.changed is not None:
                self.changed.append(self)
        return 0

    cdef uint8_t *slot_at(self, int64_t entry) except NULL:
        """Memory of an entry at the end. OSError."""
        if self.tail_seen != unmappings or not self.tail_from <= entry < self.tail_until:
            self.extend_to(entry)
        return self.tail + (entry - self.tail_from) * self.entry_bytes

    cdef int extend_to(self, int64_t entry) except -1:
        """Move the tail to `entry`: file, disk block and memory. OSError."""
        cdef Segment file = self.file_of(entry)
        cdef int status = 0
        if file is None and self.pending is not None and not self.files:
            if entry < self.buffered_max() and not self.pending.suspended:
                return self.extend_buffer(entry)
            if self.buffer is not None:
                self.make_files()
                file = self.file_of(entry)
        if file is None:
            file = <Segment> self.make_file(entry * self.entry_bytes)
        if (entry + 1) * self.entry_bytes - file.base > file.reserved:
            # entries below exist, whatever was counted
            file.reserved = max(file.reserved, entry * self.entry_bytes - file.base)
            status = file.reserve((entry + 1) * self.entry_bytes - file.base, RESERVE_STEP_MAX)
        if status < 0:
            raise OSError(-status, os.strerror(-status), file.path)
        self.ensure_mapped(file)
        self.tail, self.tail_seen = file.map, unmappings
        self.tail_from = file.base // self.entry_bytes
        self.tail_until = (file.base + file.reserved) // self.entry_bytes
        return 0

    cdef int64_t buffered_max(self) noexcept:
        return min(<int64_t> BUFFERED_MAX, self.file_bytes // self.entry_bytes)

    cdef int extend_buffer(self, int64_t entry) except -1:
        """Move the tail to `entry`, in memory. A larger buffer is another one: others may read this one."""
        cdef Py_ssize_t count = 0
        cdef bytearray larger
        if self.buffer is not None:
            count = PyByteArray_GET_SIZE(self.buffer) // self.entry_bytes
        if entry >= count:
            count = min(max(2 * count, entry + 1), self.buffered_max())
            larger = bytearray(count * self.entry_bytes)
            if self.files:                    # they were made meanwhile
                return self.extend_to(entry)
            if self.buffer is None:           # no other thread runs from here on: no object is made
                self.pending.queues.append(self)
            else:
                memcpy(
                    PyByteArray_AS_STRING(larger), PyByteArray_AS_STRING(self.buffer),
                    PyByteArray_GET_SIZE(self.buffer),
                )
            self.buffer = larger
        self.tail, self.tail_seen = <uint8_t *> PyByteArray_AS_STRING(self.buffer), unmappings
        self.tail_from, self.tail_until = 0, count
        return 0

    cdef int make_files(self) except -1:
        """Move the buffer into a file. Any thread: others run while the file system works, and may append.
        OSError: the entries stay in memory."""
        cdef Segment file
        cdef int status
        cdef int64_t length
        with self.pending.lock:
            if self.buffer is None:
                return 0
            file = Segment(self, 0, self.file_bytes)
            files = [file]
            os.makedirs(self.folder, exist_ok=True)
            file.open_file(True, True)
            with nogil:
                status = file.reserve(1, RESERVE_STEP_MAX)
            if status == 0:                   # no other thread runs from here on: no object is made
                length = self.end_entry * self.entry_bytes
                status = file.write_at(0, <uint8_t *> PyByteArray_AS_STRING(self.buffer), length)
            file.release_fd()
            if status < 0:
                file.discard()
                raise OSError(-status, os.strerror(-status), file.path)
            file.writable_map = True          # it is to be synced
            self.files = files
            self.pending.retired.append(self.buffer)
            self.buffer = None
            self.tail_until = self.tail_from
            self.named = True
            self.mark_dirty()
        return 0

    cdef int drop_buffer(self) except -1:
        """Forget entries that are in memory only; none of them is written later."""
        if self.buffer is not None:
            with self.pending.lock:
                self.buffer = None
            self.tail_until = self.tail_from
        return 0

    def make_file(self, int64_t position):
        """Create the file for a byte position: the next file, or the first one of the queue. OSError."""
        cdef Segment file = Segment(self, position - position % self.file_bytes, self.file_bytes)
        os.makedirs(self.folder, exist_ok=True)
        file.open_file(True, True)
        file.release_fd()
        try:
            self.files = [*self.files, file]
        except MemoryError:
            file.discard()                    # left there, it would fail the next attempt
            raise
        self.named = True
        self.mark_dirty()
        return file

    cdef int begin_at(self, int64_t entry) except -1:
        """Start an empty queue at an entry other than 0: blank entries fill its first file up to it."""
        self.drop_buffer()
        cdef Segment file = <Segment> self.make_file(entry * self.entry_bytes)
        self.end_entry = file.base // self.entry_bytes
        while self.end_entry < entry:
            self.append(0, PRE_BLANK_SIZE, 0)
        self.max_physical = 0
        self.min_entry = self.visible = self.next_entry = entry
        return 0

    # ---- cutting ----

    cdef int truncate(self, int64_t physical_offset) except -1:
        """Remove and zero all entries whose record does not end at or below the end of the log."""
        cdef int64_t end
        cdef const uint8_t *at
        cdef Segment file
        self.min_physical = -1
        while self.end_entry > self.min_entry and not 0 < self.max_physical <= physical_offset:
            at = self.entry_at(self.end_entry - 1)
            if at is NULL:
                break
            if get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE:
                end = get_i64(at) + 2  # it points to the byte before the next record, and goes with that
            else:
                end = get_i64(at) + get_i32(at + ENTRY_AT_SIZE)
            if end <= physical_offset:
                break
            memset(<uint8_t *> at, 0, self.entry_bytes)
            self.end_entry -= 1
            self.mark_dirty()
        while (
            self.files
            and (<Segment> self.files[-1]).base >= self.end_entry * self.entry_bytes
            and len(self.files) > 1
        ):
            file = self.files.pop()
            file.discard()
            self.named = True
            self.mark_dirty()
        self.visible = self.next_entry = self.end_entry
        self.synced_entry = min(self.synced_entry, self.end_entry)
        if self.end_entry == self.min_entry or not 0 < self.max_physical <= physical_offset:
            self.max_physical = self.last_end()
        return 0

    cdef int64_t last_end(self) except -1:
        """End offset of the last entry's record; 0 if there is none."""
        cdef uint8_t last[ENTRY_BYTES]
        if self.end_entry == self.min_entry or not self.look(self.end_entry - 1, last):
            return 0
        if get_i32(last + ENTRY_AT_SIZE) == PRE_BLANK_SIZE:
            return 0
        return get_i64(last) + get_i32(last + ENTRY_AT_SIZE)

    cdef int correct_min(self, int64_t min_physical) except -1:
        """Move `min_entry` past the entries whose record was deleted, and past blank entries. OSError."""
        cdef int64_t low = self.min_entry, high = self.end_entry, middle = low
        cdef uint8_t at[ENTRY_BYTES]
        if self.min_physical >= min_physical or low == high:
            return 0
        while low < high:
            if not self.look(middle, at):
                raise OSError(EIO, "an entry is missing", self.folder)
            if (
                get_i64(at) < min_physical
                or (get_i64(at) == 0 and get_i32(at + ENTRY_AT_SIZE) == PRE_BLANK_SIZE)
            ):
                low = middle + 1
            else:
                high = middle
                self.min_physical = get_i64(at)
            middle = (low + high) // 2
        if low == self.end_entry:
            self.min_physical = -1
        self.min_entry = low
        return 0

    def drop_old_files(self, int64_t at_most):
        # type: (...) -> int
        """Delete up to `at_most` files that end below the first readable entry, oldest first, never the last
        file; returns how many.

        OSError: this file and all later ones are kept.
        """
        cdef Segment file
        cdef int count = 0
        while (
            count < at_most
            and len(self.files) > 1
            and (<Segment> self.files[1]).base <= self.min_entry * self.entry_bytes
        ):
            if (<Segment> self.files[1]).base >= self.synced_entry * self.entry_bytes:
                break  # no file on the disk would show where the queue ends
            file = self.files[0]
            file.discard(at_most > 1)
            del self.files[0]
            count += 1
        return count

    def delete(self):
        # type: (...) -> None
        """Remove the queue's files and folder."""
        self.drop_buffer()
        for file in self.files:
            file.close()
            os.unlink(file.path)
        self.files = []
        self.min_entry = self.visible = self.end_entry = self.next_entry = self.max_physical = 0
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)

    def sync(self):
        # type: (...) -> bool
        """Sync the entries; another thread may call it, and a file closed concurrently needs no sync. Returns
        whether the folders need a sync, too. OSError."""
        cdef Segment file
        cdef int status
        cdef bint dirty = self.dirty, named = self.named
        cdef int64_t end
        self.dirty = self.named = False       # before all else: later changes are for the next sync
        if not dirty:
            return named
        end = self.end_entry
        for file in self.files[:]:
            if file.base + file.size <= self.synced_entry * self.entry_bytes:
                continue
            status = sync_file(file)
            if status < 0 and not file.closing:
                self.named = named or self.named
                self.mark_dirty()
                raise OSError(-status, os.strerror(-status), file.path)
        self.synced_entry = end
        return named


cdef inline int64_t entries_below(ConsumeQueue queue, int64_t position) noexcept:
    """How many entries are below a byte. A division by constants takes a tenth of the time."""
    if queue.entry_bytes == ENTRY_BYTES:
        return position // ENTRY_BYTES
    return position // BATCH_ENTRY_BYTES
