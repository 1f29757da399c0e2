# What a power cut left of the derived files, brought back to what the checkpoint vouches for.
#
# Entries of records below `start` were synced, in their order, before the checkpoint was; behind them
# anything may stand: entries, zeros where a sector was lost, halves of both. Neither the end of a queue nor
# the header of an index can tell. So what lies behind the last entry that is surely below `start` is zeroed,
# and recovery puts it again from the log. Slots and headers of an index are newer than the entries that are
# kept, never older: those that name more are mended. Owner: recover. Thread: the one that opens the store.

from libc.stdint cimport int64_t

from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.key_index cimport KeyIndex

cdef int truncate_unsynced_entries(ConsumeQueue queue, int64_t start) except -1
cdef int64_t truncate_unsynced_keys(KeyIndex index, int64_t start) except -2
