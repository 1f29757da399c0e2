"""RemotingCommand: one request or answer as a Python object. Knows the frame, not what the codes mean."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from firearrow._native.wire.codes cimport FLAG_ONEWAY, FLAG_RESPONSE, PYTHON, SERIALIZER_ROCKETMQ, VERSION
from firearrow._native.wire.json cimport unescape
from firearrow._native.wire.frame cimport FRAME_WHOLE, Frame, frame_fault, next_frame
from firearrow._native.wire.header cimport Header, header_fault, scan_header
from firearrow._native.wire.json cimport HEADER_BAD_JSON, SPAN_ABSENT, SPAN_ESCAPED, Span
from firearrow._native.wire.limits cimport FIELDS_MAX, FRAME_BYTES_MAX, FRAME_BYTES_MIN, HEADER_BYTES_MAX
from firearrow._native.wire.write_buffer cimport Writer

cdef tuple LANGUAGE_NAMES = (
    b"JAVA", b"CPP", b"DOTNET", b"PYTHON", b"DELPHI", b"ERLANG", b"RUBY", b"OTHER", b"HTTP", b"GO", b"PHP",
    b"OMS", b"RUST", b"NODE_JS",
)


class FieldError(ValueError):
    """An ext field is missing or malformed; the message names it."""
    pass


class WireError(ValueError):
    """A frame or header cannot be read; the frame boundary may be lost."""
    pass


cdef str text_of(const Span *span):
    """The span's text; invalid UTF-8 is replaced, as in Java."""
    cdef uint8_t *capacity
    cdef Py_ssize_t length
    if span.kind == SPAN_ABSENT:
        return ""
    if span.kind != SPAN_ESCAPED:
        return PyUnicode_DecodeUTF8(<const char *> span.at, span.length, "replace")
    capacity = <uint8_t *> PyMem_Malloc(span.length + 1)
    if capacity is NULL:
        raise MemoryError()
    try:
        length = unescape(span.at, span.length, capacity)
        if length < 0:
            raise WireError(header_fault(HEADER_BAD_JSON))
        return PyUnicode_DecodeUTF8(<const char *> capacity, length, "replace")
    finally:
        PyMem_Free(capacity)


cdef RemotingCommand command_of(const Frame *frame):
    cdef Header header
    cdef int status = scan_header(frame.header, frame.header_bytes, frame.serializer, &header)
    if status < 0:
        raise WireError(header_fault(status))
    return command_from(frame, &header)


cdef RemotingCommand command_from(const Frame *frame, const Header *header):
    cdef int n
    cdef RemotingCommand command = RemotingCommand.__new__(RemotingCommand)
    command.code = header.code
    command.language = header.language
    command.version = header.version
    command.opaque = header.opaque
    command.flag = header.flag
    command.serializer = frame.serializer
    command.remark = None if header.remark.kind == SPAN_ABSENT else text_of(&header.remark)
    command.ext = {}
    for n in range(header.fields):
        command.ext[text_of(&header.field[n].key)] = text_of(&header.field[n].value)
    command.body = PyBytes_FromStringAndSize(<const char *> frame.body, frame.body_bytes)
    return command


