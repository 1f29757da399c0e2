"""CompactionLog and compaction: files as Apache's, reads with gaps, replacement, kills at every step, repairs."""

import os
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from firearrow._native.base.hash import java_hash
from firearrow._native.store import compaction
from firearrow._native.store.compaction import compact
from firearrow._native.store.get_message import GetStatus
from firearrow._native.store.log import compaction_log
from firearrow._native.store.log.compaction_log import (
    LOG_FOLDER,
    QUEUE_FOLDER,
    Compacted,
    CompactionLog,
    commit_replacement,
    end_replacement,
    file_sizes,
    move_replacements,
    split,
)
from firearrow._native.store.log.record import Record, decode
from tests.support.stores import HOST_V6, open_store, properties_of, put

SIZES = file_sizes(4096, 460)
LIMITS = 262144, 32, 800
MAP_BYTES = 1 << 20
Sent = tuple[str, bytes]
"""Key and body."""


@pytest.fixture
def records(tmp_path: Path) -> Callable[[Iterable[Sent]], list[bytes]]:
    """Records as the commit log has them; offsets go on from call to call. Every third has IPv6 hosts."""
    store = open_store(tmp_path / "source", segment_bytes=1 << 20, queue_file_bytes=20000)
    counted = [0]

    def made(sent: Iterable[Sent]) -> list[bytes]:
        found = []
        for key, body in sent:
            n = counted[0]
            host = {"store_host": HOST_V6, "born_host": HOST_V6} if n % 3 == 0 else {}
            put(
                store,
                body,
                properties=properties_of(KEYS=key, TAGS=f"t{n % 2}"),
                now_ms=1000 + 10 * n,
                **host,
            )
            counted[0] += 1
            store.write()
            found.append(store.reader.get("T", 0, n, 1).body)
        return found

    return made


def opened(root: Path, *, verify: bool = False, lines: list[str] | None = None) -> CompactionLog:
    report = pytest.fail if lines is None else lines.append
    return CompactionLog.open(str(root), "T", 0, SIZES, verify=verify, report=report)


def fill(log: CompactionLog, records: Iterable[bytes]) -> None:
    for record in records:
        tag = decode(record).properties["TAGS"]
        log.append([(memoryview(record), java_hash(tag))])


def read_all(log: CompactionLog, offset: int = 0, count: int = 32) -> list[Record]:
    found = []
    while offset < log.end:
        got = compaction.get(log, offset, 0, count, 1 << 20, LIMITS, None, None)
        assert got.status is GetStatus.FOUND
        found += [decode(record) for record in split(got.body)]
        assert got.count <= count
        assert got.next_offset == found[-1].queue_offset + 1
        offset = got.next_offset
    return found


def offsets(log: CompactionLog) -> list[int]:
    return [record.queue_offset for record in read_all(log)]


def keys(count: int, of: int = 5, first: int = 0) -> list[Sent]:
    return [(f"k{n % of}", b"%d" % n * 20) for n in range(first, first + count)]


def newest(sent: list[Sent], until: int) -> list[int]:
    """What compaction leaves: of each key the newest before `until`, and all from there on."""
    last = {key: n for n, (key, _) in enumerate(sent[:until])}
    kept = {n for key, n in last.items() if sent[n][1]}
    return [n for n in range(len(sent)) if n >= until or n in kept]


def compacted(log: CompactionLog, position: int = -1, map_bytes: int = MAP_BYTES) -> Compacted:
    made = compact(log, log.closed, position, map_bytes, lambda: None)
    assert made is not None
    return made


def replace(log: CompactionLog, made: Compacted) -> None:
    commit_replacement(log.log_folder, log.queue_folder, log.closed)
    log.replace(made)
    end_replacement(log.log_folder, log.queue_folder)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.joinpath("compaction").rglob("*"))
        if path.is_file()
    }


def test_files_have_apaches_sizes() -> None:
    assert file_sizes(104857600, 10485760) == (104857460, 10485746)
    assert file_sizes(4096, 460) == (4140, 460)
    assert file_sizes(1, 460) == (2300, 460)
    assert file_sizes(460 * 6 + 10, 500) == (460 * 6, 460)


