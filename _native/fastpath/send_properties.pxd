# The properties of a sent message, unescaped and completed in place, as `handlers/send` completes them: the
# client's properties in its order, a unique key if there is none, then MSG_REGION, TRACE_ON and CLUSTER.
#
# Not handled here: properties that need more than storing (a delay, a timer, a transaction, a priority,
# LMQs), and text that is not in plain form (a property without a name or value, a duplicate name, invalid
# UTF-8).
#
# Ownership: `buffer` is the caller's; results point into it. Units: bytes. Thread: the loop's.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.store.log.record cimport Properties, Text
from firearrow._native.wire.json cimport Span
from firearrow._native.wire.unique_ids cimport UNIQUE_ID_MAX, UniqueIds

cdef enum:
    GIVEN_BYTES_MAX = 65536       # properties in the header, still escaped
    ADDED_BYTES_MAX = 4096        # properties that the broker adds
    BUFFER_BYTES = GIVEN_BYTES_MAX + 1 + UNIQUE_ID_MAX + 16 + ADDED_BYTES_MAX

cdef struct CompletedProperties:
    Text text                     # in `buffer`
    Properties found              # in it, as the store finds them
    bint waits                    # the reply waits for the disk (the property WAIT)
    bint ordered                  # it has a sharding key: of type FIFO

cdef bint read_given(const Span *given, uint8_t *buffer, CompletedProperties *done)
cdef void add_unique_key(UniqueIds ids, int64_t now_ms, uint8_t *buffer, CompletedProperties *done) noexcept
cdef bint add(bytes added, uint8_t *buffer, CompletedProperties *done)
cdef bint is_false(const uint8_t *at, Py_ssize_t length) noexcept nogil
