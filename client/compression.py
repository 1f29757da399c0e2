"""Bodies packed and opened: zlib, LZ4 frames, Zstandard frames, as the system flag of a message says.

Never opens more than BODY_BYTES_MAX. `lz4` and `zstandard` are optional packages, imported at the first use. Any thread.
"""

import zlib
from collections.abc import Callable
from typing import Any

from firearrow.client.errors import ConfigError, RocketMQError
from firearrow.client.options import CompressionKind

BODY_BYTES_MAX = 256 << 20
CHUNK_BYTES = 1 << 20
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
