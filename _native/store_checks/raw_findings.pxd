# RawFindings: what a compiled check found wrong, as a bounded list for each kind and exact counts. Adding a
# finding creates no Python object. Callers, which know the files, turn each into a Finding.
#
# Findings of one kind and owner with consecutive numbers become one with a count, if the kind allows it.

cimport cython
from libc.stdint cimport int64_t

cdef enum RawKind:             # in the order of KINDS
    BAD_CRC                    # a record's body does not match its crc
    NO_ENTRY                   # a record has no queue entry
    WRONG_ENTRY                # … has one with another physical offset or size
    WRONG_TAGS                 # … has one with another tags code
    LOST_RECORD                # a queue entry points to no record
    QUEUE_GAP                  # nothing was written where an entry should be
    QUEUE_ORDER                # an entry has a lower physical offset than the previous one
    NO_KEY                     # a record has a key that is not in the index
    WRONG_KEY                  # an index entry points to no record with the key
    INDEX_CHAIN                # an index entry does not point to the previous one of its slot
    INDEX_SLOT                 # a slot does not point to the newest entry of its chain
    INDEX_ORDER                # an index entry has a lower physical offset than the previous one
    KINDS_END

cdef struct FindingRow:
    int kind
    int owner                  # number of the queue that it belongs to, or -1
    int64_t number             # queue offset, number of a record, an index entry, a slot
    int64_t physical_offset    # of INDEX_SLOT: the newest entry
    int64_t size
    int64_t seen               # the value that is there instead
    int64_t count


@cython.final
cdef class RawFindings:
    cdef FindingRow *rows
    cdef Py_ssize_t count, limit, capacity
    cdef int64_t counts[12]
    cdef Py_ssize_t kept[12]

    cdef int grow(self) except -1
    cdef int add(
        self, int kind, int owner, int64_t number, int64_t physical_offset, int64_t size, int64_t seen
    ) except -1
