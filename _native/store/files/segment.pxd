# One mapped file: the only place that knows mmap, pwrite, fdatasync and fallocate.
#
# A file has its full size from the beginning (sparse, as Apache makes it). Log segments are written with
# pwrite and read through a read-only shared mapping; the page cache makes both views one, and a full disk is
# an errno. Queue and index files are written through a shared mapping, but only below `reserved`: zeros are
# written there first, so that a full disk is an errno there, too, and never a SIGBUS.
#
# Owner: commitlog, consumequeue or keyindex. Mapped pointers are borrowed for one call of the store and never
# leave it; `close` with views exported to Python is put off until the last one is gone. Calls return 0 or a
# negative errno. `discard` deletes a file that its owner let go of: who has it mapped, here or in another
# process, reads on. Thread: the appender's; `sync_data` may run in one other thread while the segment is
# open, `discard` in any.

cimport cython
from libc.stdint cimport int64_t, uint8_t

# so many times any segment's memory was given back, or its file closed
cdef int64_t unmappings
cdef int sync_fd(int fd) noexcept nogil


@cython.final
cdef class Segment:
    cdef str folder, name                 # its owner's, for there may be very many; name None: by its base
    cdef readonly int64_t base            # offset of the file's first byte in its queue
    cdef readonly int64_t size
    cdef int fd
    cdef uint8_t *map
    cdef bint writable_map
    cdef bint touched                     # used since the hand of `mappings` passed it
    cdef int64_t reserved
    cdef int syncing                      # times that a thread syncs it: it stays open
    cdef int views
    cdef bint closing
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t stride[1]

    cdef int open_file(self, bint create, bint writable) except -1
    cdef int create_file(self, bytes path) except -1
    cdef int ensure_mapped(self, bint writable) except -1
    cdef int write_at(self, int64_t position, const uint8_t *data, int64_t length) noexcept nogil
    cdef int read_at(self, int64_t position, uint8_t *to, int64_t length) noexcept nogil
    cdef int reserve(self, int64_t until, int64_t step_max) noexcept nogil
    cdef int64_t write_zeros(self, int64_t position, int64_t length) noexcept nogil
    cdef int allocate(self, int64_t until) noexcept nogil
    cdef int open_for_writing(self) noexcept nogil
    cdef int sync_data(self) noexcept nogil
    cdef int sync_map(self, int64_t length) noexcept nogil
    cdef void release_fd(self) noexcept
    cdef void unmap(self) noexcept
    cdef int sync_closed(self) noexcept


cdef int zero_tail(Segment segment, int64_t position) except -1
