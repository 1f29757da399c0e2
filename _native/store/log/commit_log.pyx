"""CommitLog: the segments of all messages in order (see commit_log.pxd). Knows no topics or queues."""

import errno
import os
from threading import Lock

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int32_t
from libc.string cimport memset

from firearrow._native.base.endian cimport get_i32, put_i32
from firearrow._native.store.files.layout cimport MAGIC_BLANK, RECORD_END_BYTES
from firearrow._native.store.log.record cimport (
    RECORD_BLANK, RECORD_CUT, RECORD_OK, RecordView, check_record, record_of,
)
from firearrow._native.store.files.segment cimport Segment, zero_tail
from firearrow._native.store.files.sync_gate cimport SyncGate, free_sync_gate, new_sync_gate, sync_through

from firearrow._native.store.files.preallocation import Preallocator
from firearrow._native.store.files.errors import StoreDamaged
from firearrow._native.store.files.segment import allocate_blocks
from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.files.segment_files import (
    foreign_size, is_of_another_size, repaired_files, named_files, rolled_files,
)
from firearrow._native.store.files.recycled_segment import RecycledSegment

cdef extern from *:
    """
    #include <sys/vfs.h>

    static int fa_is_tmpfs(const char *folder)
    {
        struct statfs about;
        return statfs(folder, &about) == 0 && about.f_type == 0x01021994;
    }
    """
    int fa_is_tmpfs(const char *folder)

cdef bytes ZEROS = bytes(65536)

cdef enum:
    # a staging buffer that grew larger is freed after its write; smaller ones are kept, new pages are slow
    STAGING_KEPT = 1 << 23


cdef bytes blank_record(int64_t left):
    """The record that marks the unused `left` bytes at the end of a segment."""
    cdef uint8_t head[RECORD_END_BYTES]
    put_i32(head, <int32_t> left)
    put_i32(head + 4, MAGIC_BLANK)
    return (<const char *> head)[:RECORD_END_BYTES]


