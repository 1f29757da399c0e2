# Chosen properties of a record, looked for where they lie. Borrows the text, keeps none of it. Any thread.

from firearrow._native.store.log.record cimport Text

cdef dict values_of(const Text *properties, dict names)
