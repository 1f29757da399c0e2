"""Parses the properties of records into names and values (see property_pairs.pxd)."""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy

from firearrow._native.store.log.record cimport Text
from firearrow._native.store.log.record cimport (
    HIGH_BITS, Piece, begin, ends_piece, first_byte, has_value, marks_of,
)

cdef enum:
    # up to this many are compared with each other, more are sorted: there may be thousands
    COMPARED_MAX = 32


cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil:
    return (text.length + 1) // 4


cdef Py_ssize_t find_pairs(const Text *text, Pair *to, bint *ascii) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef Piece piece
    cdef Pair *next = to
    cdef uint64_t eight, marks, all_bits = 0
    begin(&piece, at)
    while end - at >= 8:
        memcpy(&eight, at, 8)
        all_bits |= eight
        marks = marks_of(eight)
        while marks:
            separator(&piece, at + first_byte(marks), &next)
            marks &= marks - 1
        at += 8
    while at < end:
        separator(&piece, at, &next)
        all_bits |= at[0]
        at += 1
    take(&piece, end, &next)
    ascii[0] = all_bits & HIGH_BITS == 0
    return last_ones(to, next - to)


cdef inline void separator(Piece *piece, const uint8_t *at, Pair **to) noexcept nogil:
    if ends_piece(piece, at):
        take(piece, at, to)
        begin(piece, at + 1)


cdef inline void take(const Piece *piece, const uint8_t *end, Pair **to) noexcept nogil:
    if not has_value(piece, end) or piece.value - 1 == piece.name:
        return
    to[0].name.at = piece.name
    to[0].name.length = piece.value - 1 - piece.name
    to[0].value.at = piece.value
    to[0].value.length = end - piece.value
    to[0] += 1


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
