# Fields of protobuf's messages, read in place. `next_field` checks every length before it is used; it returns NULL
# where the bytes are no message, and for groups, which no message of ours has. Borrows the bytes. Any thread.

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    VARINT = 0
    FIXED_64 = 1
    BYTES = 2
    GROUP = 3
    GROUP_END = 4
    FIXED_32 = 5
    VARINT_BYTES_MAX = 10

cdef struct ProtoField:
    uint64_t number
    int kind                              # VARINT and so on
    uint64_t value                        # of a VARINT
    const uint8_t *at                     # of BYTES
    Py_ssize_t length


cdef inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, uint64_t *value) noexcept nogil:
    """After the number; NULL: there is none."""
    cdef int n
    value[0] = 0
    for n in range(VARINT_BYTES_MAX):
        if at == end:
            return NULL
        value[0] |= <uint64_t> (at[0] & 0x7F) << 7 * n
        at += 1
        if at[-1] < 0x80:
            return at
    return NULL


cdef inline const uint8_t *next_field(const uint8_t *at, const uint8_t *end, ProtoField *found) noexcept nogil:
    """After the field."""
    cdef uint64_t key, length
    at = read_varint(at, end, &key)
    if at is NULL:
        return NULL
    found.number, found.kind = key >> 3, <int> (key & 7)
    if found.kind == VARINT:
        return read_varint(at, end, &found.value)
    if found.kind == BYTES:
        at = read_varint(at, end, &length)
        if at is NULL or length > <uint64_t> (end - at):
            return NULL
        found.at, found.length = at, <Py_ssize_t> length
        return at + found.length
    if found.kind == FIXED_64 and end - at >= 8:
        return at + 8
    if found.kind == FIXED_32 and end - at >= 4:
        return at + 4
    return NULL
