"""Damaged timer files: the broker starts and logs it; no pending message is lost, no recalled one is delivered."""

import itertools
import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.log.timer_layout import SLOT, SLOTS
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.store_checks.findings import Kind
from firearrow.broker.maintenance.repair import Repair, RepairOptions
from firearrow.broker.maintenance.verify import VerifyOptions, verify
from tests.support import timer_harness
from tests.support.killed_writes import Killed, killed_after
from tests.support.timer_harness import NOW, TimerHarness

WHEEL, LOG, CHECK = Path("timerwheel"), Path("timerlog"), Path("config/timercheck")
FIRST = LOG / f"{0:020d}"
FIRED, RECALLED = set(range(16)), {3, 25, 31, 47}
OPTIONS = {"timer_roll_slots": 20}


def garble(path: Path, start: int = 0, length: int | None = None) -> None:
    size = path.stat().st_size - start if length is None else length
    overwrite(path, start, random.Random(5).randbytes(size))


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def slots_of_wheel(root: Path, data: Callable[[], bytes]) -> None:
    """Replaces all slots of the minute in which everything happens."""
    for time in range(NOW // 1000, NOW // 1000 + 60):
        overwrite(root / WHEEL, time % SLOTS * SLOT.size, data())


def file_of_another_shape(root: Path) -> None:
    (root / LOG / f"{52:020d}").write_bytes(b"x" * 100)


def all_of(*damages: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(root: Path) -> None:
        for each in damages:
            each(root)

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "check missing": lambda root: remove(root / CHECK),
    "check cut": lambda root: cut(root / CHECK, 20),
    "check empty": lambda root: cut(root / CHECK, 0),
    "check garbled": lambda root: garble(root / CHECK),
    "check's numbers garbled": lambda root: garble(root / CHECK, 0, 56),
    "check zero": lambda root: (root / CHECK).write_bytes(bytes(4096)),
    "wheel missing": lambda root: remove(root / WHEEL),
    "wheel cut": lambda root: cut(root / WHEEL, 100_000),
    "wheel's slots garbled": lambda root: slots_of_wheel(root, lambda: random.Random(1).randbytes(SLOT.size)),
    "wheel's slots zero": lambda root: slots_of_wheel(root, lambda: bytes(SLOT.size)),
    "log missing": lambda root: remove(root / LOG),
    "log empty": lambda root: cut(root / FIRST, 0),
    "log cut": lambda root: cut(root / FIRST, 700),
    "log cut short": lambda root: cut(root / FIRST, 7),
    "log's form garbled": lambda root: garble(root / FIRST, 52 * 30, 4),
    "log's chain garbled": lambda root: garble(root / FIRST, 52 * 30 + 4, 8),
    "log's time garbled": lambda root: garble(root / FIRST, 52 * 30 + 16, 8),
    "log garbled": lambda root: garble(root / FIRST),
    "log zero": lambda root: (root / FIRST).write_bytes(bytes(10_400)),
    "log of another shape": file_of_another_shape,
}
DAMAGES["log and wheel missing"] = all_of(DAMAGES["log missing"], DAMAGES["wheel missing"])
DAMAGES["all missing"] = all_of(DAMAGES["log and wheel missing"], DAMAGES["check missing"])
DAMAGES["all garbled"] = all_of(
    DAMAGES["log garbled"], DAMAGES["wheel's slots garbled"], DAMAGES["check garbled"]
)
UNTOUCHED = {"wheel missing", "wheel cut"}
"""The timer log has every message: nothing is read again from the queue."""


def filled(folder: Path, end: str, **more: object) -> TimerHarness:
    """20 fired, 4 recalled (one of them was delivered already), some rolled, the others pending."""
    harness = TimerHarness(folder, **OPTIONS, **more)
    messages = [harness.send(b"%d" % number, 1000 + 500 * number) for number in range(60)]
    harness.timers.run(10)
    for number in (25, 31, 47):
        harness.recall(messages[number])
    harness.timers.run(1)
    harness.recall(messages[3])
    harness.timers.run(10_500)
    harness.service.save()
    assert set(harness.found()) >= FIRED - RECALLED
    harness.stop() if end == "stop" else harness.kill()
    return harness


@pytest.mark.parametrize(
    ("damage", "end"), list(zip(sorted(DAMAGES), itertools.cycle(["stop", "kill"]), strict=False))
)
def test_pending_messages_are_delivered_once(
    tmp_path: Path, damage: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = filled(tmp_path, end)
    DAMAGES[damage](harness.folder)
    with caplog.at_level(logging.WARNING, logger="firearrow.timers"):
        harness = harness.again(3000, **OPTIONS)
    said = [
        record.getMessage()
        for record in caplog.records
        if "reading pending messages again from the timer's queue" in record.getMessage()
    ]
    assert len(said) == (0 if damage in UNTOUCHED else 1)
    harness.timers.run(60_000)
    found = Counter(harness.found())
    assert set(found) == set(range(60)) - RECALLED
    assert [number for number, times in found.items() if times > 1] == []
    assert harness.service.runtime()["timerCongestNum"] == "0"
    harness.stop()
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="firearrow.timers"):
        harness.again(1000, **OPTIONS)
    assert caplog.records == []


@pytest.mark.parametrize("writes", [4, 5, 7, 12])
def test_a_kill_during_the_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    harness = filled(tmp_path, "kill")
    garble(harness.folder / FIRST, 52 * 30, 4)
    with killed_after(writes, monkeypatch), pytest.raises(Killed):
        harness.again(3000, **OPTIONS)
    timer_harness.OPEN[-1].kill()
    harness = harness.again(100, **OPTIONS)
    harness.timers.run(60_000)
    assert sorted(harness.found()) == sorted(set(range(60)) - RECALLED)


@pytest.mark.parametrize(("field", "size"), [(4, 8), (28, 8)])
def test_damage_while_it_runs_is_logged_once_and_repaired_by_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: int, size: int
) -> None:
    """A timer record that is linked elsewhere, or refers to no message."""
    harness = TimerHarness(tmp_path)
    for number in range(40):
        harness.send(b"%d" % number, 2000)
    harness.timers.run(10)
    for timer_record in (10, 30):
        overwrite(tmp_path / FIRST, timer_record * 52 + field, (999 * 52).to_bytes(size, "big"))
    harness.timers.run(5000)
    assert 0 < len(harness.found()) < 40
    assert len([each for each in caplog.records if "start the broker again" in each.getMessage()]) == 1
    harness.stop()
    harness = harness.again(1000)
    harness.timers.run(5000)
    assert sorted(harness.found()) == list(range(40))


