# AckTemplates: acknowledgements of popped messages without a Python object for each, of gRPC and of
# remoting.
#
# The acknowledgements of one check point are the same message but for the queue offset that they
# acknowledge, which stands in the body and in the unique key. The complete path checks and stores the first
# one, and leaves it here as a template, by its key: group, topic, queue, and the receipt handle without
# what is of one message alone. So every rule and every byte of the format is the complete path's. A
# template is dropped when topics or options change.
#
# Not handled here, and nothing was staged: whatever the complete path would refuse, or do more for than
# store it.
#
# Thread: the loop's.

cimport cython
from libc.stdint cimport int64_t, uint8_t

from firearrow._native.base.clock cimport Clock
from firearrow._native.fastpath.write_batch cimport WriteBatch
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport Text
from firearrow._native.store.message_store cimport MessageStore


@cython.final
cdef class AckTemplate:
    cdef str group, topic                 # of the acknowledged messages
    cdef bytes name                       # that topic
    cdef int queue_id
    cdef bytes stored_topic               # of the acknowledgements, and their queue
    cdef int stored_queue
    cdef bytes body, properties           # without the offset
    cdef Py_ssize_t body_at, properties_at
    cdef int64_t visible_ms               # when the messages become visible again
    cdef int64_t count                    # acknowledgements that are not reported yet
    cdef int for_grpc                     # 1: its clients may use these names, -1: not, 0: not known yet


@cython.final
cdef class AckTemplates:
    cdef MessageStore store
    cdef WriteBatch write_batch
    cdef Clock clock
    cdef bytes host                       # the broker's address as in records
    cdef object stored                    # called before each write, for what was staged
    cdef dict templates                   # key → AckTemplate
    cdef list counted                     # AckTemplates with counts to report
    cdef bint limited                     # quotas may delay clients: calls of gRPC are not handled here
    cdef readonly int64_t calls  # Acknowledgements that came as calls of gRPC, and were handled here.
    cdef uint8_t *buffer

    cdef AckTemplate find(self, bytes key, int64_t offset, int64_t now_ms)
    cdef ConsumeQueue queue_of(self, AckTemplate template)
    cdef int64_t stage(self, AckTemplate template, int64_t offset, int64_t now_ms) except -1
    cdef int count(self, AckTemplate template) except -1
