"""Finds complete frames in a byte window and refuses bad lengths (see frame.pxd)."""

from libc.string cimport memcmp

from firearrow._native.base.endian cimport get_i32
from firearrow._native.wire.codes cimport SERIALIZER_ROCKETMQ
from firearrow._native.wire.limits cimport FRAME_BYTES_MIN, HEADER_BYTES_MAX


cdef int next_frame(
    const uint8_t *at, Py_ssize_t available, Py_ssize_t bytes_max, Frame *frame
) noexcept nogil:
    cdef long long length
    frame.size = 0
    if available < 4:
        return FRAME_PARTIAL
    length = get_i32(at)
    if length < FRAME_BYTES_MIN - 4 or length + 4 > bytes_max:
        return FRAME_BAD_LENGTH
    frame.size = length + 4
    if available < FRAME_BYTES_MIN:
        return FRAME_PARTIAL
    frame.serializer = at[4]
    frame.header_bytes = get_i32(at + 4) & 0xFFFFFF
    if frame.serializer > SERIALIZER_ROCKETMQ:
        return FRAME_BAD_TYPE
    if frame.header_bytes > length - 4 or frame.header_bytes > HEADER_BYTES_MAX:
        return FRAME_BAD_HEADER_LENGTH
    if available < frame.size:
        return FRAME_PARTIAL
    frame.header = at + FRAME_BYTES_MIN
    frame.body = frame.header + frame.header_bytes
    frame.body_bytes = frame.size - FRAME_BYTES_MIN - frame.header_bytes
    frame.after = available - frame.size
    return FRAME_WHOLE


PROXY_HEADER_REFUSED = (  # type: str
    "it sent a PROXY protocol header: only addresses in proxyProtocolTrustedAddresses may, once, "
    "before anything else"
)


cdef bint is_proxy_header(const uint8_t *at, Py_ssize_t available) noexcept nogil:
    """The first bytes that a PROXY protocol header has, of either version."""
    return available >= 4 and (memcmp(at, b"PROX", 4) == 0 or memcmp(at, b"\r\n\r\n", 4) == 0)


cdef bint is_http2_preface(const uint8_t *at, Py_ssize_t available) noexcept nogil:
    """The first bytes of a client that speaks HTTP/2."""
    return available >= 4 and memcmp(at, b"PRI ", 4) == 0


cdef str frame_fault(int reason, const uint8_t *at, Py_ssize_t available):
    """What is wrong with the frame that begins at `at`."""
    if is_proxy_header(at, available):
        return PROXY_HEADER_REFUSED
    if is_http2_preface(at, available):
        return "it speaks HTTP/2, which is not served here"
    if reason == FRAME_BAD_LENGTH and at[0] == 0x16 and at[1] == 3:
        return "it speaks TLS, which is off here: set tls.server.certPath and keyPath, or switch TLS off at the client"
    if reason == FRAME_BAD_LENGTH:
        return "frame length is negative, too small or over the limit"
    if reason == FRAME_BAD_HEADER_LENGTH:
        return "header length is larger than the frame or over the limit"
    return "unknown serialize type"
