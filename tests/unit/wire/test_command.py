"""Commands: parsed as peers meant them, encoded so that they are read back the same; malformed ones are refused."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.wire.codes import LanguageCode, RequestCode, ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand, WireError
from tests import golden

FIELDS_MAX = 256


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), serializer << 24 | len(header)) + header + body


def same(one: RemotingCommand, other: RemotingCommand) -> bool:
    names = ("code", "language", "version", "opaque", "flag", "remark", "ext", "body", "serializer")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def test_every_recorded_frame_is_read_as_apache_does_and_survives_a_round_trip() -> None:
    count = 0
    for _, recorded, raw in golden.whole_frames():
        line = recorded.line
        command = RemotingCommand.decode(raw)
        assert (command.code, command.opaque, command.flag) == (line["code"], line["opaque"], line["flag"])
        assert (command.version, command.remark) == (line["version"], line["remark"])
        assert command.ext == (line["extFields"] or {})
        assert LanguageCode(command.language).name == line["language"]
        assert len(command.body) == line["bodyLength"]
        assert same(RemotingCommand.decode(command.encode()), command)
        count += 1
    assert count > 5000


def test_the_example_frames_of_the_protocol() -> None:
    raw = frame(
        b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
        b'"serializeTypeCurrentRPC":"JSON","version":401}'
    )
    command = RemotingCommand(105, {"topic": "TopicTest"}, opaque=7, language=LanguageCode.JAVA, version=401)
    assert command.encode() == raw
    command.serializer = 1
    assert command.encode() == bytes.fromhex(
        "0000002d 01000029 0069 00 0191 00000007 00000000 00000000 00000014 0005746f706963 00000009546f70696354657374"
    )


@pytest.mark.parametrize(
    ("header", "ext"),
    [
        (
            b'{"code":1,"extFields":{"queueId":3,"ok":true,"no":null,"x":-1.5e3}}\n',
            {"queueId": "3", "ok": "true", "x": "-1.5e3"},
        ),
        (b' { "extFields" : { } , "code" : 1 } ', {}),
        (b'{"code":1,"extFields":null,"later":{"a":[1,{"b":"}"}],"c":[]}}', {}),
        (b'{"code":1,"extFields":{"a":"1","a":"2"}}', {"a": "2"}),
        (
            b'{"code":1,"extFields":{"p":"K\\u0001\\u00e9\\ud83d\\ude00\\ud800x\\n\\/\\"\\\\"}}',
            {"p": 'K\x01é😀?x\n/"\\'},
        ),
        ('{"code":1,"extFields":{"p":"K\x01v\x02浙江"}}'.encode(), {"p": "K\x01v\x02浙江"}),
        (b'{"code":1,"extFields":{"p":"\xff"}}', {"p": "�"}),
        (b'{"code":1,"language":12,"remark":""}', {}),
        (b"{}", {}),
    ],
)
def test_what_other_clients_write_is_accepted(header: bytes, ext: dict[str, str]) -> None:
    assert RemotingCommand.decode(frame(header)).ext == ext


@pytest.mark.parametrize(
    "header",
    [
        b"", b"x", b"{", b'{"code":1', b'{"code":1}}', b'{"code":"1"}', b'{"code":1.5}', b'{"code":99999999999}',
        b'{"code":2147483648}', b'{"opaque":-2147483649}', b'{"code":}', b'{"code":1,}', b"{'code':1}",
        b'{"extFields":[]}', b'{"extFields":{"a":{}}}', b'{"extFields":{"a":[1]}}', b'{"extFields":{"a"}}',
        b'{"extFields":{"a":"\\x"}}', b'{"extFields":{"a":"\\u12"}}', b'{"extFields":{"a":"b}', b'{"a":tru}',
        b'{"a":' + b"[" * 17 + b"]" * 17 + b"}",
        b'{"extFields":{' + b",".join(b'"%d":"x"' % n for n in range(FIELDS_MAX + 1)) + b"}}",
    ],
)  # fmt: skip
def test_a_bad_json_header_is_refused(header: bytes) -> None:
    with pytest.raises(WireError):
        RemotingCommand.decode(frame(header))


def test_limits_hold_at_the_limit() -> None:
    fields = b",".join(b'"%d":"x"' % n for n in range(FIELDS_MAX))
    assert len(RemotingCommand.decode(frame(b'{"extFields":{' + fields + b"}}")).ext) == FIELDS_MAX
    assert RemotingCommand.decode(frame(b'{"a":' + b"[" * 16 + b"]" * 16 + b"}")).code == 0
    body = bytes((16 << 20) - 10)
    assert len(RemotingCommand.decode(frame(b"{}", body)).body) == len(body)
    with pytest.raises(WireError, match="over the limit"):
        RemotingCommand.decode(frame(b"{}", body + b"x"))
    with pytest.raises(ValueError, match="at most 16777216"):
        RemotingCommand(1, body=bytes(16 << 20)).encode()
    with pytest.raises(ValueError, match="ext fields, at most 256"):
        RemotingCommand(1, {str(n): "" for n in range(FIELDS_MAX + 1)}).encode()
    assert RemotingCommand.decode(frame(b" " * ((1 << 20) - 2) + b"{}")).code == 0
    with pytest.raises(WireError, match="header length"):
        RemotingCommand.decode(frame(b" " * ((1 << 20) - 1) + b"{}"))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\x00" * 4, b"\x00" * 8, b"\xff" * 64, struct.pack(">iI", 3, 0), struct.pack(">iI", 4, 1),
        struct.pack(">iI", 6, 5) + b"{}", frame(b"{}", serializer=2), frame(b"{}") + b"x", frame(b"{}")[:-1],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_a_bad_frame_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        RemotingCommand.decode(raw)


def test_every_cut_of_a_binary_header_is_refused() -> None:
    whole = RemotingCommand(105, {"topic": "T", "x": ""}, remark="r", serializer=1).encode()
    header = whole[8:]
    for cut in range(len(header)):
        with pytest.raises(WireError):
            RemotingCommand.decode(frame(header[:cut], serializer=1))


COMMANDS = st.builds(
    RemotingCommand,
    st.integers(-32768, 32767),
    st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=12),
    st.binary(max_size=200),
    remark=st.none() | st.text(min_size=1, max_size=40),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    language=st.sampled_from([int(code) for code in LanguageCode]),
    version=st.integers(0, 32767),
    serializer=st.sampled_from([0, 1]),
)


@given(COMMANDS)
def test_any_command_survives_a_round_trip(command: RemotingCommand) -> None:
    assert same(RemotingCommand.decode(command.encode()), command)


@given(st.binary(max_size=300), st.sampled_from([0, 1]))
def test_garbage_headers_raise_and_nothing_else(header: bytes, serializer: int) -> None:
    try:
        RemotingCommand.decode(frame(header, serializer=serializer))
    except WireError:
        pass


@given(COMMANDS, st.data())
def test_a_flipped_byte_raises_or_decodes(command: RemotingCommand, data: st.DataObject) -> None:
    raw = bytearray(command.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    try:
        RemotingCommand.decode(bytes(raw))
    except WireError:
        pass


def test_a_json_answer_is_what_a_json_parser_reads() -> None:
    command = RemotingCommand(0, {'a"\\': "\x01\x1f\n浙"}, remark='"', opaque=-1)
    raw = command.encode()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[5:8])])
    assert header["extFields"] == {'a"\\': "\x01\x1f\n浙"}
    assert (header["remark"], header["opaque"], header["language"]) == ('"', -1, "PYTHON")


def test_pop_codes_do_not_fit_a_binary_header_and_are_sent_as_json() -> None:
    command = RemotingCommand(RequestCode.POP_MESSAGE, serializer=1)
    assert RemotingCommand.decode(command.encode()).code == RequestCode.POP_MESSAGE


def test_an_answer_mirrors_opaque_and_serializer() -> None:
    request = RemotingCommand(34, opaque=99, serializer=1)
    answer = request.answer(ResponseCode.SYSTEM_BUSY, "wait", {"a": "b"}, b"body")
    assert (answer.opaque, answer.serializer, answer.is_response, answer.is_oneway) == (99, 1, True, False)
    assert (answer.code, answer.remark, answer.ext, answer.body) == (2, "wait", {"a": "b"}, b"body")


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "٣", "0x1", "1.0", "+", "-", "9" * 21, str(2**63)])
def test_a_field_that_is_not_a_number_is_named(text: str) -> None:
    with pytest.raises(FieldError, match="queueOffset"):
        RemotingCommand(11, {"queueOffset": text}).integer("queueOffset")


def test_fields_are_read_as_java_reads_them() -> None:
    command = RemotingCommand(
        11, {"i": "-7", "p": "+7", "big": str(2**31), "yes": "TRUE", "one": "1", "empty": ""}
    )
    assert (command.integer("i"), command.integer("p")) == (-7, 7)
    assert command.integer("big") == 2**31
    with pytest.raises(FieldError, match="big does not fit in 32 bits"):
        command.integer("big", 32)
    assert command.boolean_or("yes", False)
    assert not command.boolean_or("one", True)
    assert command.boolean_or("absent", True)
    assert command.integer_or("empty", 5) == 5
    with pytest.raises(FieldError, match="topic is missing"):
        command.text("topic")