def test_what_is_appended_is_read(tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]) -> None:
    sent = keys(100)
    made = records(sent)
    log = opened(tmp_path)
    assert (log.first, log.end) == (-1, 0)
    fill(log, made[:50])
    codes = [java_hash(f"t{n % 2}") for n in range(100)]
    log.append((memoryview(record), codes[n]) for n, record in enumerate(made) if n >= 50)
    assert len(log.files) > 8
    for again in (log, opened(tmp_path), opened(tmp_path, verify=True)):
        found = read_all(again)
        assert [record.body for record in found] == [body for _, body in sent]
        assert [record.queue_offset for record in found] == [*range(100)]
        assert again.files == log.files
        for at, want in ((0, 0), (99, 99), (41, 41)):
            assert read_all(again, at, 3)[0].queue_offset == want
    # but for the offset in the log, each record is what it was
    for before, after in zip(made, read_all(log), strict=True):
        assert decode(before).properties == after.properties
        assert decode(before).store_host == after.store_host
    for name, data in files(tmp_path).items():
        assert len(data) == (SIZES.log if "Log" in name else SIZES.queue)
    first = (tmp_path / QUEUE_FOLDER / "T/0" / ("0" * 20)).read_bytes()
    assert struct.unpack_from(">qiqqqhii", first) == (
        0, len(made[0]), java_hash("t0"), 1000, 0, 1, -1, 0,
    )  # fmt: skip
    count = log.files[0].entries
    assert struct.unpack_from(">qiqqqhii", first, 46 * count) == (-1, 0, 0, 0, 0, 0, -1, 0)
    (left, magic) = struct.unpack_from(
        ">ii", (tmp_path / LOG_FOLDER / "T/0" / ("0" * 20)).read_bytes(), log.files[0].end
    )
    assert (left, magic) == (SIZES.log - log.files[0].end, -875286124)


def test_reads_stop_at_limits(tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]) -> None:
    log = opened(tmp_path)
    fill(log, records(keys(60)))

    def got(count: int = 32, max_bytes: int = 1 << 20, **more: object) -> tuple[GetStatus, int, int]:
        given = {"tags": None, "accept": None, **more}
        found = compaction.get(log, 5, 60, count, max_bytes, LIMITS, **given)  # type: ignore[arg-type]
        return found.status, found.count, found.next_offset

    assert got() == (GetStatus.FOUND, 32, 37)
    assert got(3) == (GetStatus.FOUND, 3, 8)
    assert got(max_bytes=1) == (GetStatus.FOUND, 1, 6)
    assert got(3, tags=frozenset({java_hash("t1")})) == (GetStatus.FOUND, 3, 10)
    assert got(tags=frozenset({1})) == (GetStatus.NO_MATCHED_MESSAGE, 0, 60)
    assert got(2, accept=lambda record: decode(record).queue_offset > 20) == (GetStatus.FOUND, 2, 23)
    for at_ms, lower, upper in (
        (0, 0, 0),
        (1000, 0, 0),
        (1011, 2, 1),
        (1200, 20, 20),
        (1590, 59, -1),
        (1600, -1, -1),
    ):
        assert log.offset_by_time(at_ms, False) == lower
        assert log.offset_by_time(at_ms, True) == upper
    assert log.record(7) == read_bytes(log, 7)
    assert log.record(60) is None


def read_bytes(log: CompactionLog, offset: int) -> bytes:
    return compaction.get(log, offset, 0, 1, 1 << 20, LIMITS, None, None).body


