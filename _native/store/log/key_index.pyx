"""KeyIndex: which records have a key (see key_index.pxd). Knows only hashes; readers compare the real keys.

KeyHashes: the hashes under which the index finds a record.
"""

import datetime
import errno
import os
import re
from itertools import islice
from libc.stdint cimport uint32_t, uint64_t
from firearrow._native.base.endian cimport get_i32, get_i64, put_i32, put_i64
from firearrow._native.base.memory cimport prefetch_write
from firearrow._native.store.files.layout cimport (
    INDEX_AT_BEGIN_OFFSET, INDEX_AT_BEGIN_TIME, INDEX_AT_COUNT, INDEX_AT_END_OFFSET, INDEX_AT_END_TIME,
    INDEX_AT_SLOTS_USED, INDEX_ENTRY_AT_OFFSET, INDEX_ENTRY_AT_PREVIOUS, INDEX_ENTRY_AT_SECONDS,
    INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_SLOT_BYTES,
)
from firearrow._native.store.files.segment cimport Segment, zero_tail
from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow._native.store.files.segment import allocate_blocks
from cpython.mem cimport PyMem_Free
from libc.string cimport memchr
from firearrow._native.base.hash cimport index_hash, java_hash_more
from firearrow._native.store.files.layout cimport KEY_SEPARATOR
from firearrow._native.base.vector cimport grown


cdef extern from *:
    """
    #include <stdint.h>

    /* Lemire's fastmod: remainder by a fixed divisor with two multiplications, several times as fast as a
     * division. */
    #define fa_inverse(divisor) (UINT64_MAX / (divisor) + 1)

    static inline uint32_t fa_remainder(uint32_t value, uint32_t divisor, uint64_t inverse)
    {
        return (uint32_t) (((unsigned __int128) (inverse * value) * divisor) >> 64);
    }
    """
    uint64_t fa_inverse(uint32_t divisor) noexcept nogil
    uint32_t fa_remainder(uint32_t value, uint32_t divisor, uint64_t inverse) noexcept nogil

FILE_NAME = re.compile(r"\d{17}")
cdef enum:
    RESERVE_STEP_MAX = 1048576
    SAMPLES = 64


