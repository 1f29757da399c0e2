# Dispatch: from a record to its queue entries and index keys, for appended and for recovered records.
#
# `stage` reserves a queue entry and index capacity before the log is written, so that `apply`, after the
# write, needs no new disk block. Applied entries wait in `unconfirmed` until they are confirmed. The vectors
# hold borrowed pointers to queues that `queues` keeps alive: `forget` removes them before it deletes a queue.
# Owner: MessageStore. Thread: the appender's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.log.queue_check cimport QueueRebuild
from firearrow._native.store.log.consume_queue cimport ConsumeQueue, PendingFiles
from firearrow._native.store.log.key_index cimport KeyHashes
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.files.mmap_budget cimport Mappings
from firearrow._native.store.log.record cimport Properties, RecordView, Text

cdef struct Staged:
    void *queue                   # a ConsumeQueue; NULL: the record has no entry
    # memory of the entry when it was staged; only for prefetching
    const uint8_t *slot
    int64_t physical_offset, tags_code, store_time
    int32_t size, hashes

cdef struct Unconfirmed:
    void *queue
    int64_t end


@cython.final
cdef class Dispatch:
    cdef readonly str folder
    cdef readonly str batch_folder         # of the batch queues
    cdef readonly int64_t queue_file_bytes, batch_file_bytes
    cdef readonly dict queues  # type: dict[tuple[bytes, int], ConsumeQueue]
    cdef readonly set batch_topics         # topics that have batch queues
    cdef frozenset plain_topics            # in recovery: topics that certainly have none
    cdef readonly Mappings mappings        # of all queues' files
    cdef readonly dict trims               # (topic bytes, queue id) → no record below this is seen
    cdef readonly object entry_repairs     # EntryRepairs: wrong entries that readers found
    cdef KeyIndex index                    # None: messages are not indexed
    cdef QueueRebuild queue_rebuild        # only while queues are compared with the whole log, else None
    cdef public dict deletions             # in recovery: topic bytes → end of the log and ms of its deletion
    cdef list recent                       # in recovery: cache of name, ConsumeQueue, by hash of both names
    # in recovery: queue offsets that no record has · queues that start above offset 0
    cdef int64_t gaps, late_starts
    cdef bint kinds_changed                # in recovery: a topic turned out to have batch queues
    cdef tuple delay_levels_ms
    cdef bint lmq                          # records may name LMQs that get an entry, too
    cdef readonly int64_t lmq_count        # number of LMQs
    # how often topics were deleted: code that caches a queue must look it up again when this changes
    cdef readonly int64_t forgotten
    cdef PendingFiles pending              # queues of lite topics that have no files yet
    cdef list changed                      # the queues that are not synced; each adds itself
    cdef int64_t known_filled              # number of queues with entries; -1: to be counted
    cdef Staged *staged
    cdef Py_ssize_t staged_count, staged_capacity
    cdef KeyHashes hashes                  # of the staged records
    cdef Unconfirmed *unconfirmed
    cdef Py_ssize_t unconfirmed_from, unconfirmed_count, unconfirmed_capacity

    cdef ConsumeQueue new_queue(self, bytes topic, int32_t queue_id)
    cdef ConsumeQueue queue_of(self, bytes topic, int32_t queue_id, bint make)
    cdef int stage(
        self, ConsumeQueue queue, const Text *topic, const Properties *properties, int64_t physical_offset,
        int32_t size, int64_t store_time,
    ) except -1
    cdef int apply(self, bint confirmed) except -1
    cdef void count_again(self) noexcept
    cdef int adopt(self, ConsumeQueue queue) except -1
    cdef list take_changed(self)
    cdef int make_files(self) except -1
    cdef void prefetch(self) noexcept
    cdef void drop_staged(self) noexcept
    cdef int confirm(self, int64_t physical_offset) noexcept
    cdef int hide(self, int64_t physical_offset) except -1
    cdef int recovered(self, const RecordView *view, int64_t indexed) except -1
    cdef int restore(
        self, ConsumeQueue queue, int64_t entry, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
    cdef int restore_batch(
        self, ConsumeQueue queue, const RecordView *view, int64_t tags_code
    ) except -1
    cdef ConsumeQueue find_queue(self, const Text *topic, int32_t queue_id)
    cdef bint has_its_kind(self, const RecordView *view) except -1
    cdef void lost(self, int64_t length) noexcept
    cdef int stage_multi(self, const Properties *properties, int64_t physical_offset, int32_t size) except -1
    cdef int wait(self, void *queue, int64_t end) except -1
    cdef int restore_multi(
        self, const RecordView *view, const Properties *properties, int64_t tags_code, bint deleted
    ) except -1
    cdef int64_t tags_code_of(
        self, const Text *topic, const Properties *properties, int64_t store_time
    ) noexcept

cdef list multi_entries(const Properties *properties)
