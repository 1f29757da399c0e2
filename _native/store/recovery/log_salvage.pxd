# Holes: stretches of the log that hold no good record although good ones stand behind them (damage, never a
# torn tail).
#
# `next_valid_record` finds where the log goes on: a record is good there if everything is that makes a record good,
# its own offset above all. `fill_gap` makes the stretch something that every broker walks over: records of a
# rolled back transaction, which no queue and no index has, or a blank up to the segment's end. What stood
# there is kept aside first. Thread: the appender's, at the open.

from libc.stdint cimport int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.record cimport RecordView

cdef int64_t next_valid_record(CommitLog log, int64_t at, RecordView *view) except -2
cdef int fill_gap(CommitLog log, int64_t at, int64_t behind, int64_t store_time, object repair_log) except -1
