# HeaderTemplate: the header of an earlier send of a connection. Only six values change from one send to the
# next: request number, topic, queue, born time, properties and signature. The bytes between them are
# compared, not parsed. A header that matches no template is parsed, and becomes one if its request was
# handled. A connection has up to TEMPLATES_MAX, the last used first: a client may send for several groups,
# or compress some bodies. JSON form only; the binary one is as fast to parse. Ownership: it owns a copy of
# the bytes between the values, at most LITERALS_MAX, and the templates after it; results of `read` are
# borrowed from the frame.
#
# PropertiesTemplate: the names of the properties in a connection's last send, in order. If the next send has
# the same, names are compared and values copied, without unescaping or look-up.
# Only for the JSON form that clients write, `name\u0001value\u0002`, with ASCII values without escapes. A new
# form is remembered once it has come twice in a row, so that two alternating forms cost only comparisons.
# Ownership: it owns a copy of the names; results of `read_properties` point into `buffer`.
#
# SigningPlan: the order in which the values of such a header are signed. It owns copies of those that do not
# change.
#
# Thread: the loop's.

cimport cython
from libc.stdint cimport int32_t, uint8_t
from firearrow._native.fastpath.send_properties cimport CompletedProperties
from firearrow._native.wire.json cimport Span
from firearrow._native.fastpath.request_fields cimport SEND_VALUES, SendFields
from firearrow._native.wire.frame cimport Frame


cdef enum:
    PROPERTIES_MAX = 16
    NAMES_BYTES_MAX = 512

cdef struct PropertyName:
    int32_t length
    int32_t meaning


@cython.final
cdef class PropertiesTemplate:
    # the names in order, each followed by its separator
    cdef uint8_t literals[NAMES_BYTES_MAX]
    cdef PropertyName names[PROPERTIES_MAX]
    cdef int count                        # of names; 0: no template
    cdef bint is_ended                    # by a separator after the last value
    cdef bint is_unsure                   # the last properties had another form

    cdef void prefetch(self) noexcept nogil
    cdef void remember(self, const Span *given, const CompletedProperties *done) noexcept nogil
    cdef const uint8_t *read_properties(
        self, const uint8_t *at, const uint8_t *end, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil


cdef enum:
    LITERALS_MAX = 1024
    TEMPLATES_MAX = 4             # of a connection

cdef struct TemplateField:
    int32_t before                # bytes between the last value and this one
    int32_t which                 # index of the value (request_fields.pxd)


cdef enum:
    PIECES_MAX = 32

cdef struct Piece:
    int32_t which                 # index of a value that changes; -1: a constant
    int32_t at, length            # of the constant


@cython.final
cdef class SigningPlan:
    # what is signed in a header of a template, in order; constants that follow each other are one piece
    cdef uint8_t constants[LITERALS_MAX]
    cdef Piece pieces[PIECES_MAX]
    cdef int count
    cdef int32_t used             # of `constants`

    cdef bint add_constant(self, const Span *value) noexcept nogil
    cdef bint add_changing(self, int which) noexcept nogil


@cython.final
cdef class HeaderTemplate:
    cdef uint8_t literals[LITERALS_MAX]
    cdef TemplateField gaps[SEND_VALUES]
    cdef int count                # of gaps; 0: no template
    cdef int32_t tail_bytes       # bytes after the last value
    cdef SendFields fields        # of the last header; its values are invalid
    cdef PropertiesTemplate properties
    cdef SigningPlan plan         # None: signatures are not checked by it
    cdef HeaderTemplate following  # None: it is the last

    cdef void prefetch(self) noexcept nogil
    cdef void remember(self, const Frame *frame, const SendFields *fields) noexcept nogil
    cdef bint read(
        self, const Frame *frame, SendFields *fields, uint8_t *buffer, CompletedProperties *done
    ) noexcept nogil

cdef HeaderTemplate with_header(HeaderTemplate first, const Frame *frame, const SendFields *fields)
