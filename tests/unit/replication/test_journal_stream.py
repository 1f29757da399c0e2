"""The journal shipped to a slave: after a kill at any end of its log it restores what the master would there."""

import random
from pathlib import Path

import pytest

from firearrow._native.store.log.journal_entries import Entry
from firearrow.broker.append import progress_journal
from firearrow.broker.append.progress_journal import Journal, Kind, compacted, compacted_file
from firearrow.broker.replication.wires.firearrow import frames, journal_stream
from firearrow.broker.replication.wires.firearrow.frames import FrameDecoder, FrameError
from firearrow.broker.replication.wires.firearrow.journal_stream import (
    JournalFollower,
    entries_in,
    journal_frames,
)

RUN, OTHER_RUN = "firearrow-0123456789abcdef", "firearrow-fedcba9876543210"
END = 1000
KINDS = (Kind.OFFSET, Kind.DELAY, Kind.TIMER, Kind.DECIDED, Kind.REVIVE)


class Master:
    """A journal that is noted to at random, as the services and the fast path do, and a log that is only an end."""

    def __init__(
        self, folder: Path, seed: int, *, name_bytes: int = 20, kinds: tuple[Kind, ...] = KINDS
    ) -> None:
        self.folder = folder
        self.draw = random.Random(seed)
        self.name_bytes = name_bytes
        self.kinds = kinds
        self.written = END
        self.journal = Journal(folder, RUN, END)
        self.journal.start_draining()

    def turn(self) -> None:
        """Some entries, then a write, which may fail."""
        draw, staged = self.draw, self.written
        for _ in range(draw.randint(0, 6)):
            kind = draw.choice(self.kinds)
            name = "g" * draw.randint(0, self.name_bytes) if kind is Kind.OFFSET else ""
            number, value = draw.randint(0, 2), draw.randint(0, 1 << 50)
            if kind is Kind.OFFSET and draw.random() < 0.7:
                if not self.journal.journal_page.put(kind, name.encode(), number, value, 0, 27):
                    self.journal.note(kind, name, number, value)
            else:
                staged += draw.randint(50, 500)
                self.journal.note(kind, name, number, value, staged)
        if draw.random() < 0.2:
            self.journal.cancel(self.written)
        else:
            self.written = staged

    def frames(self) -> bytes:
        return b"".join(journal_frames(self.journal.drain()))

    def restored(self, end: int) -> list[Entry]:
        self.journal.close()
        journal = Journal(self.folder, RUN, end)
        try:
            return journal.recover_entries()
        finally:
            journal.close()


class Slave:
    """Applies what comes in any cuts. Its log follows at its own pace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = END
        self.effects: list[Entry] = []
        self.journal = Journal(folder, OTHER_RUN, END)
        self.follower = JournalFollower(self.journal, END, self.effects.append)
        self.decoder = FrameDecoder({frames.Kind.JOURNAL})

    def receive(self, sent: bytes, draw: random.Random) -> None:
        at = 0
        while at < len(sent):
            size = draw.randint(1, 100_000)
            for frame in self.decoder.feed(sent[at : at + size]):
                self.follower.received(frame.body)
            at += size

    def append(self, end: int) -> None:
        self.written = end
        self.follower.log_written(end)

    def restored(self, end: int) -> list[Entry]:
        self.journal.close()
        journal = Journal(self.folder, OTHER_RUN, end)
        try:
            return journal.recover_entries()
        finally:
            journal.close()


def in_order(entries: list[Entry]) -> list[Entry]:
    """The entries in force, of each kind in their order."""
    return sorted(compacted(entries), key=lambda entry: entry.kind)


@pytest.fixture(params=range(12))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Master, Slave]:
    return Master(tmp_path / "master", request.param), Slave(tmp_path / "slave")


def test_a_promoted_slave_restores_what_its_log_has(pair: tuple[Master, Slave]) -> None:
    master, slave = pair
    for _ in range(60):
        master.turn()
        sent, before = master.frames(), slave.written
        slave.receive(sent, master.draw)
        if master.draw.random() < 0.6:
            slave.append(master.draw.randint(before, master.written))
    end = slave.written
    effects = in_order(slave.effects)
    restored = slave.restored(end)
    assert restored == master.restored(end)
    assert len(restored) > 10
    # what took effect in the tables is what a start restores, but for entries behind others without a record
    last = {(entry.kind, entry.name, entry.number): entry for entry in restored}
    for entry in effects:
        key = entry.kind, entry.name, entry.number
        assert key in last
    assert slave.follower.received_bytes > 0


def test_all_that_came_has_taken_effect_once_the_log_is_there(pair: tuple[Master, Slave]) -> None:
    master, slave = pair
    for _ in range(40):
        master.turn()
        slave.receive(master.frames(), master.draw)
        slave.append(master.written)
        assert slave.follower.waiting == 0
    assert in_order(slave.effects) == in_order(slave.restored(slave.written))


def test_entries_of_full_rotated_and_compacted_files_are_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of the master is full for a while, so that its journal is compacted in place."""
    master = Master(tmp_path / "master", 3, name_bytes=200, kinds=(Kind.OFFSET, Kind.DELAY))
    slave = Slave(tmp_path / "slave")
    create, compact = progress_journal._create_zeroed, master.journal._compact_locked
    full, compacted_files = False, []

    def refused(path: Path) -> object:
        if full and path.parent == master.folder:
            raise OSError(28, "No space left on device")
        return create(path)

    monkeypatch.setattr(progress_journal, "_create_zeroed", refused)
    monkeypatch.setattr(master.journal, "_compact_locked", lambda: compacted_files.append(compact()) or True)
    for turn in range(10_000):
        full = 3000 <= turn < 9000
        master.turn()
        if turn % 7 == 0:
            slave.receive(master.frames(), master.draw)
            slave.append(master.written)
        if turn % 3000 == 0 and not full:
            master.journal.rotate()
    slave.receive(master.frames(), master.draw)
    slave.append(master.written)
    assert len(compacted_files) > 1
    assert all(compacted_files)
    assert slave.follower.received_bytes > 2 * progress_journal.FILE_BYTES
    assert in_order(slave.restored(master.written)) == in_order(master.restored(master.written))


