# StoreCleaner: deletes the old files of an open store. MessageStore owns it. The start of the log moves
# first, then the queues follow one by one; until then readers skip entries that point below it (get_message).
#
# Segments and index files are detached from the store here and discarded by the caller, possibly in another
# thread, one after the other: a gap between the remaining files would be damage. Queue files are small and
# deleted here. A segment file may be recycled as the log's next one instead.
# Only flushed segments are detached, so that a concurrent `sync` never uses one.
# Thread: the appender's; `discard_segment` and `drop_recycled` may be called by one other thread, and
# `MessageStore.flush_queues` sets `flushed_queues` in its own.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.store_reader cimport StoreReader


@cython.final
cdef class StoreCleaner:
    cdef StoreReader reader
    cdef CommitLog log
    cdef KeyIndex index                   # None: messages are not indexed
    cdef readonly int64_t flushed_queues  # Queues and index are durable up to this offset of the log.