@cython.final
cdef class RemotingCommand:
    """One request or response. `opaque`: its number on the connection; `ext`: its custom header, all values
    are str."""

    def __init__(
        self, code, ext=None, body=b"", *, remark=None, opaque=0, flag=0, language=PYTHON, version=VERSION,
        serializer=0
    ):
        # type: (int, Mapping[str, str] | None, bytes, str | None, int, int, int, int, int) -> None
        self.code = code
        self.ext = {} if ext is None else dict(ext)
        self.body = body
        self.remark = remark
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.serializer = serializer

    def __repr__(self):
        return (
            f"RemotingCommand(code={self.code}, opaque={self.opaque}, flag={self.flag}, "
            f"remark={self.remark!r}, ext={self.ext!r}, body={len(self.body)} bytes)"
        )

    @property
    def is_response(self):
        # type: (...) -> bool
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self):
        # type: (...) -> bool
        return self.flag & FLAG_ONEWAY != 0

    @staticmethod
    def request(code, ext=None, body=b"", *, oneway=False):
        # type: (int, Mapping[str, str] | None, bytes, bool) -> RemotingCommand
        return RemotingCommand(code, ext, body, flag=FLAG_ONEWAY if oneway else 0)

    def answer(self, code=0, remark=None, ext=None, body=b""):
        # type: (int, str | None, Mapping[str, str] | None, bytes) -> RemotingCommand
        """A response to this request: same opaque and serializer, response flag set."""
        cdef RemotingCommand answer = RemotingCommand(
            code, ext, body, remark=remark, opaque=self.opaque, flag=FLAG_RESPONSE, serializer=self.serializer
        )
        answer.since_ns, answer.held = self.since_ns, self.held
        answer.asked = self.asked if self.flag & FLAG_RESPONSE else self.code
        return answer

    @staticmethod
    def decode(bytes frame not None):
        # type: (...) -> RemotingCommand
        """Decode one complete frame, length word included. WireError."""
        cdef Frame whole
        cdef int status = next_frame(
            <const uint8_t *> PyBytes_AS_STRING(frame), len(frame), FRAME_BYTES_MAX, &whole
        )
        if status < 0:
            raise WireError(frame_fault(status, <const uint8_t *> PyBytes_AS_STRING(frame), len(frame)))
        if status != FRAME_WHOLE or whole.size != len(frame):
            raise WireError("the bytes are not exactly one frame")
        return command_of(&whole)

    def encode(self):
        # type: (...) -> bytes
        """The complete frame, length word included. ValueError: a part is over its limit."""
        cdef Writer out = Writer()
        cdef bint binary = self.serializer == SERIALIZER_ROCKETMQ and -32768 <= self.code <= 32767
        cdef Py_ssize_t header_bytes
        out.put_i32(0)
        out.put_i32(0)
        if len(self.ext) > FIELDS_MAX:
            raise ValueError(f"{len(self.ext)} ext fields, at most {FIELDS_MAX}")
        if binary:
            put_binary(self, out)
        else:
            put_json(self, out)
        header_bytes = out.size - FRAME_BYTES_MIN
        if header_bytes > HEADER_BYTES_MAX:
            raise ValueError(f"header of {header_bytes} bytes, at most {HEADER_BYTES_MAX}")
        if out.size + len(self.body) > FRAME_BYTES_MAX:
            raise ValueError(f"frame of {out.size + len(self.body)} bytes, at most {FRAME_BYTES_MAX}")
        out.put(PyBytes_AS_STRING(self.body), len(self.body))
        out.patch_i32(0, <int32_t> (out.size - 4))
        out.patch_i32(4, <int32_t> (header_bytes | (SERIALIZER_ROCKETMQ << 24 if binary else 0)))
        return out.take()

    def text(self, str name):
        # type: (...) -> str
        value = self.ext.get(name)
        if value is None:
            raise FieldError(f"the field {name} is missing")
        return value

    def text_or(self, str name, default):
        # type: (str, str) -> str
        return self.ext.get(name, default)

    def integer(self, str name, int bits=64):
        # type: (...) -> int
        return integer_of(name, self.text(name), bits)

    def integer_or(self, str name, default, int bits=64):
        # type: (str, int, int) -> int
        value = self.ext.get(name)
        return default if value is None or value == "" else integer_of(name, value, bits)

    def boolean_or(self, str name, default):
        # type: (str, bool) -> bool
        value = self.ext.get(name)
        return default if value is None else value.lower() == "true"


cdef object integer_of(str name, str value, int bits):
    """Decimal digits with an optional sign, as Java's parsers accept them; other forms that int() accepts are
    refused."""
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not (0 < len(digits) <= 20 and digits.isascii() and digits.isdigit()):
        raise FieldError(f"the field {name} is not a whole number: {value[:64]!r}")
    number = int(value)
    if (number if number >= 0 else ~number).bit_length() >= bits:
        raise FieldError(f"the field {name} does not fit in {bits} bits: {value}")
    return number


cdef int put_json_text(Writer out, str text) except -1:
    cdef bytes raw = text.encode("utf-8", "replace")
    return out.put_json_string(<const uint8_t *> PyBytes_AS_STRING(raw), len(raw))


cdef int put_literal(Writer out, bytes text) except -1:
    return out.put(PyBytes_AS_STRING(text), len(text))


cdef int put_json(RemotingCommand command, Writer out) except -1:
    """Members in alphabetical order without null ones, as Java writes them."""
    cdef bint first = True
    put_literal(out, b'{"code":')
    out.put_decimal(command.code)
    put_literal(out, b',"extFields":{')
    for key, value in command.ext.items():
        if not first:
            out.put_byte(c',')
        first = False
        put_json_text(out, key)
        out.put_byte(c':')
        put_json_text(out, value)
    put_literal(out, b'},"flag":')
    out.put_decimal(command.flag)
    put_literal(out, b',"language":"' + LANGUAGE_NAMES[command.language if 0 <= command.language < 14 else 7])
    put_literal(out, b'","opaque":')
    out.put_decimal(command.opaque)
    if command.remark is not None:
        put_literal(out, b',"remark":')
        put_json_text(out, command.remark)
    put_literal(out, b',"serializeTypeCurrentRPC":"JSON","version":')
    out.put_decimal(command.version)
    return out.put_byte(c'}')


cdef int put_binary(RemotingCommand command, Writer out) except -1:
    cdef bytes raw = b"" if command.remark is None else command.remark.encode("utf-8", "replace")
    cdef Py_ssize_t start
    out.put_i16(<short> command.code)
    out.put_byte(<uint8_t> command.language)
    out.put_i16(<short> command.version)
    out.put_i32(command.opaque)
    out.put_i32(command.flag)
    out.put_i32(<int32_t> len(raw))
    put_literal(out, raw)
    start = out.size
    out.put_i32(0)
    for key, value in command.ext.items():
        raw = key.encode("utf-8", "replace")
        if len(raw) > 32767:
            raise ValueError("an ext field's name is longer than 32767 bytes")
        out.put_i16(<short> len(raw))
        put_literal(out, raw)
        raw = value.encode("utf-8", "replace")
        out.put_i32(<int32_t> len(raw))
        put_literal(out, raw)
    out.patch_i32(start, <int32_t> (out.size - start - 4))
    return 0
