# Puller: a PULL_MESSAGE that finds messages at once, from its header to its reply. The broker resolves
# permissions and subscription once for each group, topic and subscription; the result is kept as a
# PullSubscription until anything changes, for at most a second. Not handled here: an offset outside the
# queue, a pending reset, a proxy, an SQL filter, and others.
#
# HeldPull: a pull at the end of its queue that may wait. Arrivals are answered here; after its deadline, a
# reset, a lost permission or a change of users or rules its frame goes to the complete path.
#
# Records are copied once, from the mapped log into the connection's `out`. Thread: the loop's.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.fastpath.access_check cimport AccessCheck
from firearrow._native.fastpath.request_fields cimport PullFields
from firearrow._native.fastpath.long_polling cimport HeldRequest, PullHoldService
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.quotas cimport Quotas
from firearrow._native.fastpath.request_times cimport RequestTimes
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.get_message cimport PickedRecord, Scan
from firearrow._native.store.log.journal_page cimport JournalPage
from firearrow._native.store.message_store cimport MessageStore
from firearrow._native.base.clock cimport Clock
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header

cdef enum:
    CODES_MAX = 16
    KEY_MAX = 1024

cdef class PullSubscription:
    cdef str group, topic, expression, expression_type
    cdef int64_t flags, version
    cdef bytes name                       # the topic's bytes
    cdef str key                          # `topic@group`
    cdef bytes noted                      # the key's bytes, for the journal
    cdef bint mine
    cdef double made                      # the loop's time; -1e300: stale
    cdef int32_t queues, topic_sys_flag, group_sys_flag
    cdef int32_t codes[CODES_MAX]
    cdef Py_ssize_t codes_count
    cdef int64_t wait_ms_max              # -1: its pulls do not wait here
    cdef bint recreated                   # a topic of this name was deleted
    cdef int64_t near, far                # suggested brokers, for readers near the log's end and for others
    cdef dict found                       # queue id → ConsumeQueue
    cdef dict pulled                      # queue id → offset of its last pull; None: no pull yet
    cdef int64_t requests, messages, bytes   # not yet reported to the statistics
    cdef int64_t forgotten                # the store's count of deleted topics at that time

    cdef ConsumeQueue queue(self, MessageStore store, int32_t queue_id)
    cdef bint may_be_old(self, int64_t queue_id, int64_t queue_offset, ConsumeQueue queue) except -1

cdef class Puller:
    cdef MessageStore store
    cdef PullHoldService hold_service
    cdef Clock clock
    cdef object resolve, beyond, offsets, stats
    cdef JournalPage journal_page
    cdef dict resets                      # (group, topic, queue id) → offset
    cdef dict committed                   # `topic@group` → queue id → offset
    cdef dict subscriptions               # key → PullSubscription
    cdef list counted                     # PullSubscriptions with counts to report
    cdef int64_t missed
    cdef PickedRecord *picked
    cdef Scan scan                        # of the last `find`
    cdef uint8_t key[KEY_MAX]
    cdef RequestTimes times
    cdef int reason                       # a Reason why it did not handle the last request
    cdef readonly bint lite_pull          # LITE_PULL_MESSAGE is permitted
    cdef AccessCheck access               # None: everyone may pull
    cdef Quotas quotas                    # None: no quota limits reads

    cdef int leave(self, int reason) noexcept
    cdef bint is_reset(self, PullSubscription subscription, int64_t queue_id) except -1
    cdef int handle_frame(self, FastConnection connection, const Frame *frame, const Header *header) except -1
    cdef PullSubscription subscription_of(self, const PullFields *fields, double now)
    cdef int refresh(self, PullSubscription subscription, double now) except -1
    cdef int find(
        self, PullSubscription subscription, ConsumeQueue queue, int64_t queue_offset, int64_t max_messages
    ) except -1
    cdef int note(self, PullSubscription subscription, int64_t queue_id, int64_t next_offset) except -1
    cdef bint commit(self, PullSubscription subscription, const PullFields *fields) except -1
    cdef int commit_again(
        self, PullSubscription subscription, int64_t queue_id, int64_t queue_offset
    ) except -1
    cdef int hold(
        self, FastConnection connection, const Frame *frame, const Header *header,
        PullSubscription subscription, const PullFields *fields,
    ) except -1
    cdef int answer(
        self, FastConnection connection, int serializer, int32_t opaque, PullSubscription subscription,
        ConsumeQueue queue,
    ) except -1

cdef class HeldPull(HeldRequest):
    cdef Puller puller
    cdef PullSubscription subscription
    cdef bytes frame
    cdef int64_t queue_offset, max_messages
    cdef int32_t queue_id, opaque
    cdef int serializer
    cdef double since                     # the loop's time
    cdef bint is_lite
    cdef int64_t generation               # of users and rules when it was held
    cdef str user                         # who sent it; None: users are not checked
    cdef bint found                       # by `has_match`, right before `run_again`
