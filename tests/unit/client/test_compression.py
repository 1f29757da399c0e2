"""Compressed bodies: ours and Apache's are read, broken and too large ones refused, missing packages named."""

import builtins
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import lz4.block
import pytest

from firearrow._native.store.log.received_message import decode_messages
from firearrow.client.base.compression import BodyUnreadable, open_body, pack
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import CompressionKind
from tests.unit.store.test_received_message import pulled

KINDS = list(CompressionKind)
KIB = 1 << 10
BODIES = (b"", b"x", bytes(range(256)) * 999, os.urandom(70_000))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_packed_is_opened(kind: CompressionKind) -> None:
    for body in BODIES:
        for level in (0, 1, 5, 9):
            flags, packed = pack(kind, level, body)
            assert open_body(flags, packed) == body
            assert open_body(flags | 0xC, packed) == body


def test_flags_are_those_of_java() -> None:
    assert [
        pack(kind, 5, b"")[0] for kind in (CompressionKind.LZ4, CompressionKind.ZSTD, CompressionKind.ZLIB)
    ] == [
        0x101,
        0x201,
        0x301,
    ]


def test_without_a_kind_it_is_zlib_and_without_the_flag_plain() -> None:
    assert open_body(0x1, zlib.compress(b"old")) == b"old"
    assert open_body(0x300, b"plain") == b"plain"


def test_bodies_that_java_packed_are_opened() -> None:
    kinds = set()
    for answer in pulled():
        for message in decode_messages(answer, "b", open_body):
            if message.sys_flag & 1:
                kinds.add(message.sys_flag >> 8 & 7)
                assert len(message.body) >= 5000
    assert kinds == {1, 2, 3}


def lz4_blocks(packed: bytes) -> Iterator[bytes]:
    """Each block opened on its own, as Java's LZ4FrameInputStream does; it refuses a frame without the bit for that."""
    magic, flags, descriptor = struct.unpack_from("<IBB", packed)
    assert (magic, flags >> 6) == (0x184D2204, 1)
    assert flags & 0x20, "the blocks are linked"
    at = 7 + (8 if flags & 0x08 else 0)
    while size := int.from_bytes(packed[at : at + 4], "little"):
        block = packed[at + 4 : at + 4 + (size & 0x7FFFFFFF)]
        at += 4 + len(block) + (4 if flags & 0x10 else 0)
        most = 1 << 8 + 2 * (descriptor >> 4)
        yield block if size >> 31 else lz4.block.decompress(block, uncompressed_size=most)


@pytest.mark.parametrize("size", [1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 1024 * KIB, 4096 * KIB])
@pytest.mark.parametrize("random", [False, True])
def test_each_lz4_block_opens_on_its_own(size: int, random: bool) -> None:
    body = os.urandom(size) if random else (b"some text, " * (size // 11 + 1))[:size]
    assert b"".join(lz4_blocks(pack(CompressionKind.LZ4, 5, body)[1])) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_or_garbled_is_refused(kind: CompressionKind) -> None:
    flags, packed = pack(kind, 5, b"some text, some text, some text" * 5)
    for end in range(len(packed)):
        with pytest.raises(BodyUnreadable, match="body"):
            open_body(flags, packed[:end])
    with pytest.raises(BodyUnreadable, match=str(kind)):
        open_body(flags, b"\xffgarbage" * 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_is_opened_up_to_its_limit_and_not_past_it(kind: CompressionKind) -> None:
    flags, packed = pack(kind, 5, bytes(5_000_000))
    assert open_body(flags, packed, 5_000_000) == bytes(5_000_000)
    with pytest.raises(BodyUnreadable, match="more than 4999999 bytes"):
        open_body(flags, packed, 4_999_999)


@pytest.mark.parametrize("kind", [CompressionKind.LZ4, CompressionKind.ZSTD])
def test_concatenated_frames_are_one_body(kind: CompressionKind) -> None:
    flags, one = pack(kind, 5, b"one" * 9000)
    _, two = pack(kind, 5, b"two")
    assert open_body(flags, one + two) == b"one" * 9000 + b"two"


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BodyUnreadable, match="unknown way"):
        open_body(0x401, b"")


@pytest.mark.parametrize(
    ("kind", "package"), [(CompressionKind.LZ4, "lz4"), (CompressionKind.ZSTD, "zstandard")]
)
def test_a_missing_package_is_named(
    kind: CompressionKind, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:  # noqa: ANN401 - as Python's own
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}: pip install firearrow\[compression\]"):
        pack(kind, 5, b"x")
    with pytest.raises(BodyUnreadable, match=rf"{package}: pip install firearrow\[compression\]"):
        open_body({"lz4": 0x101, "zstandard": 0x201}[package], b"x")
