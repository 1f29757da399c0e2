# Survey: checks the records of a range of the log in one pass. Are they whole, is the CRC right, and which
# queue entries and keys must exist?
#
#   walk         makes a Row for each entry and a KeyRow for each key that must exist; counts by name and hour
#   match        compares rows of one queue with the entries of one of its files
#   settle       rows that are still open become findings
#   index_files  compares keys with the entries of an index file
#   clear        drops rows and keys, for the next part of the range
#
# Memory: `walk` stops at `rows_max` or `keys_max`; queues and topics are not limited. Order: rows and keys
# are in the order of the log. A call borrows the window only while it runs. One thread.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store_checks.raw_findings cimport RawFindings
from firearrow._native.columnar.counters cimport NameCounters
from firearrow._native.store.log.record cimport Properties, RecordView

cdef enum RowState:
    ROW_OPEN = 0
    ROW_FITS = 1
    ROW_OTHER = 2              # the entry has another physical offset or size
    ROW_TAGS = 3               # the entry has another tags code
    ROW_DELETED = 4            # of a deleted topic: its entry may be deleted, or be that of a later record

cdef struct Row:               # the entry that a record must have
    int64_t queue_offset, physical_offset, code, seen
    int32_t size, state

cdef struct QueueRows:
    Row *rows
    Py_ssize_t count, capacity
    int32_t topic, queue_id, topic_hash
    int64_t messages, bytes, first_ms, last_ms, fitting, low, high
    int64_t deleted_below, deleted_ms   # older records are of a deleted topic with this name
    bint is_lmq                 # named in INNER_MULTI_DISPATCH
    bint any_delay              # of delayed messages, whose delay levels are not known

cdef struct KeyRow:            # an index entry that a record must have
    int64_t physical_offset, record
    int32_t hash
    bint tag                   # of TAGS, which only Apache 5.5 and FireArrow put into the index
    bint found


@cython.final
cdef class Survey:
    cdef readonly RawFindings findings
    cdef readonly NameCounters tags  # Owner: number of the topic in `topic_names`.
    cdef readonly NameCounters hosts  # The address of the producer, 4 or 16 bytes.
    cdef readonly NameCounters hours  # Owner: hours since 1970, by the store time.
    cdef NameCounters topics, queue_names
    cdef QueueRows *known
    cdef Py_ssize_t queues_capacity, rows_count, rows_max
    cdef KeyRow *keys
    cdef Py_ssize_t keys_count, keys_capacity, keys_max
    cdef bint check_crc, with_keys
    cdef tuple delays_ms
    cdef dict deletions
    cdef readonly int64_t records, log_bytes
    cdef readonly int64_t half  # Records marked as prepared or rolled back: they have no entry.
    cdef readonly int64_t deleted  # Settled records of deleted topics, which have no entry.
    cdef readonly int64_t keys_expected, tags_expected, keys_found, tags_found
    cdef readonly int64_t keys_outside  # Keys of records that the index files do not cover.
    cdef readonly int64_t unknown_entries
    cdef readonly int torn     # why the walk ended: a RecordState, or 0: another physical offset

    cdef int add_record(self, const RecordView *view) except -1
    cdef int add_entries(
        self, Py_ssize_t number, const RecordView *view, const Properties *properties
    ) except -1
    cdef int add_lmq_entries(
        self, const RecordView *view, const Properties *properties, int64_t code,
    ) except -1
    cdef int add_keys(
        self, int32_t topic_hash, const RecordView *view, const Properties *properties
    ) except -1
    cdef int add_key(self, int32_t hash, const RecordView *view, bint tag) except -1
    cdef int add_row(
        self, Py_ssize_t number, const RecordView *view, int64_t queue_offset, int64_t code
    ) except -1
    cdef Py_ssize_t queue_of(self, const uint8_t *topic, Py_ssize_t length, int32_t queue_id) except -1
    cdef int64_t code_of(self, const RecordView *view, const Properties *properties) except? -1
