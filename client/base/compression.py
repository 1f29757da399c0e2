"""Compression of bodies with zlib, LZ4 or Zstandard; the system flag of a message names the kind.

A body of more than BODY_BYTES_MAX is refused. `lz4` and `zstandard` are optional packages, imported when
used. Any thread.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from firearrow.client.base.errors import ConfigError, RocketMQError
from firearrow.client.base.options import CompressionKind

BODY_BYTES_MAX = 256 << 20
CHUNK_BYTES = 1024
COMPRESSED = 0x1
KIND_BITS = 0x7 << 8
FLAGS = {
    CompressionKind.LZ4: COMPRESSED | 1 << 8,
    CompressionKind.ZSTD: COMPRESSED | 2 << 8,
    CompressionKind.ZLIB: COMPRESSED | 3 << 8,
}
KINDS = {0: CompressionKind.ZLIB} | {flags & KIND_BITS: kind for kind, flags in FLAGS.items()}


class BodyUnreadable(RocketMQError):
    """A compressed body cannot be decompressed: damaged, too large, or of a kind whose package is missing."""


def pack(kind: CompressionKind, level: int, body: bytes) -> tuple[int, bytes]:
    """The bits for the system flag and the compressed body. ConfigError: its package is missing."""
    return FLAGS[kind], _PACKERS[kind](body, level)


def open_body(sys_flag: int, stored: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body as it was sent; `stored` itself unless the flag marks it as compressed. BodyUnreadable."""
    if not sys_flag & COMPRESSED:
        return stored
    kind = KINDS.get(sys_flag & KIND_BITS)
    if kind is None:
        raise BodyUnreadable(f"body: compressed in an unknown way, system flag {sys_flag:#x}")
    try:
        return _OPENERS[kind](stored, bytes_max)
    except (zlib.error, RuntimeError, EOFError, ValueError) as fault:
        raise BodyUnreadable(f"body: {kind} decompression failed: {fault}") from fault
    except ConfigError as missing:
        raise BodyUnreadable(str(missing)) from missing


def _package(name: str, kind: CompressionKind) -> Any:  # noqa: ANN401 - optional, untyped
    try:
        return import_module(name)
    except ImportError as missing:
        package = name.partition(".")[0]
        raise ConfigError(
            f"{kind} compression needs the package {package}: pip install firearrow[compression]"
        ) from missing


def _pack_lz4(body: bytes, level: int) -> bytes:
    """Blocks of 64 KiB, each independent: Java's LZ4FrameInputStream refuses linked ones, and its client then
    skips the message and all after it in the same answer."""
    frame = _package("lz4.frame", CompressionKind.LZ4)
    packed: bytes = frame.compress(body, compression_level=0, block_linked=False)
    return packed


def _pack_zstd(body: bytes, level: int) -> bytes:
    packed: bytes = _package("zstandard", CompressionKind.ZSTD).ZstdCompressor(level=level).compress(body)
    return packed


def _open_zlib(stored: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    body = stream.decompress(stored, bytes_max + 1)
    _check_size(len(body), bytes_max)
    if not stream.eof:
        raise EOFError("the data is truncated")
    return body


def _open_lz4(stored: bytes, bytes_max: int) -> bytes:
    frame = _package("lz4.frame", CompressionKind.LZ4)
    body = b""
    while True:
        stream = frame.LZ4FrameDecompressor()
        opened: bytes = stream.decompress(stored, bytes_max + 1 - len(body))
        body += opened
        _check_size(len(body), bytes_max)
        if not stream.eof:
            raise EOFError("the data is truncated")
        stored = stream.unused_data
        if not stored:
            return body


def _open_zstd(stored: bytes, bytes_max: int) -> bytes:
    """In small chunks, because the package cannot limit the output: a chunk yields at most about 32 MiB."""
    package = _package("zstandard", CompressionKind.ZSTD)
    chunks: list[bytes] = []
    total = at = 0
    stream = None
    try:
        while at < len(stored):
            stream = stream or package.ZstdDecompressor().decompressobj()
            chunk = stream.decompress(stored[at : at + CHUNK_BYTES])
            at = min(at + CHUNK_BYTES, len(stored))
            chunks.append(chunk)
            total += len(chunk)
            _check_size(total, bytes_max)
            if stream.eof:
                at -= len(stream.unused_data)
                stream = None
    except package.ZstdError as fault:
        raise ValueError(str(fault)) from fault
    if stream is not None or not chunks:
        raise EOFError("the data is truncated")
    return b"".join(chunks)


def _check_size(body_bytes: int, bytes_max: int) -> None:
    if body_bytes > bytes_max:
        raise ValueError(f"decompresses to more than {bytes_max} bytes")


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
