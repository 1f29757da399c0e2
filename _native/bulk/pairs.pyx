"""Properties of records, found once (see pairs.pxd)."""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy

from firearrow._native.store.record cimport Text
from firearrow._native.store.separators cimport HIGH_BITS, first_byte, marks_of

cdef enum:
    COMPARED_MAX = 32                 # so many are compared with each other, more are sorted: a text may have thousands

cdef struct Piece:                    # what is between two separators, as far as it was seen
    const uint8_t *name
    const uint8_t *value              # NULL: no 0x01 yet
    Pair *to                          # where it goes


cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil:
    return (text.length + 1) // 4


cdef Py_ssize_t find_pairs(const Text *text, Pair *to, bint *ascii) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef Piece piece
    cdef uint64_t eight, marks, all_bits = 0
    piece.name = at
    piece.value = NULL
    piece.to = to
    while end - at >= 8:
        memcpy(&eight, at, 8)
        all_bits |= eight
        marks = marks_of(eight)
        while marks:
            separator(&piece, at + first_byte(marks))
            marks &= marks - 1
        at += 8
    while at < end:
        separator(&piece, at)
        all_bits |= at[0]
        at += 1
    close(&piece, end)
    ascii[0] = all_bits & HIGH_BITS == 0
    return last_ones(to, piece.to - to)


cdef inline void separator(Piece *piece, const uint8_t *at) noexcept nogil:
    if at[0] == 1 and piece.value is NULL:
        piece.value = at + 1
    elif at[0] == 2:
        close(piece, at)
        piece.name = at + 1
        piece.value = NULL


cdef inline void close(Piece *piece, const uint8_t *end) noexcept nogil:
    if piece.value is NULL or piece.value - 1 == piece.name or piece.value == end:
        return
    piece.to.name.at = piece.name
    piece.to.name.length = piece.value - 1 - piece.name
    piece.to.value.at = piece.value
    piece.to.value.length = end - piece.value
    piece.to += 1


cdef Py_ssize_t last_ones(Pair *pairs, Py_ssize_t count) noexcept nogil:
    """How many stay once of equal names only the last does."""
    cdef Py_ssize_t index, later, kept = 0
    if count > COMPARED_MAX:
        return last_of_many(pairs, count)
    for index in range(count):
        for later in range(index + 1, count):
            if same(&pairs[index].name, &pairs[later].name):
                break
        else:
            if kept != index:
                pairs[kept] = pairs[index]
            kept += 1
    return kept


cdef Py_ssize_t last_of_many(Pair *pairs, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t index, kept = 0
    qsort(pairs, count, sizeof(Pair), by_name)
    for index in range(count):
        if index + 1 == count or not same(&pairs[index].name, &pairs[index + 1].name):
            pairs[kept] = pairs[index]
            kept += 1
    qsort(pairs, kept, sizeof(Pair), by_place)
    return kept


cdef int by_name(const void *one, const void *other) noexcept nogil:
    cdef const Text *left = &(<const Pair *> one).name
    cdef const Text *right = &(<const Pair *> other).name
    cdef int order
    if left.length != right.length:
        return -1 if left.length < right.length else 1
    order = memcmp(left.at, right.at, left.length)
    return order if order else by_place(one, other)


cdef int by_place(const void *one, const void *other) noexcept nogil:
    cdef const uint8_t *left = (<const Pair *> one).name.at
    cdef const uint8_t *right = (<const Pair *> other).name.at
    return (left > right) - (left < right)
