# RemotingCommand: one request or response as a Python object, for the slow path, tests and the client. It
# owns all its data; the frame it was decoded from may be freed.

from libc.stdint cimport int32_t, int64_t

from firearrow._native.wire.frame cimport Frame
from firearrow._native.wire.header cimport Header
from firearrow._native.wire.json cimport Span

cdef class RemotingCommand:
    cdef public int32_t code, language, version, opaque, flag
    cdef public int serializer
    cdef public str remark  # type: str | None
    cdef public dict ext  # type: dict[str, str]
    cdef public bytes body
    cdef public int64_t since_ns  # When the request was read (monotonic); 0: its latency is not measured.
    cdef public int32_t asked  # Of an answer: the code of its request.
    cdef public bint held  # The request waited for messages.
    cdef public str user  # type: str | None  # Who sent it, verified; None: not signed, or not known.
    cdef public str secret  # type: str | None  # With which its signature was verified.

cdef RemotingCommand command_of(const Frame *frame)
cdef RemotingCommand command_from(const Frame *frame, const Header *header)
cdef str text_of(const Span *span)
cdef object integer_of(str name, str value, int bits)
