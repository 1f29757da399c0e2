# An entry that leads astray: a reader followed it and met another record, or none. The queue's record for
# that place is looked for in the log between those of its neighbours, and the entry put right; the reader
# goes on with it.
#
# The walk is bounded by WALK_BYTES_MAX, for it keeps the loop: what is farther away is passed over by
# readers, and left to the comparison at the next open, which any entry astray calls for. Each is looked for
# and told once (strays). What lies in the schedule topic is left alone: its tags code is a time. Thread: the
# appender's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue

# The record for the entry, and its size; NULL without an exception: it is not near. OSError.
cdef const uint8_t *repair_entry(CommitLog log, ConsumeQueue queue, int64_t entry, int32_t *size) except? NULL
