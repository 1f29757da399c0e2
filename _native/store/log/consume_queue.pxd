# One queue of one topic: 20-byte entries that point into the log. Entry n lies at byte n * 20.
#
# Offsets count entries. min_entry <= visible <= end_entry <= next_entry: what may be read starts at
# `min_entry`, is confirmed below `visible`, is in the file below `end_entry`, and is promised to staged
# messages below `next_entry`.
#
# Files are mapped when they are first needed (mappings), no descriptor stays open. Entries are stores into a
# shared mapping below zeros that were written first (4 KiB, then doubling to 256 KiB): one pwrite for each
# queue and turn would cost more than all the rest of a turn with many topics.
# A queue file carries no checksum: the log is the truth, and whatever is missing or behind is rebuilt from
# it. Owner: store. Thread: the appender's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.files.mmap_budget cimport Mappings
from firearrow._native.store.files.segment cimport Segment


@cython.final
cdef class ConsumeQueue:
    # what every message touches, together: with many queues each line of memory is waited for
    cdef readonly int32_t queue_id
    cdef bint dirty                       # entries are not on the disk
    cdef int64_t reply_batch_number                      # for the appender: number of its run that came here last
    cdef readonly int64_t end_entry, next_entry, visible
    cdef readonly int64_t max_physical    # end of the last record that is in the queue
    # memory of the entries from `tail_from` to `tail_until`, whose disk blocks are
    cdef uint8_t *tail
    cdef int64_t tail_from, tail_until    # there, too, as long as no more than `tail_seen` mappings went
    cdef int64_t tail_seen
    cdef int32_t topic_key_hash                  # how hashes of its topic's keys begin

    cdef readonly str topic
    cdef readonly str folder
    cdef readonly int64_t file_bytes
    cdef readonly bint readonly
    cdef list files
    cdef Mappings mappings                # None where it is only read
    cdef public object entry_repairs             # Strays; None where it is only read
    cdef readonly int64_t min_entry
    cdef int64_t min_physical             # of the record of `min_entry`; -1: not known
    cdef int64_t synced_entry             # entries below are on the disk
    cdef bint named                       # names of files are not on the disk

    cdef Segment file_of(self, int64_t entry)
    cdef int ensure_mapped(self, Segment file) except -1
    cdef bint look(self, int64_t entry, uint8_t *to) except -1
    cdef const uint8_t *entry_at(self, int64_t entry) except? NULL
    cdef const uint8_t *entries_at(self, int64_t entry, int64_t *count) except? NULL
    cdef uint8_t *next_slot(self) except NULL
    cdef int append(self, int64_t physical_offset, int32_t size, int64_t tags_code) except -1
    cdef int begin_at(self, int64_t entry) except -1
    cdef int64_t last_end(self) except -1
    cdef int truncate(self, int64_t physical_offset) except -1
    cdef int correct_min(self, int64_t min_physical) except -1
    cdef int load(self) except -1
    cdef int find_end(self) except -1
    cdef int64_t valid_entries(self, Segment file) except -1
    cdef uint8_t *place(self, int64_t entry) except NULL
    cdef int extend_to(self, int64_t entry) except -1
