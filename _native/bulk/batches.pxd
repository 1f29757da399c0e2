# Records turned into the body of a batch request without decoding them: bodies are copied as they lie, properties with
# some left out and some put behind.
#
#   item      i32 size, i32 0, i32 0, i32 flag, i32 + body, i16 + properties         one behind the other
#
# Ownership: a Batch owns its body; Edits own the texts their plan points into. Order: a record is checked again when it
# is written, and what is copied is what was checked. Edits never change once made: any thread.

from libc.stdint cimport int32_t, int64_t, uint8_t

from firearrow._native.store.record cimport RecordView

cdef enum:
    ITEM_AT_FLAG = 12
    ITEM_AT_BODY_BYTES = 16
    ITEM_HEAD_BYTES = 20          # all in front of the body
    ITEM_OVER_BYTES = 22          # all but body and properties
    NAMES_MAX = 4096              # that may be dropped
    NUMBER_BYTES_MAX = 20         # digits of an i64

cdef struct Name:
    const uint8_t *at
    Py_ssize_t length

cdef struct Plan:                 # what is done to the properties of each record, ready to be copied
    Name *dropped                 # sorted by their first byte
    int32_t first[257]            # where the names begin that start with a byte
    Name put                      # whole properties
    Name origin                   # properties of provenance up to the topic's name; length 0: none are wanted

cdef class Edits:
    cdef readonly frozenset drop
    cdef readonly dict put
    cdef readonly tuple provenance
    cdef list texts               # keep alive what `plan` points to
    cdef Plan plan

    cdef int lay_names(self) except -1
    cdef int lay_texts(self) except -1

cdef Py_ssize_t edited_bytes_max(const Plan *plan, const RecordView *view) noexcept nogil
cdef uint8_t *put_edited(const Plan *plan, const RecordView *view, uint8_t *to) noexcept nogil
