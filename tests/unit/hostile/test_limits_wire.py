"""Frames, headers and JSON of peers: each limit at its value, and one past it."""

import pytest

from firearrow._native.protocol.fastjson import DEPTH_MAX as LOOSE_DEPTH_MAX
from firearrow._native.protocol.fastjson import JsonError, loads
from firearrow._native.wire.command import RemotingCommand, WireError
from tests.hostile.code import value_of

FRAME_BYTES_MAX = value_of("_native/wire/limits", "FRAME_BYTES_MAX")
HEADER_BYTES_MAX = value_of("_native/wire/limits", "HEADER_BYTES_MAX")
FIELDS_MAX = value_of("_native/wire/limits", "FIELDS_MAX")
DEPTH_MAX = value_of("_native/wire/limits", "DEPTH_MAX")


def framed(header: bytes, body: bytes = b"", form: int = 0) -> bytes:
    return (
        (4 + len(header) + len(body)).to_bytes(4) + bytes((form,)) + len(header).to_bytes(3) + header + body
    )


def test_bytes_of_a_frame() -> None:
    around = len(RemotingCommand(10).encode())
    whole = RemotingCommand(10, {}, bytes(FRAME_BYTES_MAX - around)).encode()
    assert len(whole) == FRAME_BYTES_MAX
    assert len(RemotingCommand.decode(whole).body) == FRAME_BYTES_MAX - around
    with pytest.raises(ValueError, match="frame"):
        RemotingCommand(10, {}, bytes(FRAME_BYTES_MAX - around + 1)).encode()
    with pytest.raises(WireError, match="over the limit"):
        RemotingCommand.decode((FRAME_BYTES_MAX - 3).to_bytes(4) + whole[4:] + b"\0")


def header_of(size: int) -> bytes:
    start, end = b'{"code":10,"opaque":1,"flag":0,"remark":"', b'"}'
    return start + b"r" * (size - len(start) - len(end)) + end


def test_bytes_of_a_header() -> None:
    assert RemotingCommand.decode(framed(header_of(HEADER_BYTES_MAX))).code == 10
    with pytest.raises(WireError, match="header length"):
        RemotingCommand.decode(framed(header_of(HEADER_BYTES_MAX + 1)))


@pytest.mark.parametrize("serializer", [0, 1])
def test_ext_fields_of_a_header(serializer: int) -> None:
    fields = {f"k{n:03d}": "v" for n in range(FIELDS_MAX)}
    assert (
        len(RemotingCommand.decode(RemotingCommand(10, fields, serializer=serializer).encode()).ext)
        == FIELDS_MAX
    )
    with pytest.raises(ValueError, match=f"at most {FIELDS_MAX}"):
        RemotingCommand(10, fields | {"more": "v"}, serializer=serializer).encode()


def nested(depth: int) -> bytes:
    return b'{"code":10,"opaque":1,"flag":0,"unknown":' + b"[" * depth + b"]" * depth + b"}"


def test_nesting_of_skipped_members() -> None:
    depth = next(depth for depth in range(DEPTH_MAX + 2) if not skips(depth + 1))
    assert abs(depth - DEPTH_MAX) <= 1
    assert skips(depth)
    assert not skips(depth + 1)


def skips(depth: int) -> bool:
    try:
        return RemotingCommand.decode(framed(nested(depth))).code == 10
    except WireError:
        return False


def test_nesting_of_lenient_json() -> None:
    at = b'{"a":' * LOOSE_DEPTH_MAX + b"1," + b"}" * LOOSE_DEPTH_MAX
    assert "a" in loads(at)
    with pytest.raises(JsonError, match=f"nested deeper than {LOOSE_DEPTH_MAX}"):
        loads(b'{"a":' + at + b"}")