cdef class CommitLog:
    """The log of all messages: segments in order. All offsets are physical: bytes from the start of the
    log."""

    def __cinit__(self, folder, int64_t segment_bytes, bint readonly=False):
        self.folder = os.fspath(folder)
        self.segment_bytes = segment_bytes
        self.readonly = readonly
        self.segments = []
        self.creating = Lock()
        self.size_max = segment_bytes
        self.on_tmpfs = fa_is_tmpfs(os.fsencode(self.folder))
        self.sync_gate = new_sync_gate()

    def __dealloc__(self):
        PyMem_Free(self.staging)
        free_sync_gate(self.sync_gate)

    # ---- opening ----

    @staticmethod
    def open(folder, int64_t segment_bytes, repair_log not None, str root not None):
        # type: (str | PathLike[str], int, RepairLog, str) -> CommitLog
        """Open for appending and repair the files; recovery sets the positions. OSError, StoreForeign,
        StoreDamaged."""
        cdef CommitLog log
        make_dirs(os.fspath(folder))
        log = CommitLog(folder, segment_bytes)
        log.recycled = RecycledSegment(root, segment_bytes)
        log.preallocator = Preallocator()
        found = named_files(log.folder)
        if is_of_another_size(found, segment_bytes):
            raise foreign_size(found[0][1], segment_bytes, "mappedFileSizeCommitLog")
        head = blank_record(segment_bytes)
        for offset, _ in repaired_files(log.folder, segment_bytes, repair_log, head=head):
            log.segments.append(Segment(log.folder, offset, segment_bytes))
        return log

    @staticmethod
    def open_readonly(folder, int64_t segment_bytes=0):
        # type: (str | PathLike[str], int) -> CommitLog
        """Open for reading, also while a broker writes; takes no lock. A context manager. `written`: end
        of the last complete record. `segment_bytes` 0: the size of the first file. StoreForeign,
        StoreDamaged, OSError."""
        cdef CommitLog log
        cdef int64_t end
        found = named_files(os.fspath(folder))
        if segment_bytes == 0:
            segment_bytes = os.path.getsize(found[0][1]) if found else 1 << 30
        log = CommitLog(folder, segment_bytes, True)
        for offset, _ in rolled_files(log.folder, segment_bytes, "segment_bytes"):
            log.segments.append(Segment(log.folder, offset, segment_bytes))
        end = log.min_offset
        for _, next_offset in log.walk(end, check_crc=False):
            end = next_offset
        log.written = log.flushed = end
        return log

    def close(self):
        # type: (...) -> None
        for segment in self.segments:
            segment.close()
        self.segments = []

    def __enter__(self):
        # type: (...) -> CommitLog
        return self

    def __exit__(self, *_):
        # type: (*object) -> None
        self.close()

    @property
    def min_offset(self):
        # type: (...) -> int
        return self.start()

    cdef int64_t start(self) except -1:
        return (<Segment> self.segments[0]).base if self.segments else self.written

    @property
    def ends(self):
        # type: (...) -> int
        """End of the last file."""
        return (<Segment> self.segments[-1]).base + self.segment_bytes if self.segments else 0

    @property
    def bases(self):
        # type: (...) -> list[int]
        return [segment.base for segment in self.segments]

    # ---- reading ----

    cdef Segment segment_at(self, int64_t physical_offset):
        """The segment that holds an offset, or None."""
        cdef int64_t n
        if not self.segments or physical_offset < 0:
            return None
        n = (physical_offset - (<Segment> self.segments[0]).base) // self.segment_bytes
        if physical_offset < (<Segment> self.segments[0]).base or n >= len(self.segments):
            return None
        return <Segment> self.segments[n]

    cdef const uint8_t *bytes_at(self, int64_t physical_offset, int64_t *available) except? NULL:
        """Borrowed bytes from an offset to the end of its segment; NULL without an exception if it is outside
        the log. OSError."""
        cdef Segment segment = self.segment_at(physical_offset)
        if segment is None:
            return NULL
        segment.ensure_mapped(False)
        available[0] = segment.base + segment.size - physical_offset
        return segment.map + (physical_offset - segment.base)

    cdef int look(self, int64_t physical_offset, bint check_crc, RecordView *view) except -100:
        """Check the record at an offset; a RecordState. RECORD_CUT outside the log. Ignores `written`."""
        cdef int64_t available = 0
        cdef const uint8_t *at = self.bytes_at(physical_offset, &available)
        if at is NULL or (self.on_tmpfs and not self.is_backed(physical_offset, at, available)):
            return RECORD_CUT
        return check_record(at, available, self.size_max, check_crc, view)

    cdef bint is_backed(self, int64_t physical_offset, const uint8_t *at, int64_t available) except -1:
        """Whether a record on tmpfs can be read through the mapping. There, reading a hole takes a page, and
        is SIGBUS if there is none. False: nothing was written at the offset. OSError: the record has a hole,
        and there is no space for it.
        """
        cdef int64_t size
        if physical_offset < self.written:
            return True
        if not self.has_data(physical_offset, min(available, <int64_t> RECORD_END_BYTES)):
            return False
        size = min(<int64_t> get_i32(at), min(available, self.size_max))
        if not self.has_data(physical_offset, size):
            if self.readonly:
                return False
            segment = self.segment_at(physical_offset)
            number = os.open(segment.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                allocate_blocks(number, physical_offset - segment.base, size)
            finally:
                os.close(number)
        return True

    cdef bint has_data(self, int64_t physical_offset, int64_t length) except -1:
        """Whether no byte of the range is in a hole of its file. OSError."""
        cdef Segment segment
        if self.data_from <= physical_offset and physical_offset + length <= self.data_until:
            return True
        segment = self.segment_at(physical_offset)
        at = physical_offset - segment.base
        number = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.lseek(number, at, os.SEEK_DATA) > at:
                return False
            hole = os.lseek(number, at, os.SEEK_HOLE)
            self.data_from, self.data_until = physical_offset, segment.base + hole
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data from there on
                raise
            return False
        finally:
            os.close(number)
        return physical_offset + length <= self.data_until

    def record(self, int64_t physical_offset, bint check_crc=True):
        # type: (...) -> Record | None
        """The decoded record at an offset, or None."""
        cdef RecordView view
        if self.look(physical_offset, check_crc, &view) != RECORD_OK:
            return None
        return record_of(&view)

    def walk(self, int64_t physical_offset, *, bint check_crc=True):
        # type: (...) -> Iterator[tuple[int, int]]
        """Yield (start, end) offsets of each valid record from an offset on, across segments, up to the first
        invalid one."""
        cdef RecordView view
        cdef int state
        while True:
            state = self.look(physical_offset, check_crc, &view)
            if state == RECORD_BLANK:
                physical_offset = (self.segment_at(physical_offset)).base + self.segment_bytes
                continue
            if state != RECORD_OK or view.physical_offset != physical_offset:
                return
            yield physical_offset, physical_offset + view.size
            physical_offset += view.size

    def records(self, physical_offset=None, *, bint check_crc=True):
        # type: (int | None, bool) -> Iterator[Record]
        """Yield decoded records in order."""
        first = self.min_offset if physical_offset is None else physical_offset
        for at, _ in self.walk(first, check_crc=check_crc):
            yield self.record(at, False)

    # ---- appending ----

    cdef int64_t staged_end(self) noexcept:
        return self.staging_base + self.staging_bytes if self.staging_bytes else self.written

    cdef int reserve_contiguous(self, int64_t size) except -1:
        """Move to the next segment now if `size` bytes do not fit in this one."""
        cdef int64_t end = self.staged_end()
        if not self.segment_end - self.segment_bytes <= end < self.segment_end:
            self.segment_end = end - end % self.segment_bytes + self.segment_bytes
        if size + RECORD_END_BYTES > self.segment_end - end:
            self.fill(end, self.segment_end - end)
        return 0

    cdef int fill(self, int64_t end, int64_t left) except -1:
        """Stage a blank record up to the end of the segment."""
        cdef uint8_t *to = self.stage(end, left)
        memset(to, 0, left)
        put_i32(to, <int> left)
        put_i32(to + 4, MAGIC_BLANK)
        return 0

    cdef uint8_t *reserve_record(self, int64_t size, int64_t *physical_offset) except NULL:
        """Reserve staging space for one record; moves to the next segment if it does not fit. MemoryError."""
        self.reserve_contiguous(size)
        physical_offset[0] = self.staged_end()
        return self.stage(physical_offset[0], size)

    cdef uint8_t *stage(self, int64_t end, int64_t size) except NULL:
        cdef int64_t needed = self.staging_bytes + size
        cdef uint8_t *larger
        if needed > self.staging_capacity:
            larger = <uint8_t *> PyMem_Realloc(self.staging, max(needed, 2 * self.staging_capacity, 65536))
            if larger is NULL:
                raise MemoryError()
            self.staging = larger
            self.staging_capacity = max(needed, 2 * self.staging_capacity, 65536)
        if self.staging_bytes == 0:
            self.staging_base = end
        self.staging_bytes = needed
        return self.staging + needed - size

    cdef int64_t write(self) except -1:
        """Write the staging buffer to the files; returns the new end. OSError, MemoryError: the buffer is
        dropped, the files are as before. StoreDamaged: they are not."""
        cdef int64_t done = 0, chunk, at
        cdef Segment segment
        cdef int status
        while done < self.staging_bytes:
            at = self.staging_base + done
            chunk = min(self.staging_bytes - done, self.segment_bytes - at % self.segment_bytes)
            segment = self.segment_for(at)
            with nogil:
                if at + chunk > self.zeroed:
                    self.zeroed = segment.base + segment.write_zeros(at - segment.base, chunk)
                status = segment.write_at(at - segment.base, self.staging + done, chunk)
            if status < 0:
                self.rollback_staged(at)
                raise OSError(-status, os.strerror(-status), segment.path)
            done += chunk
        if self.staging_bytes:
            self.written = self.staging_base + self.staging_bytes
        self.drop_staged()
        return self.written

    cdef Segment segment_for(self, int64_t physical_offset):
        """The segment to write to, created if missing. OSError."""
        cdef Segment segment = self.segment_at(physical_offset)
        if segment is None:
            try:
                self.make_segment(physical_offset - physical_offset % self.segment_bytes)
            except (OSError, MemoryError):
                self.rollback_staged(physical_offset)
                raise
            segment = self.segment_at(physical_offset)
        return segment

    cdef int make_segment(self, int64_t base) except -1:
        """Create the file that starts at `base` unless another thread has just done so, from the recycled
        segment if one is ready; size and name are durable. OSError."""
        cdef Segment segment
        with self.creating:
            if self.segments and base != self.ends:
                return 0
            segment = Segment(self.folder, base, self.segment_bytes)
            try:
                segment.fd = self.recycled.open_as(segment.path)
                segment.open_file(True, True)
                os.fsync(segment.fd)
                fsync_dir(self.folder)
                self.segments.append(segment)
            except BaseException:
                if segment.fd >= 0:  # we created it; left there, it would fail the next attempt
                    segment.discard()
                raise
        return 0

    cdef int rollback_staged(self, int64_t failed_at) except -1:
        """Undo a failed write: overwrite with zeros what may have been written past `written`.

        A full disk refuses the zeros where it refused the data: there it is enough that the file reads as
        zeros. StoreDamaged: data is left that could pass for a record.
        """
        cdef Segment segment
        cdef int64_t at = self.written
        cdef int64_t chunk
        cdef int status
        cdef int64_t until = self.staging_base + self.staging_bytes
        self.drop_staged()
        while at < until:
            segment = self.segment_at(at)
            if segment is None:
                return 0
            chunk = min(until - at, <int64_t> len(ZEROS), segment.base + segment.size - at)
            status = segment.write_at(at - segment.base, <const uint8_t *> <char *> ZEROS, chunk)
            if status < 0 and os.pread(segment.fd, chunk, at - segment.base) != ZEROS[:chunk]:
                raise StoreDamaged(
                    f"a write to {segment.path} failed half-way and could not be rolled back: "
                    f"free disk space and start the broker again"
                )
            at += chunk
        return 0

    cdef void drop_staged(self) noexcept:
        self.staging_bytes = 0
        if self.staging_capacity > STAGING_KEPT:
            PyMem_Free(self.staging)
            self.staging = NULL
            self.staging_capacity = 0

    def sync(self, int64_t until):
        # type: (...) -> int
        """fdatasync all segments with unflushed bytes; returns `flushed`. OSError: all later syncs fail,
        too."""
        cdef Segment segment
        cdef SyncGate *sync_gate = self.sync_gate
        cdef int status, fd
        for segment in self.unflushed():
            fd = segment.fd
            segment.syncing += 1
            with nogil:
                status = sync_through(sync_gate, fd)
            segment.syncing -= 1
            if status < 0:
                raise OSError(-status, os.strerror(-status), segment.path)
        self.synced(until)
        return self.flushed

    cdef list unflushed(self):
        """Segments with bytes that no completed sync covers."""
        cdef Segment segment
        return [
            segment for segment in self.segments[:]
            if segment.base < self.written and segment.base + segment.size > self.flushed
        ]

    cdef int synced(self, int64_t until) except -1:
        self.flushed = max(self.flushed, until)
        return self.release_flushed()

    cdef int release_flushed(self) except -1:
        """Close the descriptors of fully flushed segments; those still written or synced keep theirs."""
        cdef Segment segment
        for segment in self.segments[:]:
            if segment.base + segment.size > self.flushed or segment.syncing > 0:
                break
            segment.release_fd()
        return 0

    def prepare(self):
        # type: (...) -> None
        """Create the next segment when the active one is half full, and preallocate blocks for the writes
        during the next sync. OSError: the segment was not created."""
        cdef Segment segment
        if (
            self.segments
            and self.written % self.segment_bytes > self.segment_bytes // 2
            and self.ends - self.written <= self.segment_bytes
        ):
            self.make_segment(self.ends)
        if not self.synced_often:
            segments = [
                (segment.fd, segment.base, segment.base + segment.size) for segment in self.segments[-2:]
                if segment.base + segment.size > self.written
            ]
            self.preallocator.preallocate(segments, self.flushed, self.written)

    # ---- cutting ----

    cdef int truncate(self, int64_t physical_offset) except -1:
        """End the log here: delete later files, zero the remaining bytes.

        So a stale record never follows a new one. Apache leaves stale records; it accepts both. OSError.
        """
        cdef Segment segment
        while self.segments and (<Segment> self.segments[-1]).base > physical_offset:
            segment = self.segments.pop()
            segment.discard(True)
        self.written = self.flushed = physical_offset
        self.data_from = self.data_until = 0
        self.staging_bytes = 0
        segment = self.segment_at(physical_offset)
        if segment is not None:
            segment.open_file(False, True)
            zero_tail(segment, physical_offset - segment.base)
            os.fdatasync(segment.fd)
        return 0

    def sync_from(self, int64_t physical_offset):
        """Sync from an offset on: what a killed process wrote there may be in the page cache only.
        OSError."""
        cdef Segment segment
        for segment in self.segments:
            if segment.base + segment.size > physical_offset and segment.base < self.written:
                segment.open_file(False, True)
        self.flushed = min(physical_offset, self.written)
        self.sync(self.written)

    def detach_oldest(self):
        # type: (...) -> Segment | None
        """Remove the oldest segment from the log for the caller to discard; None if it is active or not
        flushed."""
        cdef Segment segment = self.segments[0] if self.segments else None
        if (
            segment is None
            or segment.syncing > 0
            or segment.base + segment.size > min(self.written, self.flushed)
        ):
            return None
        del self.segments[0]
        return segment

    def first_modified_ms(self):
        # type: (...) -> int
        """Modification time of the oldest segment's file."""
        return os.stat((<Segment> self.segments[0]).path).st_mtime_ns // 1_000_000

    def drop_unused(self):
        # type: (...) -> None
        """Delete the segments created in advance and never written, and the recycled segment."""
        while self.segments and (<Segment> self.segments[-1]).base > self.written:
            segment = self.segments.pop()
            segment.close()
            os.unlink(segment.path)
        self.recycled.drop()
