# What loops over many records will read soon is called from memory: first the head, then, that being there, the texts
# behind the body. Wrong guesses cost time only: nothing outside of the window is read.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.store.bytes cimport get_i32
from firearrow._native.store.layout cimport RECORD_FIXED_BYTES

cdef extern from *:
    """
    /* The empty statement keeps GCC from taking a function that only prefetches for one that does nothing. */
    #define fa_prefetch(at) do { __builtin_prefetch(at); __asm__ volatile(""); } while (0)
    """
    void fa_prefetch(const void *at) noexcept nogil

cdef enum:
    HEADS_AHEAD = 12              # so many records ahead the head is called …
    TEXTS_AHEAD = 6               # … and here the texts
    CACHE_LINE = 64
    BODY_AT = 84                  # where a record with IPv4 hosts has the length of its body
    CALLED_BYTES = 1536           # of a body that is read whole: the processor itself goes on behind them


cdef inline void call_head(const uint8_t *record) noexcept nogil:
    fa_prefetch(record)
    fa_prefetch(record + CACHE_LINE)


cdef inline void call_texts(const uint8_t *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t body_bytes
    if position < 0 or length - position < RECORD_FIXED_BYTES:
        return
    body_bytes = get_i32(data + position + BODY_AT)
    if 0 <= body_bytes < length - position - RECORD_FIXED_BYTES:
        fa_prefetch(data + position + BODY_AT + 4 + body_bytes)
        fa_prefetch(data + position + BODY_AT + 4 + body_bytes + CACHE_LINE)


cdef inline void call_body(const uint8_t *data, int64_t length, int64_t position) noexcept nogil:
    cdef int64_t at = position + BODY_AT
    cdef int64_t end = min(position + CALLED_BYTES, length)
    while at < end:
        fa_prefetch(data + at)
        at += CACHE_LINE