def test_the_newest_message_of_a_key_is_left(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]
) -> None:
    sent = keys(100)
    sent[60] = ("gone", b"x")
    sent[61] = ("gone", b"")
    sent[62] = ("", b"no key")
    log = opened(tmp_path)
    fill(log, records(sent))
    until = log.closed[-1].last + 1
    made = compacted(log)
    assert made.last == until - 1
    replace(log, made)
    sent[62] = ("gone", b"")  # a message without a key is not left either
    assert offsets(log) == newest(sent, until)
    assert log.first == newest(sent, until)[0]
    assert opened(tmp_path, verify=True).files == log.files
    assert not {name for name in files(tmp_path) if "cleaned" in name or "swap" in name}
    # what comes later is compacted with what is left
    more = keys(60, 3, first=100)
    fill(log, records(more))
    until = log.closed[-1].last + 1
    replace(log, compacted(log, made.last))
    assert offsets(log) == newest(sent + more, until)
    assert compact(log, log.closed, until - 1, MAP_BYTES, lambda: None) is None


def test_a_full_map_leaves_the_rest_to_the_next_compaction(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEYS_MIN", 1)
    sent = keys(100, 30)
    log = opened(tmp_path)
    fill(log, records(sent))
    until, position, rounds = log.closed[-1].last + 1, -1, 0
    while position < until - 1:
        made = compacted(log, position, 10 * compaction.KEY_BYTES)
        assert position < made.last < until
        position, rounds = made.last, rounds + 1
        replace(log, made)
    assert rounds >= 5
    assert offsets(log) == newest(sent, until)


def test_all_may_be_deleted(tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]) -> None:
    log = opened(tmp_path)
    fill(log, records([("k", b"")] * 50))
    until = log.closed[-1].last + 1
    replace(log, compacted(log))
    assert offsets(log) == [*range(until, 50)]
    log = opened(tmp_path)
    assert offsets(log) == [*range(until, 50)]
    fill(log, records(keys(5, first=50)))
    assert log.end == 55


def failing_after(calls: int) -> Callable[[str, str], None]:
    left = [calls]

    def rename(source: str, target: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("killed")
        os.rename(source, target)

    return rename


STEPS = ("none", "written", "committed", "half", "moved", "ended")


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_leaves_the_old_or_the_new_files(
    tmp_path: Path,
    records: Callable[[Iterable[Sent]], list[bytes]],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = keys(100)
    log = opened(tmp_path)
    fill(log, records(sent))
    until = log.closed[-1].last + 1
    places = log.log_folder, log.queue_folder
    for name in STEPS[1 : STEPS.index(step) + 1]:
        if name == "written":
            compacted(log)
        elif name == "committed":
            commit_replacement(*places, log.closed)
        elif name == "half":
            with monkeypatch.context() as patched:
                patched.setattr(os, "replace", failing_after(1))
                with pytest.raises(OSError, match="killed"):
                    move_replacements(*places)
        elif name == "moved":
            move_replacements(*places)
        else:
            end_replacement(*places)
    again = opened(tmp_path, verify=True)
    is_new = STEPS.index(step) >= STEPS.index("committed")
    assert offsets(again) == (newest(sent, until) if is_new else [*range(100)])
    assert not {name for name in files(tmp_path) if "cleaned" in name or "swap" in name}
    replace(again, compacted(again))
    assert offsets(again) == newest(sent, until)
    fill(again, records(keys(10, first=100)))
    assert offsets(opened(tmp_path)) == newest(sent + keys(10, first=100), until)


def test_what_a_power_cut_tears_is_repaired(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]
) -> None:
    log = opened(tmp_path)
    made = records(keys(40))
    fill(log, made)
    names = sorted(os.listdir(log.log_folder))
    whole = files(tmp_path)

    def torn(change: Callable[[], object], *, verify: bool = True) -> list[int]:
        for name, data in whole.items():
            (tmp_path / name).write_bytes(data)
        change()
        lines: list[str] = []
        again = opened(tmp_path, verify=verify, lines=lines)
        assert lines
        found = offsets(again)
        fill(again, made[again.end :])
        assert offsets(opened(tmp_path, verify=True)) == [*range(40)]
        return found

    queue, last = Path(log.queue_folder), Path(log.log_folder) / names[-1]
    # entries are made again, of any file
    for name in names:
        assert torn(lambda name=name: (queue / name).unlink()) == [*range(40)]
        assert torn(lambda name=name: (queue / name).write_bytes(bytes(460)), verify=True) == [*range(40)]
        assert torn(
            lambda name=name: (queue / name).write_bytes(
                whole[f"{QUEUE_FOLDER}/T/0/{names[0]}"][46:] + bytes(46)
            )
        )
    # a record that is torn ends the log
    at = log.files[-1].end - 30 - log.files[-1].base
    assert torn(lambda: last.write_bytes(last.read_bytes()[:at].ljust(SIZES.log, b"\0"))) == [*range(39)]
    assert torn(lambda: last.write_bytes(bytes(SIZES.log))) == [*range(log.files[-1].first)]


def test_the_end_can_be_removed(tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]) -> None:
    made = records(keys(100))
    for cut in (0, 1, 37, 60, 99, 100, 200):
        log = opened(tmp_path / str(cut))
        fill(log, made)
        log.truncate(cut)
        assert offsets(log) == [*range(min(cut, 100))]
        assert opened(tmp_path / str(cut), verify=True).files == log.files
        fill(log, made[cut:])
        assert offsets(opened(tmp_path / str(cut))) == [*range(100)]


