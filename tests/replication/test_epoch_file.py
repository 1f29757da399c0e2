"""The epoch file: Apache's bytes both ways, damage, power cuts at each moment, and the common point of two lists."""

import json
import random
import subprocess
from pathlib import Path

import pytest

from firearrow.broker.base.errors import StartError
from firearrow.broker.replication.log import epoch_file
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile, common_point, decoded, encoded
from tests.crash import cuts, folder, recording
from tests.crash.disk import Disk
from tests.crash.recording import Kind
from tests.interop.driver import java
from tests.interop.toolchain import java_class_path, need

JAVA_S = 120
CUTS = 40


def numbers(file: EpochFile) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in file.entries]


def test_entries_are_kept(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    assert (file.entries, file.last) == ((), 0)
    for number, start in ((1, 0), (2, 500), (7, 900)):
        file.append(number, start)
        assert EpochFile(tmp_path).entries == file.entries
    assert file.last == 7
    file.truncate(900)
    assert numbers(EpochFile(tmp_path)) == [(1, 0), (2, 500)]
    assert not EpochFile(tmp_path).is_older
    file.truncate(501)
    assert numbers(EpochFile(tmp_path)) == [(1, 0), (2, 500)]
    file.replace([Epoch(1, 0), Epoch(3, 200)])
    assert numbers(EpochFile(tmp_path)) == [(1, 0), (3, 200)]
    file.truncate(0)
    assert EpochFile(tmp_path).entries == ()
    assert not list(tmp_path.iterdir())


def test_an_epoch_without_bytes_is_replaced(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    for number, start in ((1, 0), (2, 500), (3, 500)):
        file.append(number, start)
    assert numbers(EpochFile(tmp_path)) == [(1, 0), (3, 500)]


@pytest.mark.parametrize(
    "entry", [(2, 600), (3, 400), (1, 700), (-1, 700), (1 << 31, 700), (4, -1), (4, 1 << 62)]
)
def test_what_does_not_follow_is_refused(entry: tuple[int, int], tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.append(1, 0)
    file.append(2, 500)
    with pytest.raises(ValueError, match="epoch"):
        file.append(*entry)
    assert numbers(file) == numbers(EpochFile(tmp_path)) == [(1, 0), (2, 500)]


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    most = epoch_file.EPOCHS_MAX
    file.replace(Epoch(n, n) for n in range(most))
    file.append(most, most)
    assert EpochFile(tmp_path).entries == file.entries
    assert len(file.entries) == most
    assert file.entries[0] == (1, 1)


def damaged_forms(data: bytes) -> dict[str, bytes]:
    return {
        "cut": data[:-1],
        "a digit": data.replace(b"500", b"501"),
        "no lines": b"x",
        "count": b"9" + data[1:],
        "binary": bytes(range(256)),
        "empty": b"",
        "zeros": bytes(len(data)),
        "order": encoded([Epoch(2, 500), Epoch(1, 0)]),
        "no entries": b"0\n0\n",
        "huge": b"1\n0\n" + b"1-5\n" * (epoch_file.FILE_BYTES_MAX // 4),
    }


@pytest.mark.parametrize("what", damaged_forms(b""))
def test_a_damaged_file(what: str, tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.append(1, 0)
    file.append(2, 500)
    data = damaged_forms(file.path.read_bytes())[what]
    file.path.write_bytes(data)
    loaded = EpochFile(tmp_path)
    assert (numbers(loaded), loaded.is_older) == ([(1, 0)], True)
    Path(f"{file.path}.bak").write_bytes(data)
    for _ in range(2):
        with pytest.raises(StartError, match=r"copy the file from the other broker"):
            EpochFile(tmp_path)


def test_a_crc_of_zero_is_not_checked() -> None:
    assert decoded(b"2\n0\n1-0\n2-500\n") == ((1, 0), (2, 500))


def test_each_flipped_bit_is_found() -> None:
    data = encoded([Epoch(1, 0), Epoch(2, 500)])
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"\w"):
            decoded(bytes(changed))


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 700, [(1, 0)], 900, 700),
        ([(1, 0), (2, 500)], 700, [(1, 0)], 900, 500),
        ([(1, 0)], 700, [(1, 0), (2, 500)], 900, 500),
        ([(1, 0), (2, 500)], 700, [(1, 0), (2, 600)], 900, 500),
        ([(1, 0), (2, 500)], 700, [(1, 0), (3, 500)], 900, 500),
        ([(1, 0), (2, 500), (4, 650)], 700, [(1, 0), (2, 500), (3, 600)], 900, 600),
        ([(2, 500)], 700, [(1, 0), (2, 500)], 650, 650),
        ([(1, 0)], 700, [(2, 0)], 900, None),
        ([], 0, [(1, 0)], 900, None),
        ([(1, 0)], 900, [], 0, None),
    ],
)
def test_the_common_point(
    ours: list[tuple[int, int]],
    our_end: int,
    theirs: list[tuple[int, int]],
    their_end: int,
    point: int | None,
) -> None:
    ours_as, theirs_as = [Epoch(*each) for each in ours], [Epoch(*each) for each in theirs]
    assert common_point(ours_as, our_end, theirs_as, their_end) == point
    assert common_point(theirs_as, their_end, ours_as, our_end) == point


def test_each_power_cut_leaves_the_state_before_or_after(tmp_path: Path) -> None:
    """And never by way of `.bak`, which lacks the newest epoch: the file that is renamed has been synced."""
    library = recording.build(tmp_path)
    draw = random.Random(5)
    with folder.scratch() as scratch:
        root = scratch / "recorded"
        ops = recording.record(library, root, "epochs", 3, module="tests.replication.epoch_writes")
        disk, allowed, seen = Disk(), [[]], 0
        for op in ops:
            disk.apply(op)
            if op.kind == Kind.MARK:
                mark = json.loads(op.data)
                allowed = [*(allowed if mark["what"] == "saving" else []), mark["entries"]]
            states = [
                *cuts.extremes(disk),
                *(cuts.every(disk) or ()),
                *(cuts.drawn(disk, draw) for _ in range(CUTS)),
            ]
            for cut in states:
                folder.make(scratch / "state", cuts.image_of(disk, cut))
                file = EpochFile(scratch / "state")
                assert [list(entry) for entry in file.entries] in allowed, (str(op), cut)
                assert not file.is_older, (str(op), cut)
                seen += 1
    assert seen > 1000


@pytest.mark.interop
def test_apache_writes_and_reads_the_same_bytes(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    theirs, ours = tmp_path / "theirs", EpochFile(tmp_path)

    def run(path: Path, *arguments: str) -> str:
        command = [*java("client5", "EpochFiles", tmp_path / "home", "-Xmx128m"), str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=JAVA_S, check=True)
        return done.stdout.strip().splitlines()[-1]

    assert (
        run(theirs, "append", "1-0", "2-338345", "9-4611686018427387903")
        == "entries 1-0 2-338345 9-4611686018427387903"
    )
    for number, start in ((1, 0), (2, 338345), (9, (1 << 62) - 1)):
        ours.append(number, start)
    backups = [Path(f"{path}.bak").read_bytes() for path in (theirs, ours.path)]
    assert theirs.read_bytes() == ours.path.read_bytes()
    assert backups[0] == backups[1]
    assert run(ours.path, "read") == "entries 1-0 2-338345 9-4611686018427387903"
    assert run(ours.path, "truncate", "338345") == "entries 1-0"
    assert numbers(EpochFile(tmp_path)) == [(1, 0)]
    ours.truncate(0)
    assert run(ours.path, "read") == "entries"
