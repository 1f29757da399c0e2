"""Segment: one mapped file of the store (see segment.pxd). Knows no record layout."""

import os

cimport cython
from libc.errno cimport EINTR, EIO, ENOMEM, errno
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, open as c_open, posix_fallocate
from posix.mman cimport MAP_FAILED, MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE, mmap, msync, munmap
from posix.stat cimport fstat, struct_stat
from posix.types cimport off_t
from posix.unistd cimport close as c_close, fdatasync, ftruncate, pread, pwrite

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.store.files.segment_files import file_name

cdef extern from *:
    """
    #include <fcntl.h>
    #include <linux/falloc.h>
    """
    int fallocate(int fd, int mode, off_t at, off_t length) nogil
    enum: ZERO_RANGE "FALLOC_FL_ZERO_RANGE"
    enum: KEEP_SIZE "FALLOC_FL_KEEP_SIZE"

cdef enum:
    PAGE_BYTES = 4096

cdef enum Call:                       # system calls that tests can make fail
    CALL_PWRITE = 0
    CALL_SYNC = 1
    CALL_RESERVE = 2
    CALL_CREATE = 3
    CALL_ZERO = 4

cdef enum:
    ZEROS_BYTES = 262144                  # a power of two

cdef uint8_t ZEROS[ZEROS_BYTES]

cdef int fault_call = -1
cdef int fault_errno = 0
cdef long long fault_after = 0
cdef long long fault_bytes = 0


def fail_next(str call not None, int error, *, long long after=0, long long partial_bytes=0):
    # type: (...) -> None
    """For tests: the system call ("pwrite", "sync", "reserve", "create", "zero") fails with `error` after
    `after` good ones, until `heal`; a pwrite may write `partial_bytes` first."""
    global fault_call, fault_errno, fault_after, fault_bytes
    fault_errno, fault_after, fault_bytes = error, after, partial_bytes
    fault_call = ("pwrite", "sync", "reserve", "create", "zero").index(call)


def heal():
    # type: (...) -> None
    """For tests: end what `fail_next` began."""
    global fault_call
    fault_call = -1


cdef inline int injected(int call) noexcept nogil:
    global fault_after
    if fault_call != call:
        return 0
    if fault_after > 0:
        fault_after -= 1
        return 0
    return fault_errno


cdef object os_error(int number, str path):
    return OSError(number, os.strerror(number), path)


cdef int write_fully(int fd, int64_t position, const uint8_t *data, int64_t length) noexcept nogil:
    cdef long wrote
    while length > 0:
        wrote = pwrite(fd, data, length, <off_t> position)
        if wrote < 0:
            if errno == EINTR:
                continue
            return -errno
        data += wrote
        position += wrote
        length -= wrote
    return 0


def zero_range(int fd, int64_t begin, int64_t length):
    # type: (...) -> None
    """Zero a range without writing it; its blocks stay. OSError: not every file system supports it."""
    change_blocks(fd, ZERO_RANGE | KEEP_SIZE, begin, length, injected(CALL_ZERO))


def allocate_blocks(int fd, int64_t begin, int64_t length):
    # type: (...) -> None
    """Allocate disk blocks for a range; size and bytes stay. OSError: disk full, or not supported.
    (posix_fallocate writes zeros where it is not supported.)"""
    change_blocks(fd, KEEP_SIZE, begin, length, injected(CALL_RESERVE))


cdef int change_blocks(int fd, int mode, int64_t begin, int64_t length, int error) except -1:
    with nogil:
        while error == 0 and fallocate(fd, mode, <off_t> begin, <off_t> length) != 0:
            if errno != EINTR:
                error = errno
    if error != 0:
        raise OSError(error, os.strerror(error))
    return 0


cdef int sync_path(const char *path) noexcept nogil:
    cdef int fd = c_open(path, O_RDONLY | O_CLOEXEC)
    cdef int error = 0
    if fd < 0:
        return -errno
    while fdatasync(fd) != 0:
        error = errno
        if error != EINTR:
            break
        error = 0
    c_close(fd)
    return -error


cdef int sync_fd(int fd) noexcept nogil:
    """fdatasync; 0 or a negative errno."""
    cdef int error = injected(CALL_SYNC)
    if error != 0:
        return -error
    while fdatasync(fd) != 0:
        if errno != EINTR:
            return -errno
    return 0


unmappings = 0


