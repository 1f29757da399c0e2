# Faults: what a check found wrong, as a bounded list for each kind and exact counts. Adding a fault creates
# no Python object.
#
# Faults of one kind and owner with consecutive numbers become one fault with a count, if the kind allows it.

cimport cython
from libc.stdint cimport int64_t

cpdef enum FaultKind:
    BAD_CRC = 1                # a record's body does not match its crc
    NO_ENTRY = 2               # a record has no queue entry
    WRONG_ENTRY = 3            # … has one with another physical offset or size
    WRONG_TAGS = 4             # … has one with another tags code
    LOST_RECORD = 5            # a queue entry points to no record
    QUEUE_GAP = 6              # nothing was written where an entry should be
    QUEUE_ORDER = 7            # an entry has a lower physical offset than the previous one
    NO_KEY = 8                 # a record has a key that is not in the index
    WRONG_KEY = 9              # an index entry points to no record with the key
    INDEX_CHAIN = 10           # an index entry does not point to the previous one of its slot
    INDEX_SLOT = 11            # a slot does not point to the newest entry of its chain
    INDEX_ORDER = 12           # an index entry has a lower physical offset than the previous one
    KINDS_END = 13

cdef struct FaultRow:
    int kind
    int owner                  # number of the queue that it belongs to, or -1
    int64_t number             # queue offset, number of a record, an index entry, a slot
    int64_t physical_offset    # of INDEX_SLOT: the newest entry
    int64_t size
    int64_t seen               # the value that is there instead
    int64_t count


@cython.final
cdef class Faults:
    cdef FaultRow *rows
    cdef Py_ssize_t count, limit, capacity
    cdef int64_t totals[13]
    cdef Py_ssize_t kept[13]

    cdef int grow(self) except -1
    cdef int add(
        self, int kind, int owner, int64_t number, int64_t physical_offset, int64_t size, int64_t seen
    ) except -1
