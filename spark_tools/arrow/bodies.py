"""Opens compressed bodies also without the packages `lz4` and `zstandard`: pyarrow has these codecs, too.

The packages are ten times faster for small bodies, so they come first. Any thread.
"""

from importlib.util import find_spec

import pyarrow as pa

from firearrow.client.base import compression
from firearrow.client.base.compression import BODY_BYTES_MAX, COMPRESSED, KIND_BITS, KINDS, BodyUnreadable
from firearrow.client.base.options import CompressionKind

CODECS = {
    kind: codec
    for kind, codec, package in (
        (CompressionKind.LZ4, "lz4", "lz4"),
        (CompressionKind.ZSTD, "zstd", "zstandard"),
    )
    if find_spec(package) is None
}
"""The kinds that are opened with pyarrow."""


def open_body(sys_flag: int, stored: bytes, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """The body as it was sent, see client/base/compression.py. BodyUnreadable."""
    kind = KINDS.get(sys_flag & KIND_BITS) if sys_flag & COMPRESSED else None
    codec = None if kind is None else CODECS.get(kind)
    return (
        compression.open_body(sys_flag, stored, bytes_max)
        if codec is None
        else decompressed(codec, stored, bytes_max)
    )


def decompressed(codec: str, stored: bytes, bytes_max: int) -> bytes:
    """BodyUnreadable: damaged, or more than `bytes_max`."""
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), codec) as stream:
            body: bytes = stream.read(bytes_max + 1)
    except OSError as error:
        raise BodyUnreadable(f"body: {codec} decompression failed: {error}") from error
    if len(body) > bytes_max or not stored:
        what = f"decompresses to more than {bytes_max} bytes" if body else "the data is truncated"
        raise BodyUnreadable(f"body: {codec} decompression failed: {what}")
    return body