@cython.no_gc  # as its owners
cdef class Segment:
    """One mapped file of the store. Its buffer is the whole mapping, read only."""

    def __cinit__(self, folder not None, int64_t base, int64_t size, str name=None):
        # type: (str | PathLike[str], int, int, str | None) -> None
        self.folder = folder
        self.name = name
        self.base = base
        self.size = size
        self.fd = -1
        self.stride[0] = 1

    @property
    def path(self):
        # type: (...) -> str
        # not os.fspath, which makes a TypeError of a lack of memory
        folder = self.folder if isinstance(self.folder, str) else self.folder.__fspath__()
        return os.path.join(folder, file_name(self.base) if self.name is None else self.name)

    def __dealloc__(self):
        if self.map is not NULL:
            munmap(self.map, self.size)
        if self.fd >= 0:
            c_close(self.fd)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        """The whole mapping, read only."""
        if self.closing:
            raise BufferError("the segment is closed")
        self.ensure_mapped(False)
        self.shape[0] = self.size
        buffer.buf = self.map
        buffer.obj = self
        buffer.len = self.size
        buffer.itemsize = 1
        buffer.readonly = 1
        buffer.ndim = 1
        buffer.format = b"B"
        buffer.shape = self.shape
        buffer.strides = self.stride
        buffer.suboffsets = NULL
        buffer.internal = NULL
        self.views += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.views -= 1

    def close(self):
        # type: (...) -> None
        """Idempotent. The mapping stays while Python views of it exist; no new ones are made."""
        self.closing = True
        self.release_fd()
        self.unmap()

    def discard(self, bint durable=False):
        # type: (...) -> None
        """Delete the file after its owner has detached it; unmaps without the GIL. Any thread. OSError:
        the file still exists. `durable`: the deletion is on the disk on return, before any later deletion."""
        self.closing = True
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            pass
        if durable:
            fsync_dir(os.path.dirname(self.path))
        self.close()

    cdef void unmap(self) noexcept:
        """Unmap, unless Python views of the mapping exist."""
        cdef uint8_t *map = self.map
        cdef int64_t size = self.size
        global unmappings
        unmappings += 1
        if map is not NULL and self.views == 0:
            self.map = NULL
            with nogil:
                munmap(map, size)

    cdef int open_file(self, bint create, bint writable) except -1:
        """Open, or create at full size. OSError, also if the file is too short: the caller has to check its
        size first."""
        cdef struct_stat about
        cdef bytes path
        if self.fd >= 0:
            return 0
        path = os.fsencode(self.path)
        if create:
            self.create_file(path)
            return 0
        self.fd = c_open(path, (O_RDWR if writable else O_RDONLY) | O_CLOEXEC)
        if self.fd < 0:
            raise os_error(errno, self.path)
        if fstat(self.fd, &about) != 0 or about.st_size < self.size:
            self.release_fd()
            raise os_error(EIO, self.path)
        return 0

    cdef int create_file(self, bytes path) except -1:
        """Create the file at full size, without the GIL, since the file system may be slow. OSError: no file
        is left."""
        cdef const char *name = path
        cdef int error = injected(CALL_CREATE), fd
        with nogil:
            fd = c_open(name, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0o644)
            if fd < 0:
                error = errno
            elif error == 0 and ftruncate(fd, self.size) != 0:
                error = errno
        if error == 0:
            self.fd = fd
            return 0
        if fd >= 0:
            c_close(fd)
            os.unlink(self.path)
        raise os_error(error, self.path)

    cdef int ensure_mapped(self, bint writable) except -1:
        cdef void *map
        cdef bint opened = self.fd < 0
        if self.map is not NULL:
            return 0
        self.open_file(False, writable)
        map = mmap(NULL, self.size, PROT_READ | (PROT_WRITE if writable else 0), MAP_SHARED, self.fd, 0)
        error = errno
        if opened:
            self.release_fd()
        if map == MAP_FAILED:
            raise os_error(error, self.path)
        self.map = <uint8_t *> map
        self.writable_map = writable
        return 0

    cdef int write_at(self, int64_t position, const uint8_t *data, int64_t length) noexcept nogil:
        cdef int error = injected(CALL_PWRITE) if length > 0 else 0
        if error != 0:
            if 0 < fault_bytes < length:
                write_fully(self.fd, position, data, fault_bytes)
            return -error
        return write_fully(self.fd, position, data, length)

    cdef int read_at(self, int64_t position, uint8_t *to, int64_t length) noexcept nogil:
        """Read without a mapping; short files give zeros."""
        cdef long got
        while length > 0:
            got = pread(self.fd, to, length, <off_t> position)
            if got < 0:
                if errno == EINTR:
                    continue
                return -errno
            if got == 0:
                while length > 0:
                    to[0] = 0
                    to += 1
                    length -= 1
                return 0
            to += got
            position += got
            length -= got
        return 0

    cdef int reserve(self, int64_t until, int64_t step_max) noexcept nogil:
        """Write zeros from `reserved` to at least `until`, in steps that double up to `step_max`.

        Nothing past `reserved` is in use. Zeros cost less than posix_fallocate in the end: the first store
        into a mapped page takes 10 us then, and 2 to 5 ms on blocks that were only allocated.
        """
        cdef int64_t step = min(max(self.reserved, <int64_t> PAGE_BYTES), step_max)
        cdef int64_t rounded = min(until + PAGE_BYTES - 1 & ~<int64_t> (PAGE_BYTES - 1), self.size)
        cdef int64_t goal = max(
            rounded,
            min(self.reserved + step + PAGE_BYTES - 1 & ~<int64_t> (PAGE_BYTES - 1), self.size),
        )
        cdef int64_t chunk
        cdef bint opened = self.fd < 0
        cdef int status = 0
        if until <= self.reserved:
            return 0
        if opened:
            status = self.open_for_writing()
        while status == 0 and self.reserved < goal:
            chunk = min(goal - self.reserved, <int64_t> ZEROS_BYTES)
            status = -injected(CALL_RESERVE)
            if status == 0:
                status = write_fully(self.fd, self.reserved, ZEROS, chunk)
            if status == 0:
                self.reserved += chunk
            elif goal > rounded:
                goal, status = rounded, 0         # a full disk: the blocks may be there already
        if opened and self.fd >= 0:
            c_close(self.fd)
            self.fd = -1
        return status

    cdef int64_t write_zeros(self, int64_t position, int64_t length) noexcept nogil:
        """Write zeros past `length` bytes, up to a multiple of ZEROS_BYTES; returns where they end. They
        begin with the next page, but not before the last such multiple: a long write needs none.
        Errors only shorten it."""
        cdef int64_t end = min(position + length + ZEROS_BYTES & ~<int64_t> (ZEROS_BYTES - 1), self.size)
        cdef int64_t chunk
        position = max(
            position + PAGE_BYTES - 1 & ~<int64_t> (PAGE_BYTES - 1),
            position + length & ~<int64_t> (ZEROS_BYTES - 1),
        )
        while position < end:
            chunk = min(end - position, ZEROS_BYTES - position % ZEROS_BYTES)
            if write_fully(self.fd, position, ZEROS, chunk) < 0:
                break
            position += chunk
        return position

    cdef int allocate(self, int64_t until) noexcept nogil:
        """Allocate blocks for the first bytes of a new file without writing them: for what is written in
        random order. The file must be open."""
        cdef int error = injected(CALL_RESERVE)
        if error == 0:
            error = posix_fallocate(self.fd, 0, until)
        if error == 0:
            self.reserved = until
        return -error

    cdef int open_for_writing(self) noexcept nogil:
        cdef int status = 0
        with gil:
            try:
                self.open_file(False, True)
            except OSError as failed:
                status = -failed.errno
            except MemoryError:
                status = -ENOMEM
        return status

    cdef int sync_data(self) noexcept nogil:
        return sync_fd(self.fd)

    cdef int sync_map(self, int64_t length) noexcept nogil:
        cdef int error = injected(CALL_SYNC)
        if error != 0:
            return -error
        if self.map is NULL or not self.writable_map or length <= 0:
            return 0
        return 0 if msync(self.map, length, MS_SYNC) == 0 else -errno

    cdef int sync_closed(self) noexcept:
        """Sync what was written through a mapping that is unmapped by now; 0 or a negative errno."""
        cdef bytes path
        cdef const char *name
        cdef int status = -injected(CALL_SYNC)
        try:
            path = os.fsencode(self.path)
        except MemoryError:
            status = -ENOMEM
        if status == 0:
            name = path
            with nogil:
                status = sync_path(name)
        return status

    cdef void release_fd(self) noexcept:
        if self.fd >= 0:
            c_close(self.fd)
            self.fd = -1


cdef int zero_tail(Segment segment, int64_t position) except -1:
    """Zero all nonzero bytes from a position on; holes of a sparse file stay holes."""
    cdef int64_t data, hole, chunk
    cdef int status
    while position < segment.size:
        try:
            data = os.lseek(segment.fd, position, os.SEEK_DATA)
        except OSError:
            return 0
        hole = min(os.lseek(segment.fd, data, os.SEEK_HOLE), segment.size)
        position = data
        while position < hole:
            chunk = min(hole - position, <int64_t> ZEROS_BYTES)
            if os.pread(segment.fd, chunk, position).count(0) < chunk:
                status = segment.write_at(position, ZEROS, chunk)
                if status < 0:
                    raise OSError(-status, os.strerror(-status), segment.path)
            position += chunk
    return 0
