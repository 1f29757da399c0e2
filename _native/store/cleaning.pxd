# StoreCleaning: the part of a store that lets old files go. The log's start moves first, then the queues follow one by
# one: what points below it meanwhile is not followed by any reader (fetch).
#
# A segment or an index file is taken out of the store here and discarded by the caller, maybe in another thread, one
# after the other: a gap between files that stand would be damage. Queue files are small and go here.
# A segment's file may become the log's next one (spare) instead of going.
# Only what is on the disk may go: `sync` in the other thread never meets a segment that is let go.
# Thread: the appender's, but for `discard_segment` and `drop_spare`, which one other thread may call.

from firearrow._native.store.reading cimport StoreReading

cdef class StoreCleaning(StoreReading):
    pass
