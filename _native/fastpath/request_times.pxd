# RequestTimes: how long requests took, from the read of their bytes to the answer, as histograms in
# microseconds. Requests of the fast path are counted by RequestKind, and get the length of the pass that
# read and answered them: the clock is read once for all. Those that waited for the disk or for messages,
# and those of the handlers, are measured one by one.
#
# PutCounts: what was sent to one topic with one message type. Sizes: only those above SMALL_BYTES are
# counted, all others are small.
#
# Thread: the loop's.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.base.histogram cimport Histogram
from firearrow._native.wire.command cimport RemotingCommand
from firearrow._native.wire.poller cimport PassListener

cdef enum RequestKind:
    # requests of the fast path; codes in request_times.pyx
    KIND_SEND, KIND_SEND_V2, KIND_SEND_BATCH, KIND_PULL, KIND_LITE_PULL, KIND_ACK, KIND_HELD_PULL
    KIND_HELD_LITE_PULL
    KINDS

cdef enum:
    SMALL_BYTES = 1024
    LARGER_SIZES = 6


cdef class PutCounts:
    cdef public int64_t messages, bytes
    cdef int64_t larger[LARGER_SIZES]

    cdef void note_size(self, int64_t size, int64_t messages) noexcept


cdef class RequestTimes(PassListener):
    cdef int64_t in_pass[KINDS]           # answered since the last end of a pass
    cdef bint any_in_pass
    cdef object loop                      # tells the end of a turn where there is no poller; else None
    cdef int64_t began_ns                 # of that turn
    cdef list kinds                       # a Histogram for each RequestKind
    cdef dict answers                     # (code, code of the answer, held, is closed) → Histogram

    cdef int answered(self, int kind, int64_t times) except -1
    cdef int record(self, int kind, int64_t ns, int64_t times) except -1
    cdef int refused(self, int kind, int32_t code, int64_t times) except -1
    cdef Histogram answers_of(self, tuple key)
