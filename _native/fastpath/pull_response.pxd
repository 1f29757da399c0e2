# The header of the response to a pull that found messages, encoded as RemotingCommand encodes it, JSON or
# binary. The caller appends the body of `body_bytes`, for which capacity is reserved. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.wire.write_buffer cimport Writer

# values: suggested broker, next offset, min offset, max offset, sysFlag of the topic, of the group
cdef int write_pull_response(
    Writer out, int serializer, int32_t opaque, const int64_t *values, int64_t body_bytes
) except -1
