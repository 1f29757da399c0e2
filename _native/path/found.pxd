# The head of the answer to a pull that found messages, written as RemotingCommand writes it, JSON or binary.
# The body of `body_bytes` is the caller's to put behind it: there is room for it.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.wire.writer cimport Writer

# values: suggested broker, next offset, smallest, greatest, sysFlag of the topic, of the group
cdef int put_found(
    Writer out, int serializer, int32_t opaque, const int64_t *values, int64_t body_bytes
) except -1
