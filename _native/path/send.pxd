# Sender: a plain SEND_MESSAGE, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, from its header to its staged record
# and its answer, which waits in a Run for the turn's write. Not taken: every request for which
# `handlers/send` would do more than store it as it is; then nothing was staged or counted.
#
# Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.path.completion cimport Completed
from firearrow._native.path.fields cimport SendFields
from firearrow._native.path.gate cimport Gate, Topic
from firearrow._native.path.lane cimport Front
from firearrow._native.path.receipt cimport Receipt
from firearrow._native.path.run cimport Run
from firearrow._native.path.turn cimport Turn
from firearrow._native.store.consumequeue cimport ConsumeQueue
from firearrow._native.store.record cimport Message
from firearrow._native.store.store cimport MessageStore
from firearrow._native.wire.clocks cimport Clock
from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.uniqueid cimport UniqueIds


@cython.final
cdef class Sender:
    cdef Gate gate
    cdef MessageStore store
    cdef Turn turn
    cdef Clock clock
    cdef object stats
    cdef UniqueIds ids
    cdef bytes host                       # the broker's address as in records
    cdef bytes added                      # properties that the broker adds
    cdef int64_t from_ms                  # takes no sends before this time
    cdef Receipt receipt
    cdef Run run
    cdef list counted                     # Topics with counts to report
    cdef int64_t runs
    cdef Py_ssize_t answers_bytes         # of the last run
    cdef uint8_t *room

    cdef int take(self, Front front, const Frame *frame, const Header *header, bint long_names) except -1
    cdef int take_alike(self, Front front, const Frame *frame) except -1
    cdef int accept(
        self, Front front, const Frame *frame, const SendFields *fields, Completed *done
    ) except -1
    cdef bint take_properties(self, Front front, const SendFields *fields, Completed *done) except -1
    cdef bint complete(self, Completed *done) except -1
    cdef int put(
        self, Front front, const Frame *frame, const SendFields *fields, Topic topic, Message *message,
        Completed *done,
    ) except -1
    cdef int put_batch(
        self, Front front, const Frame *frame, const SendFields *fields, Topic topic, Message *message,
        const Completed *done,
    ) except -1
    cdef int64_t stage_items(
        self, const Frame *frame, ConsumeQueue queue, Message *message, int64_t total, int64_t *places
    ) except? -1
    cdef int answer(
        self, Front front, const Frame *frame, const SendFields *fields, const Completed *done,
        ConsumeQueue queue, int64_t queue_offset, const int64_t *places, int count,
    ) except -1
    cdef int note(
        self, Topic topic, ConsumeQueue queue, int64_t messages, int64_t end, int64_t size
    ) except -1
    cdef Run open_run(self)
    cdef int fill(
        self, Message *message, Front front, Topic topic, const SendFields *fields, int64_t now_ms
    ) except -1
    cdef bint fits(self, int64_t size) noexcept
