# Parses the properties of records: finds each name and its value once. Borrows the text. Any thread.
#
#   text    name 0x01 value 0x02 name 0x01 value [0x02]      pairs without 0x01, name or value are skipped
#
# Order: as in the text; of equal names only the last is kept, at its own position, as in Java's map.

from firearrow._native.store.log.record cimport Text

cdef struct Pair:
    Text name, value

cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil
# returns the count; `to` must hold pairs_at_most
cdef Py_ssize_t find_pairs(const Text *text, Pair *to, bint *ascii) noexcept nogil


cdef inline bint same(const Text *one, const Text *other) noexcept nogil:
    """Compare names, never empty. Most differ in length or the first bytes: a loop is faster than a call."""
    cdef Py_ssize_t index = 0
    if one.length != other.length:
        return False
    while index < one.length and one.at[index] == other.at[index]:
        index += 1
    return index == one.length


cdef inline Py_ssize_t index_of(
    const Pair *pairs, Py_ssize_t count, const Text *name, Py_ssize_t likely
) noexcept nogil:
    """Index of the pair with the name, -1: none. Tries `likely` first: records of one producer have a name at
    the same index."""
    cdef Py_ssize_t index
    if likely < count and same(&pairs[likely].name, name):
        return likely
    for index in range(count):
        if same(&pairs[index].name, name):
            return index
    return -1