def test_a_new_connection_voids_what_never_came(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    lost, kept = Entry(Kind.DELAY, "", 1, 7, END + 500), Entry(Kind.DELAY, "", 2, 8, END + 100)
    slave.follower.received(compacted_file(iter([kept, lost])))
    slave.append(END + 200)
    assert slave.follower.waiting == 1
    slave.follower.begin(END + 200)
    assert (slave.follower.waiting, slave.follower.received_bytes) == (0, 0)
    slave.append(END + 900)  # another record is where the lost one was to be
    assert slave.effects == [kept]
    assert slave.restored(END + 900) == [kept]


def test_a_cancelled_entry_does_not_take_effect(tmp_path: Path) -> None:
    slave = Slave(tmp_path)
    entries = [Entry(Kind.DELAY, "", 1, 7, END + 500), Entry(Kind.OFFSET, "t@g", 0, 3, 0)]
    slave.follower.received(compacted_file(iter(entries)))
    assert slave.effects == []  # in order: the offset may belong to what was delivered
    slave.follower.received(compacted_file(iter([Entry(Kind.CANCEL, "", 0, END, 0)])))
    slave.append(END + 900)
    assert slave.effects == entries[1:]
    assert slave.restored(END + 900) == entries[1:]


def test_entries_in_front_of_their_records_outlive_a_saving(tmp_path: Path) -> None:
    """Files before the tables' saving are deleted, with entries that are not in the tables."""
    slave = Slave(tmp_path)
    applied, waiting = Entry(Kind.DELAY, "", 1, 7, END), Entry(Kind.DELAY, "", 2, 8, END + 100)
    slave.follower.received(compacted_file(iter([applied, waiting])))
    number = slave.journal.rotate()
    slave.follower.rotated()
    slave.journal.drop_before(number)
    assert slave.restored(END + 100) == [waiting]


def test_nothing_is_kept_for_nobody(tmp_path: Path) -> None:
    journal = Journal(tmp_path, RUN, END)
    journal.note(Kind.OFFSET, "t@g", 0, 1)
    assert journal.drain() == []
    journal.start_draining()
    journal.note(Kind.OFFSET, "t@g", 0, 2)
    assert [entry.value for piece in journal.drain() for entry in entries_in(piece)] == [2]
    journal.stop_draining()
    journal.note(Kind.OFFSET, "t@g", 0, 3)
    assert journal.drain() == []
    journal.close()


def test_what_is_no_entry_is_refused(tmp_path: Path) -> None:
    slave, entry = Slave(tmp_path), compacted_file(iter([Entry(Kind.OFFSET, "t@g", 0, 1, 0)]))
    bad_kind = compacted_file(iter([Entry(77, "", 0, 1, 0)]))
    bad_end = compacted_file(iter([Entry(Kind.DELAY, "", 0, 1, -5)]))
    long = compacted_file(iter([Entry(Kind.OFFSET, "x" * 601, 0, 1, 0)]))
    flipped = [bytes([*entry[:at], entry[at] ^ 1, *entry[at + 1 :]]) for at in range(len(entry))]
    for body in (entry[:-1], entry + b"\0", bytes(27), bad_kind, bad_end, long, *flipped):
        with pytest.raises(FrameError):
            slave.follower.received(body)
    assert slave.restored(END) == []


def test_entries_without_records_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_stream, "WAITING_MAX", 3)
    slave = Slave(tmp_path)
    entries = [Entry(Kind.TIMER, "", 0, number, END + 1) for number in range(3)]
    slave.follower.received(compacted_file(iter(entries)))
    with pytest.raises(FrameError, match="more than 3"):
        slave.follower.received(compacted_file(iter(entries[:1])))
