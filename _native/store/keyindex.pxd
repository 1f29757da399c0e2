# The index files: key → physical offsets (Apache's IndexFile, layout.pxd).
#
# One file takes entries until it is full, then the next one is made. An entry is written first, then the slot
# that names it, then the header's count: a process killed between them leaves an entry that `remove_from`
# finds. Entries stand in the order of their physical offsets, so that the newest ones can be undone exactly,
# one by one. Slots are reserved when a file is made, entries in steps of 1 MiB.
# Owner: store. Thread: the appender's; `sync` may run in another one.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from firearrow._native.store.files.segment cimport Segment


@cython.final
cdef class IndexFile:
    cdef readonly Segment file
    cdef readonly int64_t slots, entries_max
    cdef uint64_t slots_inverse
    cdef bint dirty

    cdef int put(self, int32_t key_hash, int64_t physical_offset, int64_t store_time) except -1
    cdef int reserve(self, int64_t until) except -1
    cdef int64_t reserved(self) noexcept
    cdef int64_t count(self) except -1
    cdef uint8_t *entry(self, int64_t number) noexcept
    cdef uint8_t *slot(self, int32_t key_hash) noexcept


@cython.final
cdef class KeyIndex:
    cdef readonly str folder
    cdef readonly int64_t slots, entries_max
    cdef list files
    cdef IndexFile next_segment                   # the next file, made ahead
    cdef IndexFile filling                 # the last file, while it has
    # memory and disk blocks for so many entries more; 0: it is to be asked
    cdef int64_t capacity
    cdef bint dirty, named                 # a file holds what is not synced; the folder does
    cdef bint lost_keys                    # a file was removed that told nothing of its content

    cdef int ensure_capacity(self, int64_t entries) except -1
    cdef void prefetch(self, const int32_t *hashes, Py_ssize_t count) noexcept
    cdef int reserve(self, int64_t entries) except -1
    cdef IndexFile next_file(self)
    cdef int put(self, int32_t key_hash, int64_t physical_offset, int64_t store_time) except -1
