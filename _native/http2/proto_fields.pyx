"""ProtoFields: counts the fields of a message of protobuf before it is parsed.

An empty field takes two bytes of a message and a hundred of memory once it is parsed: a request of 100 MB could take
the memory of the machine. What is in a string, in bytes or in a field that the message does not have is not counted.
Bytes that are no message count until where they are wrong; the parser refuses them. Any thread.
"""

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    DEPTH_MAX = 32                        # a parser refuses more than 100


cdef class ProtoFields:
    """The fields of a kind of message that are messages themselves. `add` them first; kinds must not contain
    themselves."""

    cdef dict nested

    def __cinit__(self):
        self.nested = {}

    def add(self, int number, ProtoFields kind not None):
        # type: (...) -> None
        """The field with this number is such a message."""
        self.nested[number] = kind

    def count(self, bytes data not None, Py_ssize_t most):
        # type: (...) -> int
        """How many fields the message has, with those of its fields; a number above `most` if there are more."""
        cdef const uint8_t *at = data
        return count_fields(self, at, at + len(data), most, 0)


cdef Py_ssize_t count_fields(
    ProtoFields kind, const uint8_t *at, const uint8_t *end, Py_ssize_t most, int depth
) except -1:
    cdef Py_ssize_t found = 0
    cdef uint64_t key, length = 0
    cdef object nested
    while at < end and found <= most:
        at = read_varint(at, end, &key)
        if at is NULL:
            break
        found += 1
        if key & 7 == VARINT:
            at = read_varint(at, end, &length)
        elif key & 7 == FIXED_64 and end - at >= 8:
            at += 8
        elif key & 7 == FIXED_32 and end - at >= 4:
            at += 4
        elif key & 7 == BYTES:
            at = read_varint(at, end, &length)
            if at is NULL or length > <uint64_t> (end - at):
                break
            nested = kind.nested.get(key >> 3)
            if nested is not None and depth < DEPTH_MAX:
                found += count_fields(<ProtoFields> nested, at, at + length, most - found, depth + 1)
            at += length
        elif key & 7 != GROUP and key & 7 != GROUP_END:
            break
        if at is NULL:
            break
    return found
