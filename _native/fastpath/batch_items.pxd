# The items of a batch body, read in place: i32 size, magic, crc, flag, i32 + body, i16 + properties.
# `items_bytes` checks every length of all items (as store/log/batch.py does); call `item_at` only after it
# succeeded. Borrows the body, keeps nothing. Any thread.

from libc.stdint cimport int64_t, uint8_t

from firearrow._native.store.log.record cimport Message

cdef enum:
    ITEMS_MAX = 1024              # larger batches are not taken

cdef int64_t items_bytes(const uint8_t *at, Py_ssize_t length, Message *message, int *count) noexcept nogil
cdef const uint8_t *item_at(const uint8_t *at, Message *message) noexcept nogil
