# Sender: a plain SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, from its header to its staged record
# and its reply, which waits in a ReplyBatch for the write. Not handled here: every request for which
# `handlers/send` would do more than store it unchanged; then nothing was staged or counted. `handle_call`: the
# same for a send that did not come as a frame, with its fields; its caller has checked who sends.
#
# Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.fastpath.access_check cimport AccessCheck
from firearrow._native.fastpath.send_properties cimport CompletedProperties
from firearrow._native.fastpath.request_fields cimport SendFields
from firearrow._native.fastpath.quotas cimport Quotas
from firearrow._native.fastpath.topic_cache cimport PlainTopics, Topic
from firearrow._native.fastpath.fast_connection cimport FastConnection
from firearrow._native.fastpath.header_template cimport HeaderTemplate
from firearrow._native.fastpath.request_times cimport RequestTimes
from firearrow._native.fastpath.send_response cimport SendResponse
from firearrow._native.fastpath.pending_replies cimport AnsweredCall, ReplyBatch
from firearrow._native.fastpath.write_batch cimport WriteBatch
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport Message, Text
from firearrow._native.store.message_store cimport MessageStore
from firearrow._native.base.clock cimport Clock
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.unique_ids cimport UniqueIds


@cython.final
cdef class Sender:
    cdef PlainTopics plain_topics
    cdef MessageStore store
    cdef WriteBatch write_batch
    cdef Clock clock
    cdef object stats
    cdef UniqueIds ids
    cdef bytes host                       # the broker's address as in records
    cdef bytes added                      # properties that the broker adds
    cdef int64_t from_ms                  # takes no sends before this time
    cdef SendResponse response
    cdef ReplyBatch reply_batch
    cdef list counted                     # Topics with counts to report
    cdef int64_t batch_number
    cdef Py_ssize_t answers_bytes         # of the last reply batch
    cdef uint8_t *buffer
    cdef RequestTimes times
    cdef int reason                       # a Reason why it did not handle the last request
    cdef AnsweredCall call                # the request is one; None: a frame
    cdef readonly int64_t calls  # Sends that came as such calls, and were handled here.
    cdef AccessCheck access               # None: everyone may send
    cdef Quotas quotas                    # None: no quota limits sends

    cdef int leave(self, int reason) noexcept
    cdef bint may_match(self, FastConnection connection) noexcept

    cdef int handle_frame(
        self, FastConnection connection, const Frame *frame, const Header *header, bint long_names
    ) except -1
    cdef int handle_templated(self, FastConnection connection, const Frame *frame) except -1
    cdef int handle_call(
        self, FastConnection connection, AnsweredCall call, const Text *body, const SendFields *fields
    ) except -1
    cdef int accept(
        self, FastConnection connection, const Frame *frame, const SendFields *fields,
        CompletedProperties *done, HeaderTemplate template,
    ) except -1
    cdef bint complete_properties(
        self, HeaderTemplate template, const SendFields *fields, CompletedProperties *done
    ) except -1
    cdef bint add_broker_properties(self, CompletedProperties *done) except -1
    cdef int put(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message, CompletedProperties *done,
    ) except -1
    cdef int put_batch(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message, const CompletedProperties *done,
    ) except -1
    cdef int put_limited(
        self, FastConnection connection, const Frame *frame, const SendFields *fields, Topic topic,
        Message *message, CompletedProperties *done,
    ) except -1
    cdef int64_t stage_items(
        self, const Frame *frame, ConsumeQueue queue, Message *message, int64_t total,
        int64_t *physical_offsets,
    ) except? -1
    cdef int answer(
        self, FastConnection connection, const Frame *frame, const SendFields *fields,
        const CompletedProperties *done, ConsumeQueue queue, int64_t queue_offset,
        const int64_t *physical_offsets, int count,
    ) except -1
    cdef int answer_call(
        self, FastConnection connection, const CompletedProperties *done, int64_t queue_offset
    ) except -1
    cdef int note(
        self, Topic topic, ConsumeQueue queue, int64_t messages, int64_t end, int64_t size, bint ordered
    ) except -1
    cdef int note_special(self, Topic topic, int64_t messages, int64_t size, bint ordered) except -1
    cdef ReplyBatch open_reply_batch(self)
    cdef int fill(
        self, Message *message, FastConnection connection, Topic topic, const SendFields *fields,
        int64_t now_ms,
    ) except -1
    cdef bint fits(self, int64_t size) noexcept
