# The properties of records, found once: where each name and its value lie. Borrows the text, keeps none. Any
# thread.
#
#   text    name 0x01 value 0x02 name 0x01 value [0x02]      pieces without 0x01, name or value are skipped
#
# Order: as in the text; of equal names only the last stays, in its own place, as Java's map has it.

from firearrow._native.store.log.record cimport Text

cdef struct Pair:
    Text name, value

cdef Py_ssize_t pairs_at_most(const Text *text) noexcept nogil
# how many; room for pairs_at_most
cdef Py_ssize_t find_pairs(const Text *text, Pair *to, bint *ascii) noexcept nogil


cdef inline bint same(const Text *one, const Text *other) noexcept nogil:
    """Names, never empty; short, and most differ in their length or at once: no call is as quick as that."""
    cdef Py_ssize_t index = 0
    if one.length != other.length:
        return False
    while index < one.length and one.at[index] == other.at[index]:
        index += 1
    return index == one.length


cdef inline Py_ssize_t place_of(
    const Pair *pairs, Py_ssize_t count, const Text *name, Py_ssize_t likely
) noexcept nogil:
    """Which pair bears the name, -1: none. Records of one sender have it in the same place: that one is tried
    first."""
    cdef Py_ssize_t index
    if likely < count and same(&pairs[likely].name, name):
        return likely
    for index in range(count):
        if same(&pairs[index].name, name):
            return index
    return -1
