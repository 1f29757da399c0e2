# Segment: one mapped file. The only module that calls mmap, pwrite, fdatasync and fallocate.
#
# A file has its full size from the start (sparse, as Apache makes it). Log segments are written with pwrite
# and read through a read-only shared mapping; both share the page cache, and a full disk is an errno. Queue
# and index files are written through a shared mapping, but only below `reserved`: zeros are written there
# first, so that a full disk is an errno there, too, and never a SIGBUS.
#
# Owner: CommitLog, ConsumeQueue or KeyIndex. Mapped pointers are valid within one call of the store and never
# leave it; while Python views exist, `close` keeps the mapping until the last one is gone. Calls return 0 or
# a negative errno. `discard` deletes a file that its owner has detached; processes that have it mapped can
# still read it. Thread: the appender's; `sync_data` may run in one other thread while the segment is open,
# `discard` in any.

cimport cython
from libc.stdint cimport int64_t, uint8_t

# how often any segment was unmapped or closed: a cached pointer is valid only while this stays the same
cdef int64_t unmappings
cdef int sync_fd(int fd) noexcept nogil


@cython.final
cdef class Segment:
    cdef object folder                    # a path, shared by very many, or the owner, which knows it
    cdef str name                         # None: from `base`
    cdef readonly int64_t base            # offset of the file's first byte in its queue
    cdef readonly int64_t size
    cdef int fd
    cdef uint8_t *map
    cdef bint writable_map
    cdef bint touched                     # used since the hand of Mappings passed it
    cdef int64_t reserved
    cdef int syncing                      # threads that sync it now: the file stays open
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
