# Complete frames in a byte window.
#
#   0        4   5         8           8+H           4+L
#   +--------+---+---------+-----------+--------------+
#   | L i32  | T | H u24   | header    | body         |
#   +--------+---+---------+-----------+--------------+
#
# `next_frame` borrows the window and keeps nothing. A negative result means that the frame boundary is lost,
# or that no reply is possible: close the connection. A header of the PROXY protocol never is a frame: it
# reads as one of 1.3 GB (version 1) or with a header of 854,609 bytes (version 2). Nor does the preface of HTTP/2,
# which reads as one of 1.3 GB. Any thread.

from libc.stdint cimport uint8_t

cdef enum:
    FRAME_PARTIAL = 0
    FRAME_WHOLE = 1
    FRAME_BAD_LENGTH = -1         # L is negative, under 4, or the frame is over the limit
    FRAME_BAD_HEADER_LENGTH = -2  # H does not fit in L, or is over its limit
    FRAME_BAD_TYPE = -3           # T is neither JSON nor ROCKETMQ

cdef struct Frame:
    int serializer
    const uint8_t *header
    Py_ssize_t header_bytes
    const uint8_t *body
    Py_ssize_t body_bytes
    Py_ssize_t size               # of the whole frame; set once the length word is there
    Py_ssize_t after              # bytes of the window after it: more frames, or a part of one

cdef int next_frame(
    const uint8_t *at, Py_ssize_t available, Py_ssize_t bytes_max, Frame *frame
) noexcept nogil
cdef str frame_fault(int reason, const uint8_t *at, Py_ssize_t available)
cdef bint is_proxy_header(const uint8_t *at, Py_ssize_t available) noexcept nogil
cdef bint is_http2_preface(const uint8_t *at, Py_ssize_t available) noexcept nogil
