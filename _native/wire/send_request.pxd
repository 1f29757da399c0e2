# Encodes send requests without a Python object for each field, and decodes their responses in place.
#
# Ownership: SendFrames belongs to one group and topic and owns the bytes that all their frames share. A
# SendWaiter calls `done` once with the outcome: a SendAnswer, or what the channel's `failure` returned.
# Thread: the channel's loop.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.wire.pending_calls cimport CallWaiter
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.write_buffer cimport Writer

cdef struct Send:                 # what differs from frame to frame
    int32_t opaque, code, frame_flag, queue_id, sys_flag, flag, reconsume_times, max_reconsume_times
    int64_t born_ms
    bint batch

cdef class SendFields:            # of one message, the same in each attempt to send it; -1: no maximum
    cdef public int32_t code, sys_flag, flag, reconsume_times, max_reconsume_times

cdef class SendFrames:
    cdef bytes constant           # the fields that never change, JSON or binary form
    cdef readonly bint binary, unit_mode
    cdef Writer free_writer

    cdef bytes frame_at(
        self, const Send *send, str broker_name, const uint8_t *properties, Py_ssize_t properties_bytes,
        bytes body
    )
    cdef int put_json(
        self, Writer out, const Send *send, str broker_name, const uint8_t *properties,
        Py_ssize_t properties_bytes
    ) except -1
    cdef int put_binary(
        self, Writer out, const Send *send, str broker_name, const uint8_t *properties,
        Py_ssize_t properties_bytes
    ) except -1

cdef class SendAnswer:
    cdef readonly int32_t code, queue_id
    cdef readonly int64_t queue_offset
    cdef readonly str remark, offset_message_id, transaction_id  # type: str | None
    cdef readonly str batch_unique_id, recall_handle  # type: str | None
    cdef readonly str region
    cdef readonly bint trace_on

cdef class SendWaiter(CallWaiter):
    cdef object done

cdef SendAnswer answer_of(const Header *header)
