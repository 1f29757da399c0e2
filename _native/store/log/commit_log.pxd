# The log: segments of one size in order, one appender.
#
# Appending is staged: `place` hands out the room for a record in the turn's staging buffer and its physical
# offset; `write` brings the staging to the segments with one pwrite each (a turn rarely touches two). Until
# then nothing is in a file, and `drop_staged` forgets it all. A record that does not leave RECORD_END_BYTES
# free in its segment goes to the next one, and a blank record fills the old one.
#
# A log that is synced often (`zeros_ahead`) has zeros written behind its end, so that most syncs meet blocks
# that are there: bringing a new block's place to the disk takes longer than its bytes. They go with the sync
# that was asked for anyway.
#
# Positions: min_offset <= confirmed <= written <= staged. `flushed` is what fdatasync is known to cover.
# Owner: store. Thread: the appender's; `sync` may run in others.

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
    cdef object creating                    # held while a segment's file is made
    cdef readonly object recycled            # of a log that is written
    cdef object preallocator                    # likewise
    cdef SyncGate *sync_gate
    cdef uint8_t *staging
    cdef int64_t staging_capacity
    cdef int64_t staging_bytes
    cdef int64_t staging_base             # physical offset of the first staged byte
    # of the segment where the last record was staged: a division for each costs
    cdef int64_t segment_end
    cdef readonly int64_t written
    cdef readonly int64_t flushed
    # how many bytes of zeros are written at once behind the end; 0: none
    cdef int64_t zeros_ahead
    cdef int64_t zeroed                   # there are zeros up to here
    # records below were not checked since they were written: readers check their CRC
    cdef public int64_t trusted
    cdef public int64_t refused           # entries met that do not agree with the record they point to
    cdef public int64_t size_max          # of one record

    cdef int64_t start(self) except -1
    cdef Segment segment_at(self, int64_t physical_offset)
    cdef const uint8_t *bytes_at(self, int64_t physical_offset, int64_t *available) except? NULL
    cdef int64_t staged_end(self) noexcept
    cdef int reserve_contiguous(self, int64_t size) except -1
    cdef int fill(self, int64_t end, int64_t left) except -1
    cdef uint8_t *place(self, int64_t size, int64_t *physical_offset) except NULL
    cdef int64_t write(self) except -1
    cdef void drop_staged(self) noexcept
    cdef int look(self, int64_t physical_offset, bint check_crc, RecordView *view) except -100
    cdef Segment segment_for(self, int64_t physical_offset)
    cdef int make_segment(self, int64_t base) except -1
    cdef uint8_t *stage(self, int64_t end, int64_t size) except NULL
    cdef list unflushed(self)
    cdef int synced(self, int64_t until) except -1
    cdef int release_flushed(self) except -1
    cdef int rollback_staged(self, int64_t failed_at) except -1
    cdef int truncate(self, int64_t physical_offset) except -1
