# A SendMessageRequest with one message, decoded in place, and its properties in the form of remoting.
#
# False always means "not plain", never "refused": what the method would refuse, what needs more than storing, and what
# clients do not write: a field twice, or of another kind. Limits and rules are those of broker/grpc/message_checks.py
# and message_codec.py; tests/grpc/test_plain_sends.py compares both. Borrows the bytes. Any thread.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.http2.proto_fields cimport ProtoField
from firearrow._native.store.log.record cimport Text

cdef enum:
    KEYS_MAX = 16
    USER_MAX = 24                         # with our own fewer than the store's fast path takes
    PROPERTIES_BYTES = 32768              # capacity of the buffer for `write_properties`
    NORMAL = 1                            # MessageType
    IDENTITY = 1                          # Encoding
    GZIP = 2

cdef struct SendRequest:
    Text topic, body, message_id, tag, born_host, trace_context
    Text keys[KEYS_MAX]
    Text names[USER_MAX]                  # of user properties
    Text values[USER_MAX]
    int key_count, user_count
    int64_t born_ms                       # 0: not stated
    int64_t encoding

cdef bint read_request(const uint8_t *at, Py_ssize_t length, SendRequest *found) noexcept nogil
cdef Py_ssize_t write_properties(
    const SendRequest *request, const Text *born_host, int64_t born_ms, uint8_t *to
) noexcept nogil
cdef bint read_resource(const uint8_t *at, const uint8_t *end, Text *name) noexcept nogil
cdef inline bint is_second(const ProtoField *field, int *seen) noexcept nogil:
    """Whether a field that is there at most once comes again; `field.number` is below 32."""
    cdef int bit = 1 << <int> field.number
    cdef bint before = seen[0] & bit != 0
    seen[0] |= bit
    return before
