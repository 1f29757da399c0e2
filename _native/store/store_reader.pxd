# StoreReader: what an open store answers. MessageStore owns it, and opens and closes log, queues and index, which the reader
# only looks at; it shows what is below `confirmed`. Pointers into the mapped log are valid within one call.
#
# Thread: the appender's, but for `take_strays`, which any thread may call.

cimport cython
from libc.stdint cimport int64_t

from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.dispatcher cimport Dispatch
from firearrow._native.store.get_message cimport Limits
from firearrow._native.store.log.key_index cimport KeyIndex

@cython.final
cdef class StoreReader:
    cdef CommitLog log
    cdef Dispatch dispatch
    cdef KeyIndex index                   # None where messages are not indexed
    cdef Limits limits
    cdef readonly int64_t confirmed       # the log's offset up to which readers see records; only MessageStore moves it

    cdef ConsumeQueue queue(self, str topic, int64_t queue_id)
