"""Runs each hot structure alone, many operations per call. Built by bench/loops.py; never installed.

The parts of the store belong to an open MessageStore and are left inconsistent: discard the store afterwards.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from firearrow._native.base.endian cimport get_i32
from firearrow._native.store.log.commit_log cimport CommitLog
from firearrow._native.store.log.consume_queue cimport ConsumeQueue
from firearrow._native.store.get_message cimport PickedRecord, Scan, copy_picked, pick
from firearrow._native.base.hash cimport body_crc, body_crc_by
from firearrow._native.store.log.key_index cimport KeyHashes, keys_of
from firearrow._native.store.log.key_index cimport KeyIndex
from firearrow._native.store.store_reader cimport StoreReader
from firearrow._native.store.log.record cimport (
    Message, Properties, RecordView, Text, check_record, encode_record, record_bytes, scan_properties,
)
from firearrow._native.wire.frame cimport FRAME_WHOLE, Frame, next_frame
from firearrow._native.wire.header cimport Header, scan_header

cdef enum:
    BATCH = 32
    PASS_KEYS = 512
    ENTRY = 20
    ENTRY_SIZE_AT = 8
    BUFFER_BYTES = 1 << 16

cdef uint32_t GOLDEN = 2654435761U      # multiples of it spread over 32 bits


def frames(bytes window):
    """The number of complete frames in `window`."""
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(window)
    cdef const uint8_t *end = at + len(window)
    cdef Frame frame
    cdef int64_t found = 0
    with nogil:
        while next_frame(at, end - at, BUFFER_BYTES, &frame) == FRAME_WHOLE:
            at += frame.size
            found += 1
    return found


def headers(bytes text, int serializer, int64_t times):
    """The number of ext fields in the last scan; 0 or less: the header was refused."""
    cdef Header header
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef Py_ssize_t length = len(text)
    cdef int64_t _n
    cdef int reason = 0
    with nogil:
        for _n in range(times):
            reason |= scan_header(at, length, serializer, &header)
    return header.fields if reason == 0 else reason


cdef Message message_of(bytes topic, bytes properties, bytes host, bytes body):
    cdef Message message
    memset(&message, 0, sizeof(Message))
    message.topic = Text(<const uint8_t *> PyBytes_AS_STRING(topic), len(topic))
    message.properties = Text(<const uint8_t *> PyBytes_AS_STRING(properties), len(properties))
    message.body = Text(<const uint8_t *> PyBytes_AS_STRING(body), len(body))
    message.born_host = message.store_host = Text(<const uint8_t *> PyBytes_AS_STRING(host), len(host))
    message.crc = body_crc(message.body.at, message.body.length)
    return message


def encode(bytes topic, bytes properties, bytes host, bytes body, int64_t times):
    """The record."""
    cdef Message message = message_of(topic, properties, host, body)
    cdef uint8_t buffer[BUFFER_BYTES]
    cdef Py_ssize_t size = 0
    cdef int64_t n
    if record_bytes(&message) > BUFFER_BYTES:
        raise ValueError("the record is too long")
    with nogil:
        for n in range(times):
            message.queue_offset = n
            size = record_bytes(&message)
            encode_record(&message, size, buffer)
    return buffer[:size]


def check(bytes record, int64_t times):
    """The sum of the check states, CRC included: equals `times` if the record is valid."""
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(record)
    cdef Py_ssize_t length = len(record)
    cdef RecordView view
    cdef int64_t _n, states = 0
    with nogil:
        for _n in range(times):
            states += check_record(at, length, BUFFER_BYTES, True, &view)
    return states


def key_hashes(bytes topic, bytes properties, int64_t times):
    """The index hashes of such a record; its properties are scanned each time."""
    cdef Text text = Text(<const uint8_t *> PyBytes_AS_STRING(properties), len(properties))
    cdef KeyHashes hashes = KeyHashes.__new__(KeyHashes)
    cdef Properties found
    cdef int32_t count = 0, topic_key_hash = keys_of(topic, len(topic))
    for _ in range(times):
        scan_properties(&text, &found)
        count = hashes.add_keys(topic_key_hash, &found)
    return [hashes.at[n] for n in range(count)]


def crc(bytes body, int way, int64_t times):
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(body)
    cdef Py_ssize_t length = len(body)
    cdef int32_t found = 0
    cdef int64_t _n
    with nogil:
        for _n in range(times):
            found = body_crc_by(way, at, length)
    return found


cdef class Parts:
    """Log, one queue and index of an open store."""

    cdef StoreReader reader
    cdef CommitLog log
    cdef ConsumeQueue queue
    cdef KeyIndex index

    def __init__(self, StoreReader reader not None, str topic, int queue_id):
        self.reader = reader
        self.log, self.index = reader.log, reader.index
        self.queue = reader.queue(topic, queue_id)
        if self.queue is None:
            raise ValueError("the queue has no message yet")

    def append(self, bytes record, int64_t times):
        """Stage copies of the record, with one write per BATCH; the log's end."""
        cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(record)
        cdef int64_t n, physical_offset, size = len(record)
        for n in range(times):
            memcpy(self.log.reserve_record(size, &physical_offset), at, size)
            if n % BATCH == BATCH - 1:
                self.log.write()
        return self.log.write()

    def put(self, int64_t times):
        """Promise and append entries; the queue's end."""
        cdef int64_t n
        for n in range(times):
            self.queue.next_slot()
            self.queue.append(n, 300, n & 3)
        return self.queue.end_entry

    def slice(self, int64_t times):
        """Look up BATCH entries at a different offset each time; the sum of their sizes."""
        cdef int64_t n, count, sizes = 0, places = max(self.queue.end_entry - BATCH, 1)
        cdef const uint8_t *run
        cdef int entry
        for n in range(times):
            run = self.queue.entries_at(n * 7919 % places, &count)
            for entry in range(<int> min(count, <int64_t> BATCH)):
                sizes += get_i32(run + entry * ENTRY + ENTRY_SIZE_AT)
        return sizes

    def index_put(self, int64_t times):
        """Put keys whose hashes are spread over the slots, PASS_KEYS at a time."""
        cdef int32_t hashes[PASS_KEYS]
        cdef int64_t n, turn, key
        for n in range(0, times, PASS_KEYS):
            turn = min(times - n, <int64_t> PASS_KEYS)
            for key in range(turn):
                hashes[key] = <int32_t> (<uint32_t> (n + key) * GOLDEN & 0x7FFFFFFF)
            self.index.ensure_capacity(turn)
            self.index.prefetch(hashes, turn)
            for key in range(turn):
                self.index.put(hashes[key], n + key, 1700000000000)

    def pull(self, list codes, int64_t times, bint copy):
        """Pick BATCH messages with one of the tags (none: all) from the queue's start, and copy them.

        Returns count and bytes of the last.
        """
        cdef PickedRecord picked[BATCH]
        cdef Scan scan
        cdef int32_t wanted[8]
        cdef int64_t n, _n
        cdef uint8_t *buffer = <uint8_t *> PyMem_Malloc(BATCH * BUFFER_BYTES)
        if buffer is NULL:
            raise MemoryError()
        try:
            for n in range(min(len(codes), 8)):
                wanted[n] = codes[n]
            for _n in range(times):
                scan.picked = picked
                pick(
                    self.log, self.queue, &self.reader.limits, 0, BATCH, BATCH * BUFFER_BYTES, wanted,
                    min(len(codes), 8), None, None, &scan,
                )
                if copy:
                    copy_picked(&scan, buffer)
            return scan.count, scan.bytes
        finally:
            PyMem_Free(buffer)
