"""Properties of records, found once (see pairs.pxd)."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport qsort
from libc.string cimport memchr, memcmp

from firearrow._native.store.record cimport Text

cdef Py_ssize_t COMPARED_MAX = 32   # so many are compared with each other, more are sorted: a text is 32 KiB at most


cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil:
    return (text.length + 1) // 4


cdef Py_ssize_t find_pairs(const Text *text, Pair *to) noexcept nogil:
    cdef const uint8_t *at = text.at
    cdef const uint8_t *end = at + text.length
    cdef const uint8_t *stop
    cdef const uint8_t *mark
    cdef Py_ssize_t count = 0
    while at < end:
        stop = <const uint8_t *> memchr(at, 2, end - at)
        if stop is NULL:
            stop = end
        mark = <const uint8_t *> memchr(at, 1, stop - at)
        if mark is not NULL and mark > at and mark + 1 < stop:
            to[count].name.at = at
            to[count].name.length = mark - at
            to[count].value.at = mark + 1
            to[count].value.length = stop - mark - 1
            count += 1
        at = stop + 1
    return last_ones(to, count)


cdef inline bint same(const Text *one, const Text *other) noexcept nogil:
    return one.length == other.length and memcmp(one.at, other.at, one.length) == 0


cdef Text *value_of(Pair *pairs, Py_ssize_t count, const Text *name) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(count):
        if same(&pairs[index].name, name):
            return &pairs[index].value
    return NULL


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
