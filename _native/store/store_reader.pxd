# StoreReader: read access to an open store, to entries below `confirmed`. MessageStore owns it, and opens and
# closes log, queues and index. Pointers into the mapped log are valid within one call.
#
# An offset from outside (a request, a message id, another broker) leads to a record only if an entry of its
# queue points there: `record_at`. Whoever may send can write bytes that look like a record into a body.
#
# Thread: the appender's; any for `drain_entry_repairs`.

cimport cython
from libc.stdint cimport int32_t, int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.store.get_message cimport Limits
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.log.record cimport RecordView


@cython.final
cdef class StoreReader:
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index                   # None: messages are not indexed
    cdef Limits limits
    cdef readonly int64_t confirmed  # Records below this offset of the log are visible.
    # From which queues of compaction topics are read, up to where messages are copied into it:
    cdef readonly dict compacted  # type: dict[tuple[str, int], CompactionLog]

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id)
    cdef object compaction_log(self, str topic, int64_t queue_id)
    cdef bint find_record(self, int64_t physical_offset, bint unconfirmed, RecordView *view) except -1
    cdef bint is_trimmed(self, const RecordView *view) except -1
    cdef bint has_entry(self, const RecordView *view) except -1
    cdef bint points_to(
        self, bytes topic, int32_t queue_id, int64_t queue_offset, const RecordView *view
    ) except -1