def test_without_an_index_it_is_delivered_twice_rather_than_never(tmp_path: Path) -> None:
    harness = filled(tmp_path, "stop")
    shutil.rmtree(tmp_path / "index")
    for path in (CHECK, WHEEL):
        remove(tmp_path / path)
    store = MessageStore.open(
        tmp_path, StoreConfig(segment_bytes=1 << 20, queue_file_bytes=20_000, index_enabled=False)
    )
    harness = TimerHarness(tmp_path, NOW + 30_000, store, **OPTIONS)
    harness.timers.run(60_000)
    assert set(harness.found()) == set(range(60)) - RECALLED
    assert len(harness.found()) > 60


@pytest.mark.parametrize(
    "damage", ["log cut", "log's form garbled", "wheel cut", "check cut", "check missing"]
)
def test_a_repair_and_a_start_deliver_all(tmp_path: Path, damage: str) -> None:
    root = tmp_path / "store"
    filled(root, "stop")
    checks = VerifyOptions(jobs=1)
    assert verify(str(root), checks).clean
    DAMAGES[damage](root)
    found = verify(str(root), checks)
    assert {each.kind for each in found.findings} == {Kind.TIMER}
    repair = Repair(str(root), found, RepairOptions())
    repair.run(repair.plan(), lambda _: None)
    assert verify(str(root), checks).clean
    harness = TimerHarness(root, NOW + 20_000, **OPTIONS)
    harness.timers.run(60_000)
    assert sorted(harness.found()) == sorted(set(range(60)) - RECALLED)