cdef class IndexFile:
    """One index file, Apache's layout."""

    def __cinit__(self, str path, int64_t slots, int64_t entries_max):
        # type: (...) -> None
        self.slots = slots
        self.slots_inverse = fa_inverse(<uint32_t> slots)
        self.entries_max = entries_max
        cdef int64_t size = INDEX_HEADER_BYTES + slots * INDEX_SLOT_BYTES + entries_max * INDEX_ENTRY_BYTES
        self.file = Segment(os.path.dirname(path), 0, size, os.path.basename(path))

    cdef int64_t count(self) except -1:
        if self.file.map is NULL:
            self.file.ensure_mapped(True)
        return min(max(get_i32(self.file.map + INDEX_AT_COUNT), 1), self.entries_max)

    cdef uint8_t *entry(self, int64_t number) noexcept:
        return self.file.map + INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES + number * INDEX_ENTRY_BYTES

    cdef uint8_t *slot(self, int32_t key_hash) noexcept:
        cdef int64_t number = fa_remainder(<uint32_t> key_hash, <uint32_t> self.slots, self.slots_inverse)
        return self.file.map + INDEX_HEADER_BYTES + number * INDEX_SLOT_BYTES

    def make(self):
        # type: (...) -> None
        """Create the file and allocate its slots. OSError."""
        self.file.open_file(True, True)
        status = self.file.allocate(INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES)
        self.file.release_fd()
        if status < 0:
            os.unlink(self.file.path)
            raise OSError(-status, os.strerror(-status), self.file.path)

    def load(self):
        # type: (...) -> None
        """Blocks up to the last entry are allocated already, except in a copy of the store that left out
        zeros: there, a slot in a hole would be SIGBUS on a full disk. OSError."""
        cdef int64_t needed = INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES
        number = os.open(self.file.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            count = int.from_bytes(os.pread(number, 4, INDEX_AT_COUNT), "big")
            if os.fstat(number).st_blocks * 512 < needed + count * INDEX_ENTRY_BYTES:
                allocate_blocks(number, 0, needed)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(error.errno, error.strerror, self.file.path) from None
        finally:
            os.close(number)
        last = self.entry(self.count()) - self.file.map
        self.file.reserved = last

    cdef int put(self, int32_t key_hash, int64_t physical_offset, int64_t store_time) except -1:
        """Append one entry; the caller has checked that it fits and has a disk block."""
        cdef int64_t number = self.count()
        cdef int64_t begin
        cdef int32_t previous
        cdef uint8_t *header = self.file.map
        cdef uint8_t *at = self.entry(number)
        cdef uint8_t *slot = self.slot(key_hash)
        if number <= 1:
            put_i64(header + INDEX_AT_BEGIN_TIME, store_time)
            put_i64(header + INDEX_AT_BEGIN_OFFSET, physical_offset)
        begin = get_i64(header + INDEX_AT_BEGIN_TIME)
        previous = get_i32(slot)
        if not 0 < previous < number:
            previous = 0
        put_i32(at, key_hash)
        put_i64(at + INDEX_ENTRY_AT_OFFSET, physical_offset)
        put_i32(
            at + INDEX_ENTRY_AT_SECONDS,
            <int32_t> min(max((store_time - begin) // 1000, 0), 2147483647) if begin > 0 else 0,
        )
        put_i32(at + INDEX_ENTRY_AT_PREVIOUS, previous)
        put_i32(slot, <int32_t> number)
        if previous == 0:
            put_i32(header + INDEX_AT_SLOTS_USED, get_i32(header + INDEX_AT_SLOTS_USED) + 1)
        put_i64(header + INDEX_AT_END_OFFSET, physical_offset)
        put_i64(header + INDEX_AT_END_TIME, store_time)
        put_i32(header + INDEX_AT_COUNT, <int32_t> (number + 1))
        self.dirty = True
        return 0

    cdef int reserve(self, int64_t until) except -1:
        """Allocate disk blocks for all entries below a number. OSError."""
        cdef int64_t position = INDEX_HEADER_BYTES + self.slots * INDEX_SLOT_BYTES + until * INDEX_ENTRY_BYTES
        cdef int status
        if position > self.file.reserved:
            status = self.file.reserve(position, RESERVE_STEP_MAX)
            if status < 0:
                raise OSError(-status, os.strerror(-status), self.file.path)
        return 0

    cdef int64_t reserved(self) noexcept:
        """Entries below this number have disk blocks."""
        return (self.file.reserved - INDEX_HEADER_BYTES - self.slots * INDEX_SLOT_BYTES) // INDEX_ENTRY_BYTES

    @property
    def full(self):
        # type: (...) -> bool
        return self.count() >= self.entries_max

    @property
    def header(self):
        # type: (...) -> tuple[int, int, int, int, int, int]
        """(begin time, end time, begin physical offset, end physical offset, slots used, count)."""
        self.count()
        at = self.file.map
        return (
            get_i64(at), get_i64(at + INDEX_AT_END_TIME), get_i64(at + INDEX_AT_BEGIN_OFFSET),
            get_i64(at + INDEX_AT_END_OFFSET), get_i32(at + INDEX_AT_SLOTS_USED), self.count(),
        )

    def is_sound(self):
        # type: (...) -> bool
        """Whether the header and samples of entries and slots are plausible; a kill may have lost the last
        entry."""
        cdef int64_t number, step, count = self.count(), before = -1
        cdef int64_t low = get_i64(self.file.map + INDEX_AT_BEGIN_OFFSET)
        cdef int64_t high = get_i64(self.file.map + INDEX_AT_END_OFFSET)
        cdef uint8_t *at
        if (
            get_i32(self.file.map + INDEX_AT_COUNT) > self.entries_max
            or get_i32(self.file.map + INDEX_AT_COUNT) < 0
        ):
            return False
        if count == 1:
            return True
        if high not in (
            get_i64(self.entry(count - 1) + INDEX_ENTRY_AT_OFFSET),
            get_i64(self.entry(min(count, self.entries_max - 1)) + INDEX_ENTRY_AT_OFFSET),
        ):
            return False
        for step in range(SAMPLES):
            number = 1 + (count - 2) * step // (SAMPLES - 1)
            at = self.entry(number)
            if (
                not max(low, before) <= get_i64(at + INDEX_ENTRY_AT_OFFSET) <= high
                or not 0 <= get_i32(at + INDEX_ENTRY_AT_PREVIOUS) < number
                or get_i32(at) < 0
            ):
                return False
            before = get_i64(at + INDEX_ENTRY_AT_OFFSET)
            at = self.file.map + INDEX_HEADER_BYTES + self.slots * step // SAMPLES * INDEX_SLOT_BYTES
            if not 0 <= get_i32(at) <= count:
                return False
        return get_i64(self.entry(1) + INDEX_ENTRY_AT_OFFSET) == low

    def remove_from(self, int64_t physical_offset):
        # type: (...) -> bool
        """Remove entries of records at or above an offset, newest first; False if a chain does not match its
        entry."""
        cdef int64_t number = self.count()
        cdef uint8_t *header = self.file.map
        cdef uint8_t *at
        if number < self.entries_max and get_i32(self.entry(number)) >= 0:
            if get_i32(self.slot(get_i32(self.entry(number)))) == number:
                number += 1
        while number > 1:
            at = self.entry(number - 1)
            if number <= self.count() and get_i64(at + INDEX_ENTRY_AT_OFFSET) < physical_offset:
                break
            if (
                get_i32(at) < 0
                or get_i32(self.slot(get_i32(at))) != number - 1
                or not 0 <= get_i32(at + INDEX_ENTRY_AT_PREVIOUS) < number - 1
            ):
                return False
            put_i32(self.slot(get_i32(at)), get_i32(at + INDEX_ENTRY_AT_PREVIOUS))
            if get_i32(at + INDEX_ENTRY_AT_PREVIOUS) == 0:
                put_i32(header + INDEX_AT_SLOTS_USED, max(get_i32(header + INDEX_AT_SLOTS_USED) - 1, 0))
            number -= 1
        put_i32(header + INDEX_AT_COUNT, <int32_t> number)
        if number > 1:
            at = self.entry(number - 1)
            put_i64(header + INDEX_AT_END_OFFSET, get_i64(at + INDEX_ENTRY_AT_OFFSET))
            put_i64(
                header + INDEX_AT_END_TIME,
                get_i64(header) + get_i32(at + INDEX_ENTRY_AT_SECONDS) * <int64_t> 1000,
            )
        return True

    def offsets(self, int32_t key_hash, int64_t begin_ms, int64_t end_ms):
        # type: (...) -> Iterator[int]
        """Physical offsets of entries with a hash, newest first, stored within the times (to the second).
        Nothing may be appended meanwhile."""
        cdef int64_t number, count = self.count(), steps = 0
        cdef int64_t began = get_i64(self.file.map), stored
        cdef uint8_t *at
        number = get_i32(self.slot(key_hash))
        while 0 < number < count and steps < count:
            at = self.entry(number)
            stored = began + get_i32(at + INDEX_ENTRY_AT_SECONDS) * <int64_t> 1000
            if get_i32(at + INDEX_ENTRY_AT_SECONDS) < 0 or stored + 999 < begin_ms:
                break
            if get_i32(at) == key_hash and stored <= end_ms:
                yield get_i64(at + INDEX_ENTRY_AT_OFFSET)
            if not 0 < get_i32(at + INDEX_ENTRY_AT_PREVIOUS) < number:
                break
            number = get_i32(at + INDEX_ENTRY_AT_PREVIOUS)
            steps += 1

    def search(self, int32_t key_hash, int64_t begin_ms, int64_t end_ms, int64_t max_count):
        # type: (...) -> list[int]
        return list(islice(self.offsets(key_hash, begin_ms, end_ms), max_count))


cdef class KeyIndex:
    """All index files of a store, oldest first."""

    def __cinit__(self, folder, int64_t slots, int64_t entries_max):
        self.folder = os.fspath(folder)
        self.slots = slots
        self.entries_max = entries_max
        self.files = []

    @staticmethod
    def open(folder, int64_t slots, int64_t entries_max, repair_log not None):
        # type: (str, int, int, RepairLog) -> KeyIndex
        """Open all files. A damaged index, or one of another size, is deleted and will be rebuilt.
        OSError."""
        cdef KeyIndex index = KeyIndex(folder, slots, entries_max)
        cdef IndexFile file
        make_dirs(index.folder)
        for name in sorted(os.listdir(index.folder)):
            path = os.path.join(index.folder, name)
            if not FILE_NAME.fullmatch(name) or os.path.isdir(path):
                repair_log.record(f"{path} is not an index file: left in place")
                continue
            file = IndexFile(path, slots, entries_max)
            index.files.append(file)
            if os.path.getsize(path) != file.file.size:
                return index.discard_all(
                    f"{path} has {os.path.getsize(path)} bytes, not {file.file.size}", repair_log
                )
            file.load()
            if not file.is_sound() or len(index.files) > 1 and file.header[2] < index.files[-2].header[2]:
                return index.discard_all(f"{path} is corrupt", repair_log)
        return index

    def discard_all(self, str why, repair_log):
        """Delete all files: an index is not repaired, but rebuilt from the log."""
        repair_log.record(f"{why}: the index is rebuilt from the log")
        repair_log.rebuild = True
        self.close()
        for name in os.listdir(self.folder):
            if FILE_NAME.fullmatch(name) and os.path.isfile(os.path.join(self.folder, name)):
                os.unlink(os.path.join(self.folder, name))
        return self

    def close(self):
        # type: (...) -> None
        if self.prepared is not None:
            self.prepared.file.close()
            os.unlink(self.prepared.file.path)
            self.prepared = None
        for file in self.files:
            file.file.close()
        self.files, self.filling, self.capacity = [], None, 0

    cdef int ensure_capacity(self, int64_t entries) except -1:
        """Allocate disk blocks for `entries` more entries, in the current file and the next one. OSError."""
        if entries > self.capacity:
            self.reserve(entries)
        return 0

    cdef void prefetch(self, const int32_t *hashes, Py_ssize_t count) noexcept:
        """Prefetch the slots of these hashes, which are spread over the whole file."""
        cdef Py_ssize_t n
        if self.capacity > 0:
            for n in range(count):
                prefetch_write(self.filling.slot(hashes[n]))

    cdef int reserve(self, int64_t entries) except -1:
        cdef IndexFile file = <IndexFile> self.files[-1] if self.files else None
        cdef int64_t used = file.count() if file is not None else 0
        cdef int64_t left = file.entries_max - used if file is not None else 0
        self.capacity = 0
        if left > 0:
            file.reserve(used + min(entries, left))
            self.filling, self.capacity = file, min(left, file.reserved() - used)
        if entries > left:
            if self.prepared is None:
                self.prepared = <IndexFile> self.make_file(file)
            self.prepared.reserve(self.prepared.count() + min(entries - left, self.entries_max - 1))
        return 0

    cdef int put(self, int32_t key_hash, int64_t physical_offset, int64_t store_time) except -1:
        """Add one entry. OSError: nothing was added."""
        cdef IndexFile file = self.filling if self.capacity > 0 else self.next_file()
        self.capacity -= self.capacity > 0
        self.dirty = True
        return file.put(key_hash, physical_offset, store_time)

    cdef IndexFile next_file(self):
        """The file for the next entry, with a disk block for it. OSError."""
        cdef IndexFile file = <IndexFile> self.files[-1] if self.files else None
        if file is None or file.count() >= file.entries_max:
            file = self.prepared if self.prepared is not None else <IndexFile> self.make_file(file)
            self.prepared = None
            self.files.append(file)
        file.reserve(file.count() + 1)
        return file

    def make_file(self, IndexFile previous):
        """Create the next file, named after the local time so that it sorts after the others. OSError."""
        now = datetime.datetime.now()
        number = int(f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}")
        if previous is not None:  # also after the clock was set back
            number = max(number, int(os.path.basename(previous.file.path)) + 1)
        while os.path.exists(path := os.path.join(self.folder, f"{number:017d}")):
            number += 1
        file = IndexFile(path, self.slots, self.entries_max)
        file.make()
        self.named = True
        return file

    def offsets(self, int32_t key_hash, int64_t begin_ms, int64_t end_ms):
        # type: (...) -> Iterator[int]
        """Physical offsets, newest first, over all files that may hold them. Nothing may be appended
        meanwhile."""
        for file in reversed(self.files):
            began, _, _, _, _, count = file.header
            if count > 1 and began <= end_ms:
                yield from file.offsets(key_hash, begin_ms, end_ms)
            if count > 1 and began < begin_ms:
                break

    def search(self, int32_t key_hash, int64_t begin_ms, int64_t end_ms, int64_t max_count):
        # type: (...) -> list[int]
        return list(islice(self.offsets(key_hash, begin_ms, end_ms), max_count))

    @property
    def last(self):
        # type: (...) -> tuple[int, int]
        """(store time, physical offset) of the newest entry; zeros if there is none."""
        for file in reversed(self.files):
            _, ended, _, end_physical, _, count = file.header
            if count > 1:
                return ended, end_physical
        return 0, 0

    @property
    def empty(self):
        # type: (...) -> bool
        return self.last == (0, 0) and not any(file.header[5] > 1 for file in self.files)

    @property
    def sealed_time(self):
        # type: (...) -> int
        """End time of the newest full file (the checkpoint's index time); 0 if none is full. Any thread:
        retention may detach and close files meanwhile."""
        cdef IndexFile file
        files = [file for file in self.files[:] if not file.file.closing]
        return max([file.header[1] for file in files if file.full], default=0)

    def remove_from(self, int64_t physical_offset):
        # type: (...) -> int
        """Remove all records at or above an offset; returns from where the index must be rebuilt (never above
        that offset)."""
        self.capacity = 0
        while self.files:
            file = self.files[-1]
            _, _, begin_physical, _, _, count = file.header
            if count > 1 and begin_physical < physical_offset:
                if file.remove_from(physical_offset):
                    self.dirty = (<IndexFile> file).dirty = True
                    return physical_offset
                physical_offset = begin_physical
            self.files.pop()
            self.discard(file)
        return physical_offset

    cdef int discard(self, IndexFile file) except -1:
        """Delete the newest file, whose keys are added again. On a disk without space for a new one it is
        zeroed, and the next one. OSError."""
        cdef IndexFile next_file = self.prepared
        self.prepared = None
        if next_file is not None:
            next_file.file.discard(True)
        about = os.statvfs(self.folder)
        if about.f_bavail * about.f_frsize >= file.file.size:
            file.file.discard(True)
            return 0
        file.file.open_file(False, True)
        try:
            zero_tail(file.file, 0)
        finally:
            file.file.release_fd()
        self.prepared = file
        return 0

    def drop_below(self, int64_t min_physical):
        # type: (...) -> list[Segment]
        """Detach the files whose records are all deleted, for the caller to discard; the last file stays."""
        gone = []
        while len(self.files) > 1 and self.files[0].header[3] < min_physical:
            gone.append(self.files.pop(0).file)
        return gone

    def sync(self):
        # type: (...) -> None
        """Sync entries and folder; another thread may call it. OSError."""
        cdef IndexFile file
        cdef int status
        if self.dirty:
            files = self.files[:]
            self.dirty = False
            for file in files:
                if file.dirty:
                    file.dirty = False
                    file.file.views += 1  # pins the mapping
                    with nogil:
                        status = file.file.sync_map(file.file.size)
                    file.file.views -= 1
                    if status < 0 and not file.file.closing:
                        self.dirty = file.dirty = True
                        raise OSError(-status, os.strerror(-status), file.file.path)
        if self.named:
            self.named = False  # before the sync: a file created concurrently sets it again
            try:
                fsync_dir(self.folder)
            except OSError:
                self.named = True
                raise


cdef int32_t keys_of(const uint8_t *topic, Py_ssize_t length) noexcept nogil:
    """Hash of `topic#`, the start of the hashes of a topic's keys."""
    return java_hash_more(java_hash_more(0, topic, length), b"#", 1)


cdef class KeyHashes:
    """Hashes of the keys of staged records; not for Python."""

    def __dealloc__(self):
        PyMem_Free(self.at)

    cdef int32_t add_keys(self, int32_t topic_key_hash, const Properties *properties) except -1:
        """Write a record's hashes past `count`; returns how many. MemoryError."""
        cdef Py_ssize_t index = self.count
        cdef const uint8_t *at = properties.keys.at
        cdef const uint8_t *end = at + properties.keys.length
        cdef const uint8_t *stop
        if properties.unique_key.length:
            self.put(
                index,
                java_hash_more(topic_key_hash, properties.unique_key.at, properties.unique_key.length),
            )
            index += 1
        while properties.keys.length and at < end:
            stop = <const uint8_t *> memchr(at, KEY_SEPARATOR, end - at)
            if stop is NULL:
                stop = end
            if stop > at:
                self.put(index, java_hash_more(topic_key_hash, at, stop - at))
                index += 1
            at = stop + 1
        if properties.tags.length:
            self.put(
                index,
                java_hash_more(
                    java_hash_more(topic_key_hash, b"T#", 2), properties.tags.at, properties.tags.length
                ),
            )
            index += 1
        return <int32_t> (index - self.count)

    cdef int put(self, Py_ssize_t index, int32_t key_hash) except -1:
        self.at = <int32_t *> grown(self.at, &self.capacity, index, sizeof(int32_t))
        self.at[index] = index_hash(key_hash)
        return 0
