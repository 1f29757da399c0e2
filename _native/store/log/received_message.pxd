# ReceivedMessage: a message as a consumer gets it, a view of the pulled body; fields are decoded on first
# use.
#
# Ownership: all messages of one response share one Source, which owns the bytes; so a message keeps its whole
# response alive. Decoded fields (topic, body, properties) belong to the message and may be changed.
#
#   records  ...[size magic crc ... | body | topic | properties]...      texts is records
#   inner batch: records as before, texts is the outer message's decompressed body ...[item][item]...
#
# Order: `check_record` checks every length before a message is created, so reading needs no checks. Thread:
# any with the GIL; two that decode the same field at once do it twice. No cycle collection: a Source's opener
# must not reference messages.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef class Source:
    cdef bytes records            # headers and topics
    cdef bytes texts              # bodies and properties
    cdef object opener
    cdef str topic                # the last one decoded: nearly always that of all messages
    cdef str min_offset, max_offset

cdef class ReceivedMessage:
    cdef Source source
    cdef int32_t start            # of the record in source.records
    cdef int32_t topic_at, topic_bytes
    cdef int32_t body_at          # in source.texts, like the properties
    cdef readonly int32_t body_bytes  # Size of the body as stored, possibly compressed.
    cdef int32_t properties_at, properties_bytes
    cdef readonly int32_t store_size, flag, sys_flag  # Of the record; in an inner batch, of its item.
    cdef readonly int64_t physical_offset
    cdef public int32_t queue_id
    cdef public int32_t reconsume_times  # How often its consumption failed before.
    cdef public int64_t queue_offset
    cdef public str broker_name
    cdef public object queue  # type: Any  # The MessageQueue that it was pulled from.
    cdef bint packed, inner
    cdef str own_topic
    cdef bytes own_body
    cdef dict own_properties      # after the first use
    cdef dict put                 # properties set before that

    cdef const uint8_t *header(self) noexcept
    cdef str find(self, const char *name, Py_ssize_t name_bytes)
    cdef str text_of(self, str name)
