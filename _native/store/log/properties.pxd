# Selected properties of a record, found without decoding the others. Borrows the text. Any thread.

from firearrow._native.store.log.record cimport Text

cdef dict values_of(const Text *properties, dict names)
