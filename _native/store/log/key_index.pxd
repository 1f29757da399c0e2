# The index files: key → physical offsets (Apache's IndexFile, layout.pxd).
#
# One file takes entries until it is full, then the next one is made. An entry is written first, then the slot
# that names it, then the header's count: a process killed between them leaves an entry that `remove_from`
# finds. Entries stand in the order of their physical offsets, so that the newest ones can be undone exactly,
# one by one. Slots are reserved when a file is made, entries in steps of 1 MiB.
# Owner: store. Thread: the appender's; `sync` may run in another one.
# The index hashes of staged records, in the records' order: of `topic#key` for the unique key and each key,
# and of `topic#T#tag`. One vector for all of them; a plan says how many of it are its own. `add_keys` lays a
# record's hashes behind the others, the caller counts them once the record is planned: those of one that was
# not are written over. How those of a topic begin, its queues keep.
# Owner: dispatch. Thread: the appender's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from firearrow._native.store.files.segment cimport Segment
from libc.stdint cimport int32_t, uint8_t
from firearrow._native.store.log.record cimport Properties


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


cdef int32_t keys_of(const uint8_t *topic, Py_ssize_t length) noexcept nogil


@cython.final
cdef class KeyHashes:
    cdef int32_t *at
    cdef Py_ssize_t count, capacity            # of the hashes of planned records

    cdef int32_t add_keys(self, int32_t topic_key_hash, const Properties *properties) except -1
    cdef int put(self, Py_ssize_t place, int32_t key_hash) except -1
