# CommitLog: the segments of the log in order, all of one size; one appender.
#
# Appending is staged: `reserve_record` reserves space for a record in the staging buffer of the write batch
# and gives its physical offset; `write` copies the buffer to the segments, one pwrite each (a batch rarely
# spans two). Until then nothing is in a file, and `drop_staged` discards it. A record that would not leave
# RECORD_END_BYTES free in its segment goes to the next one, and a blank record fills the old one.
#
# `write` first writes zeros past the end, up to a multiple of ZEROS_BYTES: the page cache then gets large
# folios, at half the price of pages that come with each batch. And if the log is synced often, most syncs
# find blocks allocated: syncing a new block's allocation takes longer than syncing its bytes.
#
# Positions: min_offset <= confirmed <= written <= staged. `flushed`: covered by a completed fdatasync.
# Owner: MessageStore. Thread: the appender's; `sync` may run in others.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.store.log.record cimport RecordView
from firearrow._native.store.files.segment cimport Segment
from firearrow._native.store.files.sync_gate cimport SyncGate

cdef bytes blank_record(int64_t left)


@cython.final
cdef class CommitLog:
    cdef readonly str folder
    cdef readonly int64_t segment_bytes
    cdef readonly bint readonly
    cdef list segments
    cdef object creating                  # lock: held while a segment file is created
    cdef readonly object recycled  # type: RecycledSegment  # RecycledSegment; None if read only
    cdef object preallocator              # Preallocator; None if read only
    cdef SyncGate *sync_gate
    cdef uint8_t *staging
    cdef int64_t staging_capacity
    cdef int64_t staging_bytes
    cdef int64_t staging_base             # physical offset of the first staged byte
    # end of the segment of the last staged record, kept to save a division for each record
    cdef int64_t segment_end
    cdef readonly int64_t written
    cdef readonly int64_t flushed
    # by a GroupCommit: then the zeros allocate the blocks, not the preallocator
    cdef bint synced_often
    cdef int64_t zeroed                   # zeros are written up to here
    # records below were not checked since the store was opened: readers check their CRC
    cdef public int64_t trusted
    cdef public int64_t refused           # number of queue entries found that do not match their record
    cdef public int64_t size_max          # largest record, in bytes
    cdef bint on_tmpfs                    # reading a hole of a mapped file may be SIGBUS
    cdef int64_t data_from, data_until    # a range without holes, found by `has_data`

    cdef int64_t start(self) except -1
    cdef Segment segment_at(self, int64_t physical_offset)
    cdef const uint8_t *bytes_at(self, int64_t physical_offset, int64_t *available) except? NULL
    cdef int64_t staged_end(self) noexcept
    cdef int reserve_contiguous(self, int64_t size) except -1
    cdef int fill(self, int64_t end, int64_t left) except -1
    cdef uint8_t *reserve_record(self, int64_t size, int64_t *physical_offset) except NULL
    cdef int64_t write(self) except -1
    cdef void drop_staged(self) noexcept
    cdef bint is_backed(self, int64_t physical_offset, const uint8_t *at, int64_t available) except -1
    cdef bint has_data(self, int64_t physical_offset, int64_t length) except -1
    cdef int look(self, int64_t physical_offset, bint check_crc, RecordView *view) except -100
    cdef Segment segment_for(self, int64_t physical_offset)
    cdef int make_segment(self, int64_t base) except -1
    cdef uint8_t *stage(self, int64_t end, int64_t size) except NULL
    cdef list unflushed(self)
    cdef int synced(self, int64_t until) except -1
    cdef int release_flushed(self) except -1
    cdef int rollback_staged(self, int64_t failed_at) except -1
    cdef int truncate(self, int64_t physical_offset) except -1
