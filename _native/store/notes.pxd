# The journal's entries as bytes (broker/life/journal says what they mean): crc32 u32 of all that follows, kind u8, bytes
# of the name u16, number i32, value i64, end i64, name; big-endian.

cdef enum:
    NOTE_HEAD_BYTES = 27
