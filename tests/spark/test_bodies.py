"""Bodies are opened alike by the packages and by pyarrow, and what is damaged or too large is refused alike."""

import sys
from pathlib import Path
from subprocess import run

import lz4.frame
import pytest
import zstandard

from firearrow.client.base.compression import BodyUnreadable, open_body, pack
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.arrow import columns

KINDS = {CompressionKind.LZ4: "lz4", CompressionKind.ZSTD: "zstd"}
BODIES = [b"", b"x", b"abc" * 7, bytes(65_537), bytes(range(256)) * 5000]
PROGRAM = """
import sys
sys.modules["lz4"] = sys.modules["lz4.frame"] = sys.modules["zstandard"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("lz4", "zstandard") else find(name)
from firearrow.spark_tools.arrow.columns import open_body
flag, stored = sys.stdin.buffer.readline(), sys.stdin.buffer.read()
sys.stdout.buffer.write(open_body(int(flag), stored))
"""


@pytest.mark.parametrize("kind", KINDS)
def test_pyarrow_opens_what_was_packed(kind: CompressionKind) -> None:
    for body in BODIES:
        flag, stored = pack(kind, 3, body)
        assert columns.decompressed(KINDS[kind], stored, len(body)) == body == open_body(flag, stored)


@pytest.mark.parametrize("kind", KINDS)
def test_several_frames_are_one_body(kind: CompressionKind) -> None:
    stored = b"".join(pack(kind, 3, body)[1] for body in (b"one ", b"two"))
    assert columns.decompressed(KINDS[kind], stored, 7) == b"one two"


def test_frames_of_other_writers_are_opened() -> None:
    body = bytes(range(256)) * 1000
    writer = zstandard.ZstdCompressor().compressobj()  # no size in the header
    assert columns.decompressed("zstd", writer.compress(body) + writer.flush(), len(body)) == body
    linked = lz4.frame.compress(body, block_linked=True, store_size=False)
    assert columns.decompressed("lz4", linked, len(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_and_large_bodies_are_refused(kind: CompressionKind) -> None:
    flag, stored = pack(kind, 3, bytes(range(256)) * 100)
    for wrong in (b"", stored[:-1], stored[: len(stored) // 2], b"not a frame" * 9, stored + b"xx"):
        with pytest.raises(BodyUnreadable, match="decompression failed"):
            columns.decompressed(KINDS[kind], wrong, 1 << 20)
        with pytest.raises(BodyUnreadable, match="decompression failed"):
            open_body(flag, wrong)
    with pytest.raises(BodyUnreadable, match="more than 25599 bytes"):
        columns.decompressed(KINDS[kind], stored, 25_599)


@pytest.mark.parametrize("kind", CompressionKind)
def test_no_package_is_needed(kind: CompressionKind, tmp_path: Path) -> None:
    flag, stored = pack(kind, 3, b"body" * 1000)
    done = run(
        [sys.executable, "-c", PROGRAM],
        input=b"%d\n" % flag + stored,
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == (b"body" * 1000, b"")
