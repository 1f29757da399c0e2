# LagTable: one snapshot of how far each group is behind in each topic and queue, and of what it got. `add`
# reads the offsets of some groups in the loop thread; when all are added, any thread may call `lines`,
# which holds the GIL only to begin and end.
#
# At most `rows_max` rows, and as many rows of queues, are kept; the others are summed up in one row,
# `beyond`, whose ages are the highest ones. Names are kept as label values, escaped once. Units: messages,
# milliseconds.
#
# Ownership: the rows are the table's; names are bytes objects in `names`, which outlives them.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.store_reader cimport StoreReader

cdef enum:
    LAG, READY, IN_FLIGHT, LAG_MS, READY_MS, GOT, GOT_BYTES, LAG_VALUES

cdef struct LagRow:
    const char *topic
    const char *group                     # label values; `names` owns them
    int32_t topic_bytes, group_bytes
    bint is_retry, is_system, has_offsets, has_gets
    int64_t values[LAG_VALUES]

cdef struct QueueRow:
    int32_t row, queue_id
    int64_t lag, lag_ms


cdef enum:
    AGES_KEPT = 16

# of the message at this entry; groups are often at the same ones
cdef struct KnownAge:
    void *queue                           # a ConsumeQueue; NULL: none is known
    int64_t entry, age


cdef class TopicQueues:
    cdef KnownAge ages[AGES_KEPT]
    cdef list queues                      # ConsumeQueue or None, by id; as many as were asked for
    cdef str topic
    cdef bytes raw, label
    cdef bint is_retry, is_system


cdef class LagTable:
    cdef StoreReader reader
    cdef CommitLog log
    cdef int64_t now_ms
    cdef Py_ssize_t rows_max
    cdef dict read                        # group → its subscriptions; None: all rows are kept
    cdef object is_system_topic, is_system_group
    cdef list names                       # label values
    cdef dict topics                      # topic → TopicQueues
    cdef dict groups                      # group → (label value, is system)
    cdef set retries                      # (group, topic) of rows of POP's retry topics
    cdef LagRow *rows
    cdef QueueRow *queue_rows
    cdef readonly Py_ssize_t count, queue_count  # Rows: pairs of group and topic.
    cdef Py_ssize_t capacity, queue_capacity
    cdef readonly Py_ssize_t beyond_count, beyond_queue_count  # Rows that were not kept; their sum is.
    cdef LagRow beyond
    cdef QueueRow beyond_queues

    cdef int add_one(
        self, str key, dict committed, dict pulled, dict in_flight, dict gets
    ) except -1
    cdef int add_offsets(self, LagRow *row, TopicQueues topic, dict offsets, pulls) except -1
    cdef int add_queue_row(self, int32_t queue_id, int64_t lag, int64_t lag_ms) except -1
    cdef TopicQueues topic_of(self, str topic)
    cdef tuple group_of(self, str group)
    cdef ConsumeQueue queue_of(self, TopicQueues topic, int32_t queue_id)
    cdef bytes label_topic(self, TopicQueues topic, str group)
    cdef bytes kept_label(self, str text)
    cdef int keep(self, LagRow *row, TopicQueues topic, str group) except -1
    cdef int64_t age_of(self, TopicQueues topic, ConsumeQueue queue, int64_t entry) except -1
