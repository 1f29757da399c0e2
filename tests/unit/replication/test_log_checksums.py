"""Checksums of the log against those of its bytes, over segments, cuts and growth; common points of changed logs."""

import random
import zlib
from itertools import pairwise
from pathlib import Path

import pytest

from firearrow._native.base.hash import CRC32C_WAYS, crc32c
from firearrow._native.replication import log_checksums
from firearrow._native.replication.log_checksums import MIB_BYTES, LogChecksums
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.replication.log import common_point
from firearrow.broker.replication.log.common_point import LogsDiffer, answer, checked, find_common_point
from tests.support.stores import open_store, put

SEGMENT = 640 << 10
BODY = 100 << 10


def filled(folder: Path, mib: float, segment: int = SEGMENT) -> MessageStore:
    draw = random.Random(7)
    store = open_store(folder, segment_bytes=segment, max_message_bytes=4 << 20)
    while store.written < mib * MIB_BYTES:
        put(store, draw.randbytes(draw.randrange(BODY)))
        store.write()
    return store


def log_of(store: MessageStore) -> bytes:
    files = sorted((Path(store.root) / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[: store.written]


@pytest.mark.parametrize("way", range(CRC32C_WAYS))
def test_crc32c(way: int) -> None:
    assert crc32c(b"123456789", 0, way) == 0xE3069283
    assert crc32c(bytes(32), 0, way) == 0x8A9136AA
    data = random.Random(3).randbytes(1000)
    for length in (*range(40), 1000):
        for cut in (0, 1, 7, 8, 500):
            assert crc32c(data[cut:length], crc32c(data[:cut][:length]), way) == crc32c(data[:length], 0, 0)
    with pytest.raises(ValueError, match="this processor has"):
        crc32c(b"", 0, CRC32C_WAYS)


def test_ranges(tmp_path: Path) -> None:
    with filled(tmp_path, 5.3) as store:
        data, checksums, draw = log_of(store), LogChecksums(store), random.Random(1)
        borders = [n * MIB_BYTES for n in range(6)] + [len(data), SEGMENT, SEGMENT - 1, 1]
        for _ in range(150):
            start, end = sorted(
                draw.choice((draw.choice(borders), draw.randrange(len(data)))) for _ in range(2)
            )
            assert checksums.between(start, end) == crc32c(data[start:end]), (start, end)
        assert checksums.kept_count == 5
        for start in (0, 1, 4, 5):
            ends = [*range((start + 1) * MIB_BYTES, len(data), MIB_BYTES), len(data)]
            first = start * MIB_BYTES
            assert checksums.chained(first, len(data)) == [crc32c(data[first:end]) for end in ends]
        assert checksums.chained(2 * MIB_BYTES, 4 * MIB_BYTES) == [
            crc32c(data[2 * MIB_BYTES : end * MIB_BYTES]) for end in (3, 4)
        ]
        assert checksums.chained(0, 0) == []


def test_what_the_log_lacks_is_refused(tmp_path: Path) -> None:
    with filled(tmp_path, 2.1) as store:
        checksums = LogChecksums(store)
        for start, end in ((0, store.written + 1), (-1, 5), (5, 4), (1 << 62, 1 << 62)):
            with pytest.raises(LookupError, match="the log has"):
                checksums.between(start, end)
        with pytest.raises(ValueError, match="whole MiB"):
            checksums.chained(1, 2)
        store.sync()
        store.flush_queues()
        oldest = store.cleaner.detach_segment(modified_before_ms=1 << 60)
        assert oldest is not None
        store.cleaner.discard_segment(oldest, reuse=False)
        with pytest.raises(LookupError, match=f"the log has {SEGMENT} to"):
            checksums.between(0, store.written)
        assert checksums.between(SEGMENT, store.written)


def test_whole_mibs_are_read_once_until_they_are_dropped(tmp_path: Path) -> None:
    with filled(tmp_path, 4.2, segment=8 << 20) as store:
        data, checksums = log_of(store), LogChecksums(store)
        before = checksums.chained(0, store.written)
        path = next((tmp_path / "commitlog").iterdir())
        with path.open("r+b") as file:  # without the store
            for at in (100, 3 * MIB_BYTES + 5):
                file.seek(at)
                file.write(bytes([data[at] ^ 1]))
        assert checksums.chained(0, store.written) == before
        checksums.drop_from(4 * MIB_BYTES)
        assert (checksums.kept_count, checksums.chained(0, store.written)) == (4, before)
        checksums.drop_from(3 * MIB_BYTES + 1)
        after = checksums.chained(0, store.written)
        assert after[:3] == before[:3]
        assert after[3:] != before[3:]
        checksums.drop_from(0)
        assert checksums.kept_count == 0
        assert checksums.chained(0, store.written) == [crc32c(log_of(store)[:end]) for end in ends_of(store)]


def ends_of(store: MessageStore) -> list[int]:
    return [*range(MIB_BYTES, store.written, MIB_BYTES), store.written]


def test_the_log_grows(tmp_path: Path) -> None:
    with filled(tmp_path, 1.5) as store:
        checksums = LogChecksums(store)
        for _ in range(12):
            put(store, b"x" * BODY)
            store.write()
            assert checksums.between(0, store.written) == crc32c(log_of(store))
        assert checksums.kept_count == store.written // MIB_BYTES


class SparseLog:
    """A log of any length without its bytes: each MiB has a checksum of its own, and some bytes are changed."""

    def __init__(self, changed: list[int]) -> None:
        self.changed = sorted(changed)

    def between(self, start: int, end: int) -> int:
        inside = [at for at in self.changed if start <= at < end]
        return zlib.crc32(repr((start, end, inside)).encode())


def searched(
    ours: common_point.Checksums, theirs: common_point.Checksums, first: int, end: int
) -> tuple[int, int]:
    """The point, and the number of questions."""
    search, questions = find_common_point(ours, first, end), 0
    try:
        asked = next(search)
        while True:
            questions += 1
            assert checked(asked) == asked
            asked = search.send(answer(theirs, asked))
    except StopIteration as done:
        return done.value, questions


@pytest.mark.parametrize(
    "end", [0, 1, 1000, MIB_BYTES, MIB_BYTES + 1, 7 * MIB_BYTES + 77, (3 << 30) + 5, 1 << 40]
)
def test_the_common_point_of_long_logs(end: int) -> None:
    draw = random.Random(end)
    for first in (0, end // 3):
        points = [first, end - 1, *(draw.randint(first, end) for _ in range(20))]
        points += [end - draw.randint(1, min(40 * MIB_BYTES, end - first)) for _ in range(20) if end > first]
        for point in points:
            if not first <= point < end:
                continue
            # all that follows differs, as where another epoch has written
            theirs = SparseLog([point])
            theirs.between = lambda start, end, point=point: (  # type: ignore[method-assign]
                SparseLog([]).between(start, end) if end <= point else -1
            )
            found, questions = searched(SparseLog([]), theirs, first, end)
            assert found == point
            assert questions <= 11
        assert searched(SparseLog([]), SparseLog([]), first, end) == (end, 2)


def test_the_common_point_of_two_stores(tmp_path: Path) -> None:
    with filled(tmp_path / "a", 9.4) as ours:
        end = ours.written
        mine = LogChecksums(ours)
        for point in (0, 1, MIB_BYTES, 3 * MIB_BYTES + 9, end - 1, end):
            with filled(tmp_path / f"b{point}", 9.4) as theirs:
                overwrite(theirs, point, end)
                assert searched(mine, LogChecksums(theirs), 0, end)[0] == point


def overwrite(store: MessageStore, start: int, end: int) -> None:
    """Change all bytes from `start` on, where they are."""
    for path in sorted((Path(store.root) / "commitlog").iterdir()):
        base = int(path.name)
        with path.open("r+b") as file:
            low, high = max(start - base, 0), min(end - base, SEGMENT)
            if low < high:
                file.seek(low)
                data = bytes(byte ^ 0x5A for byte in file.read(high - low))
                file.seek(low)
                file.write(data)


def test_a_changed_byte_before_equal_ones_is_reported() -> None:
    end = 10 * MIB_BYTES
    with pytest.raises(LogsDiffer, match="others between"):
        searched(SparseLog([]), SparseLog([3 * MIB_BYTES]), 0, end)


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, 1)] * (common_point.RANGES_MAX + 1),
        [(0, common_point.QUESTION_BYTES_MAX + 1)],
        [(0, MIB_BYTES)] * 17,
        [(2, 1)],
        [(-1, 1)],
    ],
)
def test_large_questions_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match=r"range|MiB"):
        answer(SparseLog([]), ranges)
    assert answer(SparseLog([]), [(0, common_point.QUESTION_BYTES_MAX)])
    assert len(answer(SparseLog([]), pairwise(range(common_point.RANGES_MAX + 1)))) == common_point.RANGES_MAX


def test_an_answer_of_another_length_is_refused() -> None:
    search = find_common_point(SparseLog([]), 0, 100)
    next(search)
    with pytest.raises(LogsDiffer, match="2 checksums came"):
        search.send([1, 2])


def test_kept_checksums_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_checksums, "KEPT_MAX", 2)
    with filled(tmp_path, 4.2) as store:
        checksums = LogChecksums(store)
        for _ in range(2):
            assert checksums.between(0, store.written) == crc32c(log_of(store))
            assert checksums.kept_count == 2
