# StoreCleaner: deletes the old files of an open store. MessageStore owns it. The log's start moves first, then the queues
# follow one by one: until then, readers skip what points below it (fetch).
#
# A segment or an index file is detached from the store here and discarded by the caller, maybe in another thread, one
# after the other: a gap between remaining files would be damage. Queue files are small and are deleted here.
# A segment's file may become the log's next one (spare) instead.
# Only what is on the disk may go: `sync` in the other thread never meets a segment that is detached.
# Thread: the appender's, but for `discard_segment` and `drop_spare`, which one other thread may call, and
# `flushed_queues`, which `MessageStore.flush_queues` sets in its own.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.store_reader cimport StoreReader

@cython.final
cdef class StoreCleaner:
    cdef StoreReader reader
    cdef CommitLog log
    cdef KeyIndex index                   # None where messages are not indexed
    cdef readonly int64_t flushed_queues  # the log's offset up to which queues and index are on the disk
