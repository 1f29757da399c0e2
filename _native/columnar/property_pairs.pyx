"""Parses the properties of records into names and values (see property_pairs.pxd)."""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy

from firearrow._native.store.log.record cimport Text
from firearrow._native.store.log.record cimport (
    HIGH_BITS, PropertyScan, begin, ends_property, first_byte, has_value, marks_of,
)

cdef enum:
    # up to this many are compared with each other, more are sorted: there may be thousands
    COMPARED_MAX = 32


cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil:
    return (text.length + 1) // 4


cdef Py_ssize_t find_pairs(const Text *text, Pair *to, bint *ascii) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef PropertyScan scan
    cdef Pair *next = to
    cdef uint64_t eight, marks, all_bits = 0
    begin(&scan, at)
    while end - at >= 8:
        memcpy(&eight, at, 8)
        all_bits |= eight
        marks = marks_of(eight)
        while marks:
            separator(&scan, at + first_byte(marks), &next)
            marks &= marks - 1
        at += 8
    while at < end:
        separator(&scan, at, &next)
        all_bits |= at[0]
        at += 1
    take(&scan, end, &next)
    ascii[0] = all_bits & HIGH_BITS == 0
    return keep_last(to, next - to)


cdef inline void separator(PropertyScan *scan, const uint8_t *at, Pair **to) noexcept nogil:
    if ends_property(scan, at):
        take(scan, at, to)
        begin(scan, at + 1)


cdef inline void take(const PropertyScan *scan, const uint8_t *end, Pair **to) noexcept nogil:
    if not has_value(scan, end) or scan.value - 1 == scan.name:
        return
    to[0].name.at = scan.name
    to[0].name.length = scan.value - 1 - scan.name
    to[0].value.at = scan.value
    to[0].value.length = end - scan.value
    to[0] += 1


cdef Py_ssize_t keep_last(Pair *pairs, Py_ssize_t count) noexcept nogil:
    """Keep only the last of equal names; returns how many are left."""
    cdef Py_ssize_t index, later, kept = 0
    if count > COMPARED_MAX:
        return keep_last_sorted(pairs, count)
    for index in range(count):
        for later in range(index + 1, count):
            if same(&pairs[index].name, &pairs[later].name):
                break
        else:
            if kept != index:
                pairs[kept] = pairs[index]
            kept += 1
    return kept


cdef Py_ssize_t keep_last_sorted(Pair *pairs, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t index, kept = 0
    qsort(pairs, count, sizeof(Pair), by_name)
    for index in range(count):
        if index + 1 == count or not same(&pairs[index].name, &pairs[index + 1].name):
            pairs[kept] = pairs[index]
            kept += 1
    qsort(pairs, kept, sizeof(Pair), by_position)
    return kept


cdef int by_name(const void *one, const void *other) noexcept nogil:
    cdef const Text *left = &(<const Pair *> one).name
    cdef const Text *right = &(<const Pair *> other).name
    cdef int order
    if left.length != right.length:
        return -1 if left.length < right.length else 1
    order = memcmp(left.at, right.at, left.length)
    return order if order else by_position(one, other)


cdef int by_position(const void *one, const void *other) noexcept nogil:
    cdef const uint8_t *left = (<const Pair *> one).name.at
    cdef const uint8_t *right = (<const Pair *> other).name.at
    return (left > right) - (left < right)
