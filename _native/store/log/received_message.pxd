# Messages as a consumer gets them: a window onto the pulled body, nothing decoded until it is asked for.
#
# Ownership: all messages of one answer share one Source, which owns the bytes; a message is kept alive with
# the whole answer it came in. What was decoded once (topic, body, properties) belongs to the message and may
# be changed.
#
#   records  ...[size magic crc ... | body | topic | properties]...      texts is records
#   an inner batch: records as before, texts the outer message's opened body ...[item][item]...
#
# Order: `check_record` has compared every length before a message exists, so reading needs no check. Any
# thread that holds the GIL; two that decode the same thing at once do it twice. No cycle collection: a
# Source's opener must not lead back to messages.

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef class Source:
    cdef bytes records            # where headers and topics lie
    cdef bytes texts              # where bodies and properties lie
    cdef object opener
    cdef str topic                # the last one decoded: nearly always everybody's
    cdef str min_offset, max_offset

cdef class ReceivedMessage:
    cdef Source source
    cdef int32_t start            # of the record in source.records
    cdef int32_t topic_at, topic_bytes
    cdef int32_t body_at          # in source.texts, as are the properties
    cdef readonly int32_t body_bytes
    cdef int32_t properties_at, properties_bytes
    cdef readonly int32_t store_size, flag, sys_flag
    cdef readonly int64_t physical_offset
    cdef public int32_t queue_id, reconsume_times
    cdef public int64_t queue_offset
    cdef public str broker_name
    cdef public object queue
    cdef bint packed, inner
    cdef str own_topic
    cdef bytes own_body
    cdef dict own_properties      # once asked for
    cdef dict put                 # what was put before that

    cdef const uint8_t *header(self) noexcept
    cdef str find(self, const char *name, Py_ssize_t name_bytes)
    cdef str text_of(self, str name)
