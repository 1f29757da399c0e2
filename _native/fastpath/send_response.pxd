# SendResponse: the response to a stored message, encoded as RemotingCommand encodes it, JSON or binary.
# Owner: the Sender. Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.record cimport Text
from firearrow._native.wire.write_buffer cimport Writer


@cython.final
cdef class SendResponse:
    cdef bytes json_head, binary_head     # up to the fields at the start of every response
    cdef bytes host                       # the broker's address in upper-case hex

    cdef int write(
        self, Writer out, int serializer, int32_t opaque, const Text *unique_key, int32_t queue_id,
        int64_t queue_offset, const int64_t *physical_offsets, int count,
    ) except -1
    cdef int put_json(
        self, Writer out, int32_t opaque, const Text *unique_key, int32_t queue_id, int64_t queue_offset,
        const int64_t *physical_offsets, int count,
    ) except -1
    cdef int put_binary(
        self, Writer out, int32_t opaque, const Text *unique_key, int32_t queue_id, int64_t queue_offset,
        const int64_t *physical_offsets, int count,
    ) except -1
    cdef int32_t id_bytes(self) noexcept
    cdef uint8_t *ids(self, uint8_t *to, const int64_t *physical_offsets, int count) noexcept
