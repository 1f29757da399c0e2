# Repairs a wrong entry: a reader followed it and found another record, or none. The log is searched for the
# queue's record between the records of the neighbouring entries; if found, the entry is rewritten and the
# reader continues with it.
#
# The search is limited to WALK_BYTES_MAX, since it blocks the event loop. Readers skip an entry whose record
# is farther away; the next open compares the queues with the log, as after any wrong entry. Each entry is
# searched for and reported once (EntryRepairs). The schedule topic is left alone: its tags codes are times.
# Thread: the appender's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

# The record of the entry and its size; NULL without an exception: not found nearby. OSError.
cdef const uint8_t *repair_entry(CommitLog log, ConsumeQueue queue, int64_t entry, int32_t *size) except? NULL
