# KeyIndex: key → physical offsets (Apache's IndexFile, see files/layout.pxd).
#
# One file takes entries until it is full, then the next one is created. The entry is written first, then the
# slot that points to it, then the count in the header: a process killed in between leaves an entry that
# `remove_from` finds. Entries are in the order of their physical offsets, so that the newest ones can be
# removed one by one. Blocks for slots are allocated when a file is created, for entries in steps of 1 MiB.
# Owner: MessageStore. Thread: the appender's; `sync` may run in one other.
#
# KeyHashes: the index hashes of all staged records, in one vector in their order: of `topic#key` for the
# unique key and each key, and of `topic#T#tag`. Each staged record knows how many are its own. `add_keys`
# writes a record's hashes past `count`; the caller raises `count` once the record is staged, else the next
# record overwrites them. Owner: Dispatch. Thread: the appender's.

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
    cdef IndexFile prepared                # the next file, created in advance or reused
    cdef IndexFile filling                 # the last file, while `capacity` > 0
    # entries that `filling` takes without new disk blocks; 0: `reserve` first
    cdef int64_t capacity
    cdef bint dirty, named                 # files, the folder have unsynced changes
    cdef bint lost_keys                    # a file with an unreadable header was removed

    cdef int ensure_capacity(self, int64_t entries) except -1
    cdef void prefetch(self, const int32_t *hashes, Py_ssize_t count) noexcept
    cdef int reserve(self, int64_t entries) except -1
    cdef IndexFile next_file(self)
    cdef int put(self, int32_t key_hash, int64_t physical_offset, int64_t store_time) except -1
    cdef int discard(self, IndexFile file) except -1


cdef int32_t keys_of(const uint8_t *topic, Py_ssize_t length) noexcept nogil


@cython.final
cdef class KeyHashes:
    cdef int32_t *at
    cdef Py_ssize_t count, capacity            # of the staged records

    cdef int32_t add_keys(self, int32_t topic_key_hash, const Properties *properties) except -1
    cdef int put(self, Py_ssize_t index, int32_t key_hash) except -1
