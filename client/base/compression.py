"""Bodies packed and opened: zlib, LZ4 frames, Zstandard frames, as the system flag of a message says.

Never opens more than BODY_BYTES_MAX. `lz4` and `zstandard` are optional packages, imported when used. Any thread.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from firearrow.client.base.errors import ConfigError, RocketMQError
from firearrow.client.base.options import CompressionKind

BODY_BYTES_MAX = 256 << 20
PIECE_BYTES = 1024
COMPRESSED = 0x1
KIND_BITS = 0x7 << 8
FLAGS = {
    CompressionKind.LZ4: COMPRESSED | 1 << 8,
    CompressionKind.ZSTD: COMPRESSED | 2 << 8,
    CompressionKind.ZLIB: COMPRESSED | 3 << 8,
}
KINDS = {0: CompressionKind.ZLIB} | {flags & KIND_BITS: kind for kind, flags in FLAGS.items()}


class BodyUnreadable(RocketMQError):
    """A compressed body cannot be opened: broken, too large, or of a kind whose package is missing."""


def pack(kind: CompressionKind, level: int, body: bytes) -> tuple[int, bytes]:
    """The bits for the system flag and the packed body. ConfigError: the package of this kind is missing."""
    return FLAGS[kind], _PACKERS[kind](body, level)


def open_body(sys_flag: int, stored: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body as it was sent; `stored` itself unless the flag says compressed. BodyUnreadable."""
    if not sys_flag & COMPRESSED:
        return stored
    kind = KINDS.get(sys_flag & KIND_BITS)
    if kind is None:
        raise BodyUnreadable(f"body: compressed in an unknown way, system flag {sys_flag:#x}")
    try:
        return _OPENERS[kind](stored, bytes_max)
    except (zlib.error, RuntimeError, EOFError, ValueError) as fault:
        raise BodyUnreadable(f"body: {kind} says {fault}") from fault
    except ConfigError as missing:
        raise BodyUnreadable(str(missing)) from missing


def _package(name: str, kind: CompressionKind) -> Any:  # noqa: ANN401 - optional, untyped
    try:
        return import_module(name)
    except ImportError as missing:
        package = name.partition(".")[0]
        raise ConfigError(
            f"{kind} bodies need the package {package}: pip install firearrow[compression]"
        ) from missing


def _pack_lz4(body: bytes, level: int) -> bytes:
    packed: bytes = _package("lz4.frame", CompressionKind.LZ4).compress(body, compression_level=0)
    return packed


def _pack_zstd(body: bytes, level: int) -> bytes:
    packed: bytes = _package("zstandard", CompressionKind.ZSTD).ZstdCompressor(level=level).compress(body)
    return packed


def _open_zlib(stored: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    body = stream.decompress(stored, bytes_max + 1)
    _within(len(body), bytes_max)
    if not stream.eof:
        raise EOFError("cut")
    return body


def _open_lz4(stored: bytes, bytes_max: int) -> bytes:
    frame = _package("lz4.frame", CompressionKind.LZ4)
    body = b""
    while True:
        stream = frame.LZ4FrameDecompressor()
        opened: bytes = stream.decompress(stored, bytes_max + 1 - len(body))
        body += opened
        _within(len(body), bytes_max)
        if not stream.eof:
            raise EOFError("cut")
        stored = stream.unused_data
        if not stored:
            return body


def _open_zstd(stored: bytes, bytes_max: int) -> bytes:
    """In small pieces, because a frame cannot be told how much it may give: one piece gives at most some 32 MiB."""
    package = _package("zstandard", CompressionKind.ZSTD)
    pieces: list[bytes] = []
    total = at = 0
    stream = None
    try:
        while at < len(stored):
            stream = stream or package.ZstdDecompressor().decompressobj()
            piece = stream.decompress(stored[at : at + PIECE_BYTES])
            at = min(at + PIECE_BYTES, len(stored))
            pieces.append(piece)
            total += len(piece)
            _within(total, bytes_max)
            if stream.eof:
                at -= len(stream.unused_data)
                stream = None
    except package.ZstdError as fault:
        raise ValueError(str(fault)) from fault
    if stream is not None or not pieces:
        raise EOFError("cut")
    return b"".join(pieces)


def _within(body_bytes: int, bytes_max: int) -> None:
    if body_bytes > bytes_max:
        raise ValueError(f"more than {bytes_max} bytes come out of it")


_PACKERS: dict[CompressionKind, Callable[[bytes, int], bytes]] = {
    CompressionKind.ZLIB: zlib.compress,
    CompressionKind.LZ4: _pack_lz4,
    CompressionKind.ZSTD: _pack_zstd,
}
_OPENERS: dict[CompressionKind, Callable[[bytes, int], bytes]] = {
    CompressionKind.ZLIB: _open_zlib,
    CompressionKind.LZ4: _open_lz4,
    CompressionKind.ZSTD: _open_zstd,
}
