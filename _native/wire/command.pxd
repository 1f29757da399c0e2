# RemotingCommand: one request or response as a Python object, for the slow path, tests and the client. It
# owns all its data; the frame it was decoded from may be freed.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport Span

cdef class RemotingCommand:
    cdef public int32_t code, language, version, opaque, flag
    cdef public int serializer
    cdef public str remark
    cdef public dict ext
    cdef public bytes body
    cdef public int64_t since_ns          # when the request was read; 0: not measured
    cdef public int32_t asked             # of an answer: the request's code
    cdef public bint held                 # the request waited for messages
    cdef public str user                  # who sent it, verified; None: nobody, or not known
    cdef public str secret                # with which its signature was verified; None: it was not

cdef RemotingCommand command_of(const Frame *frame)
cdef RemotingCommand command_from(const Frame *frame, const Header *header)
cdef str text_of(const Span *span)
cdef object integer_of(str name, str value, int bits)
