"""The journal's way from a master to a slave, in front of the records that it speaks of.

An entry counts if the log reaches its `end`. A slave therefore notes the master's entries in its own journal, before it
has their records: after its promotion, as after a kill, those count whose records it has. Nothing that its log has is
done again, nothing that its log lacks is passed over.

The order, for the loop thread of the master: `Journal.drain` after each write (WriteBatch calls `on_written`), then
frames of what it returned, then frames of the log up to `written`. A write that failed is followed by a cancellation in
the journal, which comes in this order, too. Offsets that consumers commit need no write: `drain` by the clock as well.

The slave notes all entries at once, and changes its tables when the log has reached an entry's `end` and all entries
before it have taken effect: a later offset may not be followed by an earlier one.
"""

from collections import deque
from collections.abc import Callable, Iterable

from firearrow.broker.append.progress_journal import (
    HEAD_BYTES,
    NAME_BYTES_MAX,
    Entry,
    Journal,
    Kind,
    entries_of,
)
from firearrow.broker.replication import pair_frames
from firearrow.broker.replication.pair_frames import JOURNAL_BYTES_MAX, FrameError

WAITING_MAX = 1 << 17
"""Most entries in front of their records; more come only from a master that sends no log."""
KINDS = frozenset(Kind)


def journal_frames(drained: Iterable[bytes]) -> list[bytes]:
    """Frames of what `Journal.drain` returned."""
    return [pair_frames.frame(pair_frames.Kind.JOURNAL, piece) for piece in drained]


def entries_in(body: bytes) -> list[Entry]:
    """The entries of a frame. FrameError: there is anything else in it."""
    entries = list(entries_of(body))
    names = [len(entry.name.encode()) for entry in entries]
    if len(body) > JOURNAL_BYTES_MAX or sum(names) + HEAD_BYTES * len(entries) != len(body):
        raise FrameError("a JOURNAL frame has bytes that are no entry")
    for entry, length in zip(entries, names, strict=True):
        if entry.kind not in KINDS or length > NAME_BYTES_MAX or entry.end < 0:
            raise FrameError(f"a JOURNAL frame has an entry of kind {entry.kind} that cannot be")
    return entries


class JournalFollower:
    """The slave's end. `take_effect(entry)` changes the table that the entry belongs to, as at a start.

    Loop thread. Its records are written by a WriteBatch with the same journal, which under SYNC_FLUSH syncs the
    entries before the records.
    """

    def __init__(self, journal: Journal, written: int, take_effect: Callable[[Entry], None]) -> None:
        self._journal = journal
        self._take_effect = take_effect
        self._waiting: deque[Entry] = deque()
        self._written = written
        self.received_bytes = 0
        """Of entries since the connection began; after a sync of the journal, an ack's `noted`."""

    @property
    def waiting(self) -> int:
        """How many entries are in front of their records."""
        return len(self._waiting)

    def begin(self, written: int) -> None:
        """A connection begins where our log ends: entries beyond it are of records that may never come."""
        self._waiting = deque(entry for entry in self._waiting if entry.end <= written)
        self._journal.cancel(written)
        self.received_bytes = 0
        self.log_written(written)

    def received(self, body: bytes) -> None:
        """A frame's body. FrameError: close the connection."""
        entries = entries_in(body)
        if len(self._waiting) + len(entries) > WAITING_MAX:
            raise FrameError(f"more than {WAITING_MAX} entries of the journal came without their records")
        self.received_bytes += len(body)
        for entry in entries:
            self._journal.note(Kind(entry.kind), entry.name, entry.number, entry.value, entry.end)
            if entry.kind == Kind.CANCEL:
                self._waiting = deque(each for each in self._waiting if each.end <= entry.value)
            else:
                self._waiting.append(entry)
        self._apply()

    def log_written(self, written: int) -> None:
        """Our log has been written up to here."""
        self._written = written
        self._apply()

    def rotated(self) -> None:
        """The journal has a new file: note again what has not taken effect, since older files are deleted once the
        tables are saved."""
        for entry in self._waiting:
            self._journal.note(Kind(entry.kind), entry.name, entry.number, entry.value, entry.end)

    def _apply(self) -> None:
        while self._waiting and self._waiting[0].end <= self._written:
            self._take_effect(self._waiting.popleft())
