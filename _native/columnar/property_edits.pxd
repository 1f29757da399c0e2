# PropertyEdits: edits the properties of every record that is sent again. Drops some by name, appends others,
# and adds where the record came from. `write_edited` writes the properties of one record, at most
# `edited_bytes_max` bytes.
#
# Ownership: PropertyEdits own the strings that their plan points to, and never change. Any thread.

cimport cython
from libc.stdint cimport int32_t, uint8_t

from firearrow._native.store.log.record cimport RecordView

cdef enum:
    NAMES_MAX = 4096              # of names to drop

cdef struct Name:
    const uint8_t *at
    Py_ssize_t length

cdef struct EditPlan:                 # ready to be copied
    Name *dropped                 # sorted by their first byte
    int32_t first[257]            # where the names begin that start with a byte
    Name put                      # whole properties
    Name origin                   # REPLAY_* properties up to the topic's name; length 0: none


@cython.final
cdef class PropertyEdits:
    cdef readonly frozenset drop  # type: frozenset[str]
    cdef readonly dict put  # type: Mapping[str, str]
    cdef readonly tuple provenance  # type: tuple[str, str] | None
    cdef list texts               # keep alive what `plan` points to
    cdef EditPlan plan

    cdef int build_names(self) except -1
    cdef int build_strings(self) except -1

cdef Py_ssize_t edited_bytes_max(const EditPlan *plan, const RecordView *view) noexcept nogil
cdef uint8_t *write_edited(const EditPlan *plan, const RecordView *view, uint8_t *to) noexcept nogil
