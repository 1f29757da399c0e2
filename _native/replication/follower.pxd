# Follower: the bytes of a master's log become records of our own store.
#
# wire → pieces (12 bytes of header, then bytes of the log) → `pending` → whole, checked records → staged
# like messages that we put ourselves: one `pwrite` for all of them, then their queue entries and keys.
#
# `pending` holds what comes after the last whole record: part of one, at most RECORD_BYTES_MAX bytes. So the
# log has whole records only, and the folder is a store at each moment.
# Owner: the slave's HAClient. Thread: the appender's.

from libc.stdint cimport int64_t, uint8_t, uint32_t

from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.log.record cimport Properties, RecordView
from firearrow._native.store.message_store cimport MessageStore

cdef class Follower:
    cdef MessageStore store
    cdef readonly bytearray wire          # the socket is read into it
    cdef uint8_t *pending
    cdef Py_ssize_t pending_bytes, pending_capacity
    cdef uint8_t header[12]
    cdef int header_bytes
    cdef int64_t piece_left               # bytes of the current piece that are not here yet
    cdef readonly int64_t next_offset  # Physical offset of the next byte that the master has to send.
    cdef readonly int64_t pieces, heartbeats, records  # How many were received; how many records were staged.
    cdef readonly int64_t skipped_lmqs  # records whose entries in LMQs were left out
    # a record that does not continue its queue is fetched again once, to see whether it comes the same
    cdef int64_t doubted_offset
    cdef uint32_t doubted_crc
    cdef set touched                      # queues with new entries

    cdef int keep(self, const uint8_t *at, Py_ssize_t length) except -1
    cdef int begin_piece(self) except -1
    cdef int64_t stage_next(self, const uint8_t *at, Py_ssize_t available) except -2
    cdef int64_t stage_blank(self, const uint8_t *at, int64_t physical, Py_ssize_t available) except -2
    cdef int64_t stage_record(self, const uint8_t *at, const RecordView *view) except -2
    cdef int dispatch_record(
        self, ConsumeQueue queue, const Properties *properties, const RecordView *view
    ) except -1
    cdef bint move_queue(self, ConsumeQueue queue, const uint8_t *at, const RecordView *view) except -1
    cdef int believe(self, const uint8_t *at, const RecordView *view, ConsumeQueue queue) except -1
    cdef int fill_gap(self, ConsumeQueue queue, const RecordView *view) except -1
    cdef bint start_lmqs(self, const Properties *properties) except -1
