# ConsumeQueue: one queue of one topic, entries that point into the log. Entry n is at byte n * entry_bytes.
#
# An entry has 20 bytes and is of the message whose queue offset is its number. In a batch queue (Apache:
# BatchCQ) it has 46, of which the first 20 are the same, and may be of several messages;
# batch_consume_queue.pxd knows the offsets of these.
#
# min_entry <= visible <= end_entry <= next_entry: readable from `min_entry`, confirmed
# below `visible`, in the file below `end_entry`, reserved for staged messages below `next_entry`.
#
# Files are mapped on first use (Mappings), no descriptor stays open. An entry is a store into a shared
# mapping where zeros were written before (4 KiB, then doubling to 256 KiB): with many topics, a pwrite for
# each queue and write batch would cost more than the rest of the batch.
# The first entries of a lite topic are in `buffer` until the flusher makes the file: two folders and a file
# cost the file system up to a millisecond, and all that is written waits for it.
# Queue files have no checksum: the log is authoritative, and missing or wrong entries are rebuilt from it.
# Owner: Dispatch, which calls `close` or `delete`: a queue and its files refer to each other. Thread: the
# appender's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.files.mmap_budget cimport Mappings
from firearrow._native.store.files.segment cimport Segment


@cython.final
cdef class PendingFiles:
    cdef list queues                      # since the last turn
    cdef list turn                        # whose files are made first: a checkpoint waits for them
    cdef list retired                     # buffers of the last turn: others may still read them
    cdef object lock                      # held while files are made, or such a queue is deleted
    cdef bint suspended                   # queues make their files at once

    cdef bint begin_turn(self, bint all) except -1
    cdef bint make(self, double until) except -1


@cython.final
cdef class ConsumeQueue:
    # fields that every message uses, in one cache line: with many queues each is a cache miss
    cdef readonly int32_t queue_id
    cdef bint dirty                       # has entries or files that are not synced, and is in `changed`
    cdef int64_t reply_batch_number       # number of the last reply batch with this queue
    cdef readonly int64_t end_entry, next_entry, visible
    cdef readonly int64_t max_physical    # end of the last record that is in the queue
    # memory of the entries in [tail_from, tail_until), with disk blocks; valid while `unmappings` is still
    cdef uint8_t *tail
    # `tail_seen`
    cdef int64_t tail_from, tail_until
    cdef int64_t tail_seen
    cdef int32_t topic_key_hash           # hash of `topic#`, the start of the hashes of its keys
    cdef readonly int32_t entry_bytes

    cdef readonly str topic
    cdef readonly str parent              # folder of all topics, shared by very many
    cdef readonly int64_t file_bytes
    cdef readonly bint readonly
    cdef list files
    cdef Mappings mappings                # None if read only
    cdef public object entry_repairs      # EntryRepairs; None if read only
    cdef bytearray buffer                 # the entries, zeros above; None: they are in files
    cdef PendingFiles pending             # Dispatch's; None: the queue is of no lite topic
    cdef list changed                     # Dispatch's, of all queues that are not synced; None: of no store
    cdef readonly int64_t min_entry
    cdef int64_t min_physical             # of the record of `min_entry`; -1: unknown
    cdef int64_t synced_entry             # entries below are synced
    cdef bint named                       # new files: their folders need a sync

    cdef Segment file_of(self, int64_t entry)
    cdef int ensure_mapped(self, Segment file) except -1
    cdef bint look(self, int64_t entry, uint8_t *to) except -1
    cdef const uint8_t *entry_at(self, int64_t entry) except? NULL
    cdef const uint8_t *entries_at(self, int64_t entry, int64_t *count) except? NULL
    cdef int mark_dirty(self) except -1
    cdef uint8_t *next_slot(self) except NULL
    cdef int append(self, int64_t physical_offset, int32_t size, int64_t tags_code) except -1
    cdef int begin_at(self, int64_t entry) except -1
    cdef int64_t last_end(self) except -1
    cdef int truncate(self, int64_t physical_offset) except -1
    cdef int correct_min(self, int64_t min_physical) except -1
    cdef int load(self, positions) except -1
    cdef int find_end(self) except -1
    cdef int64_t valid_entries(self, Segment file) except -1
    cdef uint8_t *slot_at(self, int64_t entry) except NULL
    cdef int extend_to(self, int64_t entry) except -1
    cdef int64_t buffered_max(self) noexcept
    cdef int extend_buffer(self, int64_t entry) except -1
    cdef int make_files(self) except -1
    cdef int drop_buffer(self) except -1
