"""A slave that is cut off at any byte and promoted repeats no delivery and no decision that its log has, and forgets
none that it lacks: delay levels, timers, transactions, revived pops. Without the journal each of them happens twice,
unless the log shows what the former master did."""

import random
import struct
from pathlib import Path

import pytest

from firearrow._native.replication.follower import Follower
from firearrow._native.store.log.journal_entries import Entry
from firearrow.broker.replication.wires.firearrow import frames as firearrow_frames
from firearrow.broker.replication.wires.firearrow.frames import FrameDecoder, Kind
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower, journal_frames
from tests.pop.revive_harness import REVIVE, ReviveHarness
from tests.support.examples import share
from tests.support.harness import Harness
from tests.support.timer_harness import TimerHarness
from tests.support.transaction_harness import COMMIT, HALF, TransactionHarness
from tests.unit.append.test_delay_levels import DelayHarness

PIECE = struct.Struct(">qi")
CUTS = share(40)
PIECE_BYTES = 90
"""Smaller than a record: a cut falls between any two, and into them."""
MESSAGES = 12
KNOWS_BY = {"the journal": (True, False), "the log": (False, True), "nothing": (False, False)}
"""Whether the journal comes to the slave, and whether the slave looks into its log."""


class Master:
    """What a master would send to its slave, in order: after each write the journal, then the log."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._sent = 0
        self.wire = bytearray()
        harness.journal.start_draining()
        harness.write_batch.replicate(self._ship, waits=False)

    def _ship(self) -> None:
        store = self._harness.store
        for frame in journal_frames(self._harness.journal.drain()):
            self.wire += frame
        while (view := store.log_bytes(self._sent, PIECE_BYTES)) is not None:
            with view:
                for part in firearrow_frames.log_frame(self._sent, 1, 0, view):
                    self.wire += part
                self._sent += len(view)


def follow(folder: Path, wire: bytes, *, with_journal: bool = True) -> list[Entry]:
    """A slave that got so much, and was killed; the entries that took effect."""
    harness, effects = Harness(folder), list[Entry]()
    follower = Follower(harness.store)
    follower.begin(0, 0)
    journal = JournalFollower(harness.journal, 0, effects.append)
    for frame in FrameDecoder({Kind.JOURNAL, Kind.LOG}).feed(wire):
        if frame.kind is Kind.LOG:
            append(harness, follower, firearrow_frames.log_piece(frame.body))
            journal.log_written(harness.store.written)
        elif with_journal:
            journal.received(frame.body)
    harness.kill()
    return effects


def append(harness: Harness, follower: Follower, piece: firearrow_frames.LogPiece) -> None:
    data = piece.data[follower.next_offset - piece.offset :]
    bytes_in = PIECE.pack(follower.next_offset, len(data)) + data
    for at in range(0, len(bytes_in), len(follower.wire)):
        part = bytes_in[at : at + len(follower.wire)]
        follower.wire[: len(part)] = part
        follower.received(len(part))
        while follower.append():
            harness.store.write()
        harness.store.write()


def cuts(wire: bytes) -> list[int]:
    draw = random.Random(4)
    return sorted({0, len(wire), *(draw.randrange(len(wire)) for _ in range(CUTS))})


@pytest.mark.parametrize("knows_by", KNOWS_BY)
def test_delayed_messages(tmp_path: Path, knows_by: str) -> None:
    with_journal, was_slave = KNOWS_BY[knows_by]
    master = DelayHarness(tmp_path / "master")
    sent = Master(master)
    for number in range(MESSAGES):
        master.put("T", b"%d" % number, DELAY="1", UNIQ_KEY=f"K{number}")
        master.timers.run(150)
    master.timers.run(600)
    repeated = 0
    for cut in cuts(bytes(sent.wire)):
        folder = tmp_path / f"slave{cut}"
        effects = follow(folder, bytes(sent.wire[:cut]), with_journal=with_journal)
        slave = DelayHarness(folder, now_ms=master.clock.now_ms(), was_slave=was_slave)
        had = len(slave.bodies("T"))
        assert len(effects) == (had if with_journal else 0)
        slave.timers.run(2000)
        wanted = [record.body for record in slave.records("SCHEDULE_TOPIC_XXXX")]
        assert set(slave.bodies("T")) == set(wanted)
        repeated += len(slave.bodies("T")) - len(wanted)
        slave.close()
    assert len(master.bodies("T")) > MESSAGES // 2
    assert (repeated > 0) == (knows_by == "nothing")
    master.close()


@pytest.mark.parametrize("knows_by", KNOWS_BY)
def test_transactions(tmp_path: Path, knows_by: str) -> None:
    """The producer got no answer of the old master and commits again at the new one."""
    with_journal, was_slave = KNOWS_BY[knows_by]
    master = TransactionHarness(tmp_path / "master")
    sent = Master(master)
    for number in range(MESSAGES):
        half = master.prepare(b"%d" % number, UNIQ_KEY=f"K{number}")
        if number % 3:
            master.end(half, COMMIT)
    repeated = 0
    for cut in cuts(bytes(sent.wire)):
        folder = tmp_path / f"slave{cut}"
        follow(folder, bytes(sent.wire[:cut]), with_journal=with_journal)
        slave = TransactionHarness(folder, now_ms=master.clock.now_ms(), was_slave=was_slave)
        wanted = [record.body for record in slave.records(HALF)]
        for half in slave.records(HALF):
            slave.end(half, COMMIT)
        found = slave.bodies("T", 1)
        assert set(found) == set(wanted)
        repeated += len(found) - len(wanted)
        slave.close()
    assert (repeated > 0) == (knows_by == "nothing")
    master.close()


@pytest.mark.parametrize("with_journal", [True, False])
def test_timers(tmp_path: Path, with_journal: bool) -> None:
    """The slave fills its wheel from its own log when it is promoted."""
    master = TimerHarness(tmp_path / "master")
    sent = Master(master)
    for number in range(MESSAGES):
        master.put("T", b"%d" % number, TIMER_DELAY_MS="3000")
        master.timers.run(500)
    master.timers.run(1500)
    repeated = 0
    for cut in cuts(bytes(sent.wire)):
        folder = tmp_path / f"slave{cut}"
        follow(folder, bytes(sent.wire[:cut]), with_journal=with_journal)
        slave = TimerHarness(folder, master.clock.now_ms())
        slave.timers.run(6000)
        wanted = [int(record.body) for record in slave.records("rmq_sys_wheel_timer")]
        assert set(slave.found()) == set(wanted)
        repeated += len(slave.found()) - len(wanted)
        slave.stop()
    assert len(master.found()) > MESSAGES // 3
    assert (repeated == 0) == with_journal
    master.stop()


@pytest.mark.parametrize("with_journal", [True, False])
def test_revived_messages(tmp_path: Path, with_journal: bool) -> None:
    master = ReviveHarness(tmp_path / "master")
    sent = Master(master)
    for number in range(MESSAGES):
        master.put("T", b"%d" % number)
    for number in range(MESSAGES):
        master.pop(number)
        master.timers.run(2000)
    master.timers.run(8000)
    repeated = 0
    for cut in cuts(bytes(sent.wire)):
        folder = tmp_path / f"slave{cut}"
        follow(folder, bytes(sent.wire[:cut]), with_journal=with_journal)
        slave = ReviveHarness(folder, now_ms=master.clock.now_ms())
        popped = slave.store.reader.max_offset(REVIVE, 0)
        slave.timers.run(40_000)
        assert {int(body) for body in slave.revived()} == set(range(popped))
        repeated += len(slave.revived()) - popped
        slave.close()
    assert len(master.revived()) > MESSAGES // 3
    assert (repeated == 0) == with_journal
    master.close()
