"""The simulator itself: it records every change of the files, leaves no state out, and finds what is wrong."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import cuts, folder, recording
from tests.crash.disk import FOLDER, SECTOR_BYTES, Disk
from tests.crash.recording import Kind, Op
from tests.crash.sweep import Sweep

SEED = 1
STATES = 100
TAMPERED_STATES = 1000
"""Of those of a tampered log about one in a hundred shows it; the sweep ends with the first."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recording.build(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="module")
def ops(library: Path) -> list[Op]:
    with folder.scratch() as scratch:
        return recording.record(library, scratch / "recorded", "group_commit", SEED)


def disk_after(*ops: Op) -> Disk:
    disk = Disk()
    for op in ops:
        disk.apply(op)
    return disk


def op(kind: Kind, file: int = 0, at: int = 0, length: int = 0, data: bytes = b"") -> Op:
    return Op(kind, file, at, length, data)


def found(library: Path, ops: list[Op], states: int) -> list[str]:
    """Faults of the first state of `ops` that has any."""
    with folder.scratch() as scratch:
        tally = Sweep("group_commit", SEED, ops, scratch, states / len(ops), failures_max=1).run()
    return [fault for failure in tally.failures for fault in failure.faults]


@pytest.mark.parametrize("name", ["group_commit", "retention", "config_files"])
def test_the_log_contains_every_byte_that_was_written(name: str, library: Path) -> None:
    """Replayed to its end it equals the folder, byte for byte."""
    with folder.scratch() as scratch:
        root = scratch / "recorded"
        disk = disk_after(*recording.record(library, root, name, SEED))
        assert set(disk.tree) == {str(path.relative_to(root)) for path in root.rglob("*")}
        for path, number in disk.tree.items():
            if number == FOLDER:
                assert (root / path).is_dir()
            else:
                content = (root / path).read_bytes()
                assert content == disk.files[number].newest(0, len(content)), path
                assert len(content) == disk.files[number].sizes[-1][1], path


def test_what_was_synced_is_in_every_state() -> None:
    disk = disk_after(
        op(Kind.CREATE, data=b"a"),
        op(Kind.SYNC_FOLDER),
        op(Kind.WRITE, at=0, data=b"x" * 600),
        op(Kind.SYNC),
        op(Kind.WRITE, at=512, data=b"y" * 600),
    )
    draw = random.Random(SEED)
    states = [*cuts.extremes(disk), *cuts.singles(disk), *(cuts.drawn(disk, draw) for _ in range(200))]
    seen = set()
    for cut in states:
        content = cuts.image_of(disk, cut)["a"]
        assert content is not None
        size, sectors = content
        assert sectors[0] == b"x" * SECTOR_BYTES
        assert size in (600, 1112)
        seen.add((size, sectors[1][:1], sectors.get(2, b"\0")[:1]))
    assert seen == {(600, b"x", b"\0"), (600, b"y", b"\0")} | set(
        itertools.product((1112,), (b"x", b"y"), (b"\0", b"y"))
    )


def test_few_things_are_tested_in_every_combination() -> None:
    disk = disk_after(
        op(Kind.CREATE, data=b"a"),
        op(Kind.SYNC_FOLDER),
        *(op(Kind.WRITE, at=n * SECTOR_BYTES, data=b"%d" % n * SECTOR_BYTES) for n in range(4)),
    )
    states = cuts.every(disk)
    assert states is None  # five sizes, four sectors: 80
    disk.files[0].sizes = disk.files[0].sizes[-1:]
    states = cuts.every(disk)
    assert states is not None
    assert len({str(cuts.image_of(disk, cut)) for cut in states}) == 16


def test_a_name_is_not_there_before_its_folder_is_synced() -> None:
    made = [op(Kind.CREATE, data=b"a.tmp"), op(Kind.WRITE, data=b"x"), op(Kind.SYNC)]
    renamed = op(Kind.RENAME, data=b"a.tmp\0a")
    states = cuts.every(disk_after(*made, renamed))
    assert states is not None
    disk = disk_after(*made, renamed)
    assert {tuple(cuts.image_of(disk, cut)) for cut in states} == {(), ("a.tmp",), ("a",)}
    disk.apply(op(Kind.SYNC_FOLDER))
    assert list(cuts.image_of(disk, cuts.Cut("", False))) == ["a"]


def test_a_store_that_does_not_sync_its_log_is_found(library: Path, ops: list[Op]) -> None:
    logs = {op.file for op in ops if op.kind == Kind.CREATE and op.names[0].startswith("commitlog/")}
    broken = [op for op in ops if not (op.kind == Kind.SYNC and op.file in logs)]
    assert any("acknowledged up to" in fault for fault in found(library, broken, TAMPERED_STATES))


TAMPERED: dict[str, Callable[[Op], bool]] = {
    "queues are not synced": lambda op: op.kind == Kind.SYNC_RANGE,
    "names are not synced": lambda op: op.kind == Kind.SYNC_FOLDER,
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_wrong_order_is_found(what: str, library: Path, ops: list[Op]) -> None:
    assert found(library, [op for op in ops if not TAMPERED[what](op)], TAMPERED_STATES)


def test_an_unchanged_log_has_no_fault(library: Path, ops: list[Op]) -> None:
    assert not found(library, ops, STATES)


def test_old_records_in_a_recycled_file_are_found(library: Path) -> None:
    """The zeros of one of them were not synced when it got its new name."""
    with folder.scratch() as scratch:
        ops = recording.record(library, scratch / "recorded", "retention", SEED)
    focus = recording.reusing(ops)
    zeroed = {n for n in focus if ops[n].kind == Kind.ZERO}
    synced = {n for n in focus if ops[n].kind == Kind.SYNC and n - 1 in zeroed}
    assert synced
    with folder.scratch() as scratch:
        broken = [op for n, op in enumerate(ops) if n not in synced]
        focus = recording.reusing(broken)
        tally = Sweep("retention", SEED, broken, scratch, 0.001, failures_max=1, focus=focus).run()
    assert "never written there" in str(tally.failures)


def test_a_state_can_be_reproduced(library: Path, ops: list[Op]) -> None:
    logs = {op.file for op in ops if op.kind == Kind.CREATE and op.names[0].startswith("commitlog/")}
    broken = [op for op in ops if not (op.kind == Kind.SYNC and op.file in logs)]
    assert found(library, broken, STATES) == found(library, broken, STATES)
