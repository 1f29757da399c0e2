"""The journal's way from a master to a slave, in front of the records that it speaks of.

An entry counts if the log reaches its `end`. A slave therefore notes the master's entries in its own journal, before it
has their records: after its promotion, as after a kill, those count whose records it has. Nothing that its log has is
done again, nothing that its log lacks is passed over.

The order, for the loop thread of the master: `Journal.drain` after each write (WriteBatch calls `on_written`), then
frames of what it returned, then frames of the log up to `written`. A write that failed is followed by a cancellation in
the journal, which also comes in this order. Offsets that consumers commit need no write: `drain` by the clock as well.

The slave notes all entries at once, and changes its tables when the log has reached an entry's `end` and all entries
before it have taken effect: a later offset may not be followed by an earlier one.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from firearrow._native.store.log.journal_entries import Entry, entries_of
from firearrow.broker.append.progress_journal import HEAD_BYTES, NAME_BYTES_MAX, Journal, Kind, encoded
from firearrow.broker.replication.wires.firearrow import frames
from firearrow.broker.replication.wires.firearrow.frames import JOURNAL_BYTES_MAX, FrameError

WAITING_MAX = 1 << 17
"""Most entries in front of their records; more come only from a master that sends no log."""
KINDS = frozenset(Kind)
WITH_TABLE = frozenset({Kind.OFFSET, Kind.DELAY})
"""Kinds of entries that a saved table has; the others are in the journal only."""
ROTATIONS_KEPT = 12
"""Files of the journal, one each flushConsumerOffsetInterval, in which entries without a table are noted again."""


def missed_entries(journal: Journal) -> list[bytes]:
    """Frames of the entries without a table that a new slave has missed. OSError."""
    pieces, piece = [], bytearray()
    for entry in journal.valid_entries(KINDS - WITH_TABLE):
        coded = encoded(entry)
        if len(piece) + len(coded) > JOURNAL_BYTES_MAX:
            pieces.append(bytes(piece))
            piece = bytearray()
        piece += coded
    return journal_frames([*pieces, bytes(piece)] if piece else pieces)


def journal_frames(drained: Iterable[bytes]) -> list[bytes]:
    """Frames of what `Journal.drain` returned."""
    return [frames.frame(frames.Kind.JOURNAL, piece) for piece in drained]


def entries_in(body: bytes) -> list[Entry]:
    """The entries of a frame. FrameError: there is anything else in it."""
    entries = list(entries_of(body))
    names = [len(entry.name.encode()) for entry in entries]
    if len(body) > JOURNAL_BYTES_MAX or sum(names) + HEAD_BYTES * len(entries) != len(body):
        raise FrameError("a JOURNAL frame has bytes that are not an entry")
    for entry, length in zip(entries, names, strict=True):
        if entry.kind not in KINDS or length > NAME_BYTES_MAX or entry.end < 0:
            raise FrameError(f"a JOURNAL frame has an inconsistent entry of kind {entry.kind}")
    return entries


class TableStep(NamedTuple):
    """A whole table of the master's, which counts once the log has reached `end`."""

    end: int
    apply: Callable[[], None]


class JournalFollower:
    """The slave's end. `take_effect(entry)` changes the table that the entry belongs to, as at a start.

    What has no table (timers, decided transactions, revived pops) only a start as a master needs: it stays in the
    journal for a minute, by then the log or a table has it.

    Loop thread. Its records are written by a WriteBatch with the same journal, which under SYNC_FLUSH syncs the
    entries before the records.
    """

    def __init__(self, journal: Journal, written: int, take_effect: Callable[[Entry], None]) -> None:
        self._journal = journal
        self._take_effect = take_effect
        self._waiting: deque[Entry | TableStep] = deque()
        self._written = written
        self._recent: deque[list[Entry]] = deque([[]], maxlen=ROTATIONS_KEPT)
        self.received_bytes = 0
        """Of entries since the connection began; after a sync of the journal, an ack's `noted`."""
        self.has_followed = False
        """Whether the journal has a master's entries: it has to outlive the store's clean end."""

    @property
    def waiting(self) -> int:
        """How many entries and tables are in front of their records."""
        return len(self._waiting)

    def begin(self, written: int) -> None:
        """A connection begins where our log ends: entries beyond it are of records that may never come."""
        self._waiting = deque(
            each for each in self._waiting if each.end <= written and isinstance(each, Entry)
        )
        self._journal.cancel(written)
        self.has_followed = True
        self.received_bytes = 0
        self.log_written(written)

    def received(self, body: bytes) -> None:
        """A frame's body. FrameError: close the connection."""
        entries = entries_in(body)
        self._check_room(len(entries))
        self.received_bytes += len(body)
        for entry in entries:
            self._note(entry)
            if entry.kind == Kind.CANCEL:
                self._waiting = deque(each for each in self._waiting if each.end <= entry.value)
            else:
                self._waiting.append(entry)
        self._apply()

    def table(self, place: int, apply: Callable[[], None]) -> None:
        """Apply a table when the log reaches its place and what came before it has taken effect. FrameError."""
        self._check_room(1)
        self._waiting.append(TableStep(place, apply))
        self._apply()

    def keep(self, entries: Iterable[Entry]) -> None:
        """Entries that the journal had at the start: those without a table stay in it."""
        self._recent[-1] += [entry for entry in entries if entry.kind not in WITH_TABLE]

    def log_written(self, written: int) -> None:
        """Our log has been written up to here."""
        self._written = written
        self._apply()

    def rotated(self) -> None:
        """The journal has a new file: note again what has not taken effect, since older files are deleted once the
        tables are saved."""
        for entries in self._recent:
            for entry in entries:
                self._note(entry)
        for each in self._waiting:
            if isinstance(each, Entry):
                self._note(each)
        self._recent.append([])

    def _note(self, entry: Entry) -> None:
        self._journal.note(Kind(entry.kind), entry.name, entry.number, entry.value, entry.end)

    def _check_room(self, more: int) -> None:
        if len(self._waiting) + more > WAITING_MAX:
            raise FrameError(f"more than {WAITING_MAX} entries of the journal came without their records")

    def _apply(self) -> None:
        while self._waiting and self._waiting[0].end <= self._written:
            step = self._waiting.popleft()
            if isinstance(step, TableStep):
                step.apply()
            else:
                self._take_effect(step)
                if step.kind not in WITH_TABLE and len(self._recent[-1]) < WAITING_MAX:
                    self._recent[-1].append(step)
