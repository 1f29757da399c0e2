# Truncates queues and index, after a power cut, to what the checkpoint guarantees.
#
# Entries of records below `start` were synced, in order, before the checkpoint; after them the files may
# contain anything: entries, zeros where a sector was lost, halves of both. Neither the end of a queue nor the
# header of an index shows which. So everything after the last entry that is certainly below `start` is
# zeroed, and recovery adds it again from the log. Slots and header of an index are never older than the
# entries that are kept: those that point past them are repaired. Thread: the one that opens the store.

from libc.stdint cimport int64_t

from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.key_index cimport KeyIndex

cdef int truncate_unsynced_entries(ConsumeQueue queue, int64_t start) except -1
cdef int64_t truncate_unsynced_keys(KeyIndex index, int64_t start) except -2