def test_a_replacement_that_apaches_broker_left_half_done(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]
) -> None:
    sent = keys(100)
    log = opened(tmp_path)
    fill(log, records(sent))
    until, closed = log.closed[-1].last + 1, [compaction_log.file_name(file.base) for file in log.closed]
    compacted(log)
    places = Path(log.log_folder), Path(log.queue_folder)
    for place in places:
        (place / "cleaned").rename(place / "compacting")
    base = tmp_path / "as it was"
    shutil.copytree(tmp_path / "compaction", base)

    def reset() -> None:
        shutil.rmtree(tmp_path / "compaction")
        shutil.copytree(base, tmp_path / "compaction")

    def rename_old(place: Path) -> None:
        for name in closed:
            (place / name).rename(place / f"{name}.delete")

    def move_new(place: Path) -> None:
        for path in list((place / "compacting").iterdir()):
            path.rename(place / path.name)

    def delete_old(place: Path) -> None:
        for path in place.glob("*.delete"):
            path.unlink()

    log_place, queue_place = places
    for done, want in (
        ([], [*range(100)]),
        ([(rename_old, log_place)], [*range(100)]),
        ([(rename_old, log_place), (move_new, log_place)], newest(sent, until)),
        ([(rename_old, log_place), (move_new, log_place), (delete_old, log_place)], newest(sent, until)),
        (
            [(step, log_place) for step in (rename_old, move_new, delete_old)] + [(rename_old, queue_place)],
            newest(sent, until),
        ),
        (
            [(step, place) for place in places for step in (rename_old, move_new)],
            newest(sent, until),
        ),
    ):
        reset()
        for step, place in done:
            step(place)
        again = opened(tmp_path, lines=[])
        assert offsets(again) == want
        assert not {name for name in files(tmp_path) if "compacting" in name or name.endswith(".delete")}


def test_what_fits_into_no_file_is_left_out(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]
) -> None:
    log = opened(tmp_path)
    fill(log, records([("k", b"1"), ("k", bytes(5000)), ("k", b"3")]))
    assert offsets(log) == [0, 2]
    assert {len(data) for data in files(tmp_path).values()} == {*SIZES}


def test_entries_are_made_again_around_a_damaged_record(
    tmp_path: Path, records: Callable[[Iterable[Sent]], list[bytes]]
) -> None:
    log = opened(tmp_path)
    fill(log, records(keys(40)))
    _, entry = next(log.entries(3))
    path = Path(log.log_folder) / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[entry.at + 4] ^= 1
    path.write_bytes(data)
    assert offsets(log) == [n for n in range(40) if n != 3]
    assert log.damaged
    with pytest.raises(OSError, match="do not lead to their records"):
        compacted(log)
    lines: list[str] = []
    again = CompactionLog.open(str(tmp_path), "T", 0, SIZES, verify=True, whole=True, report=lines.append)
    assert len(lines) == 1
    replace(again, compacted(again))
    assert not again.damaged
    assert 3 not in offsets(again)
