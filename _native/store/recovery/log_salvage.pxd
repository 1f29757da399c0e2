# Gaps: damaged ranges of the log with valid records after them (unlike a torn tail).
#
# `next_valid_record` finds where the log continues: the first record that passes every check, above all that
# of its own offset. `fill_gap` replaces the range by something that every broker skips: records of a rolled
# back transaction, which have no queue or index entry, or a blank up to the end of the segment. The old bytes
# are copied to STORE/damaged first. Thread: the appender's, at the open.

from libc.stdint cimport int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.record cimport RecordView

cdef int64_t next_valid_record(CommitLog log, int64_t at, RecordView *view) except -2
cdef int fill_gap(CommitLog log, int64_t at, int64_t end, int64_t store_time, object repair_log) except -1
