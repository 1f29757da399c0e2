# The properties of a message that is sent, unescaped and completed in place, as `handlers/send` completes them: what the
# client gave in its order, a unique key if it gave none, then MSG_REGION, TRACE_ON and CLUSTER. Whatever asks for more than being stored (a delay, a
# timer, a transaction, a priority, light queues) is not mine, nor are texts that are not in their plain form: pieces
# without a name or value, a name that comes twice, broken UTF-8.

from libc.stdint cimport uint8_t

from firearrow._native.store.record cimport Properties, Text
from firearrow._native.wire.json cimport Span

cdef enum:
    GIVEN_MAX = 65536             # bytes of properties as they stand in the header
    ADDED_MAX = 4096              # bytes of what the broker adds
    ID_BYTES_MAX = 128            # of a unique key that the broker gives
    ROOM_BYTES = GIVEN_MAX + 1 + ID_BYTES_MAX + 16 + ADDED_MAX

cdef struct Completed:
    Text text                     # in `room`
    Properties found              # of it, as the store finds them
    bint waits                    # for the disk (the property WAIT)

cdef bint take_given(const Span *given, uint8_t *room, Completed *done)
cdef bint give_key(bytes key, uint8_t *room, Completed *done)
cdef bint add(bytes added, uint8_t *room, Completed *done)
cdef bint is_false(const uint8_t *at, Py_ssize_t length) noexcept nogil
