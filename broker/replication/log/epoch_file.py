"""EpochFile: which epoch wrote which bytes of the log (Apache: EpochFileCache, `epochFileCheckpoint`).

An epoch begins when a slave becomes the master: it has a number and the offset of its first byte. It ends where the
next one begins, the last one at the log's end.

Lines of the file, each with a newline: number of entries, CRC-32 of the entries' lines without its top bit (0: not
checked), then `epoch-offset` for each entry, oldest first. `.bak` has the state before the last write. Apache's broker
reads the files and writes the same bytes. Used by one thread at a time.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base.durable_files import fsync_dir
from firearrow._native.base.hash import crc32
from firearrow.broker.base.errors import StartError
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.replication")

FILE_NAME = "epochFileCheckpoint"
EPOCHS_MAX = 1024
"""Most entries kept; the oldest are forgotten first."""
FILE_BYTES_MAX = 1 << 20
EPOCH_MAX, OFFSET_MAX = (1 << 31) - 1, (1 << 62) - 1
EPOCH_JUMP_MAX = 1000
"""How much newer than ours an epoch from outside may be. Each promotion adds one; without a bound, one request could
take the largest number, after which there is none for a promotion."""
ENTRY = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")
NUMBER = re.compile(rb"[0-9]{1,10}")
MISSING = "is missing"


class Epoch(NamedTuple):
    """`start`: physical offset of its first byte."""

    number: int
    start: int


def may_follow(epoch: int, ours: int) -> bool:
    """Whether another broker may be of this epoch, which is newer than ours."""
    return ours < epoch <= min(ours + EPOCH_JUMP_MAX, EPOCH_MAX - EPOCH_JUMP_MAX)


def next_epoch(newest: int) -> int:
    """Of a promotion. ValueError: there is none."""
    if newest >= EPOCH_MAX:
        raise ValueError(
            f"epoch {newest} is the last one, so there is none for a promotion: stop all brokers of this brokerName, "
            "and run `firearrow store reset-epoch` on their stores"
        )
    return newest + 1


class EpochFile:
    """Loads the entries. StartError: both files are damaged, or cannot be read.

    `is_older`: the last state is damaged, and the one before it was loaded from `.bak`: the newest epoch may lack.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE_NAME
        self._backup = Path(f"{self.path}.bak")
        self._file = ConfigFile(self.path)
        self.is_older = False
        self._entries = self._load()

    @property
    def entries(self) -> tuple[Epoch, ...]:
        """Oldest first."""
        return self._entries

    @property
    def last(self) -> int:
        """Number of the newest epoch; 0: there is none."""
        return self._entries[-1].number if self._entries else 0

    def append(self, number: int, start: int) -> None:
        """Begin an epoch where the log ends; it is on the disk when this returns. An epoch that begins at the same
        offset has no bytes, and is replaced.

        ValueError: it is not after the last one. OSError: nothing has changed.
        """
        kept = self._entries
        if kept and number > kept[-1].number and start == kept[-1].start:
            kept = kept[:-1]
        self._write(checked((*kept, Epoch(number, start)))[-EPOCHS_MAX:])

    def promote(self, number: int, log_end: int) -> None:
        """Begin an epoch where our log ends, and forget those that begin there or later: a slave knows its master's,
        whatever it has of the log. On the disk when this returns. OSError."""
        kept = tuple(entry for entry in self._entries if entry.start < log_end)
        self._write(checked((*kept, Epoch(number, log_end)))[-EPOCHS_MAX:])

    def replace(self, entries: Iterable[Epoch]) -> None:
        """Take over another list, a master's; on the disk when this returns. ValueError: its entries do not follow
        each other. OSError: nothing has changed."""
        taken = checked(entries)[-EPOCHS_MAX:]
        if taken != self._entries:
            self._write(taken)

    def truncate(self, offset: int) -> None:
        """Forget the epochs that begin at `offset` or later, as when the log is truncated there; on the disk when
        this returns. OSError.

        An epoch may have begun at the log's end: to forget only what the log cannot have, give the end + 1.
        """
        kept = tuple(entry for entry in self._entries if entry.start < offset)
        if kept != self._entries:
            self._write(kept)

    def _write(self, entries: tuple[Epoch, ...]) -> None:
        if entries:
            self._file.write(encoded(entries))
        else:
            self._delete()
        self._entries = entries

    def _delete(self) -> None:
        """Apache's broker reads `.bak` if the file has no entries, so both go, and `.bak` first."""
        for path in (self._backup, self.path):
            path.unlink(missing_ok=True)
            fsync_dir(str(path.parent))

    def _load(self) -> tuple[Epoch, ...]:
        entries, fault = _read(self.path)
        if fault is None:
            return entries
        before, backup_fault = _read(self._backup)
        if backup_fault is None:
            self.is_older = True
            log.error(
                "%s %s: loaded the epochs before its last change from %s", self.path, fault, self._backup.name
            )
            return before
        if fault == backup_fault == MISSING:
            return ()
        raise StartError(
            f"{self.path} {fault}, and {self._backup.name} {backup_fault}: copy the file from the other broker of "
            "this name, or delete both files and copy the whole log from it again"
        )


def checked(entries: Iterable[Epoch]) -> tuple[Epoch, ...]:
    """The entries, if numbers and offsets grow. ValueError."""
    taken = tuple(entries)
    for before, entry in zip((None, *taken), taken, strict=False):
        if not 0 <= entry.number <= EPOCH_MAX or not 0 <= entry.start <= OFFSET_MAX:
            raise ValueError(f"epoch {entry.number} at {entry.start} is out of range")
        if before is not None and (entry.number <= before.number or entry.start <= before.start):
            raise ValueError(
                f"epoch {entry.number} at {entry.start} is not after epoch {before.number} at {before.start}"
            )
    return taken


def encoded(entries: Iterable[Epoch]) -> bytes:
    """The file's bytes."""
    lines = [b"%d-%d\n" % entry for entry in entries]
    text = b"".join(lines)
    return b"%d\n%d\n%s" % (len(lines), crc32(text), text)


def decoded(data: bytes) -> tuple[Epoch, ...]:
    """The entries of a file. ValueError."""
    count, _, rest = data.partition(b"\n")
    sum_text, _, text = rest.partition(b"\n")
    if not NUMBER.fullmatch(count) or not NUMBER.fullmatch(sum_text):
        raise ValueError("its first two lines are not numbers")
    if text and not text.endswith(b"\n"):
        raise ValueError("its last line is not complete")
    lines = text.split(b"\n")[:-1]
    matches = [ENTRY.fullmatch(line) for line in lines]
    found = [Epoch(int(match[1]), int(match[2])) for match in matches if match is not None]
    if len(found) != len(lines):
        raise ValueError("an entry is not EPOCH-OFFSET")
    if len(found) != int(count):
        raise ValueError(f"it has {len(found)}  entries, but a count of {int(count)}")
    if int(sum_text) not in (0, crc32(text)):
        raise ValueError("its CRC does not match")
    return checked(found)[-EPOCHS_MAX:]


def common_point(ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int) -> int | None:
    """Up to where two logs have the same bytes, by their epochs: the smaller end of the newest one that both have,
    with the same start. None: they have none in common. The ends are those of the logs."""
    their_ends = dict(_with_ends(theirs, their_end))
    for entry, end in reversed(_with_ends(ours, our_end)):
        if entry in their_ends:
            return min(end, their_ends[entry])
    return None


def _with_ends(entries: Sequence[Epoch], log_end: int) -> list[tuple[Epoch, int]]:
    starts = [entry.start for entry in entries]
    return list(zip(entries, [*starts[1:], log_end][: len(entries)], strict=True))


def _read(path: Path) -> tuple[tuple[Epoch, ...], str | None]:
    """The entries, and what is wrong with the file; a file without entries counts as missing. StartError."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return (), MISSING
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}): give the broker access to it") from error
    if not data:
        return (), "is empty"
    if len(data) > FILE_BYTES_MAX:
        return (), f"is larger than {FILE_BYTES_MAX >> 20} MiB"
    try:
        entries = decoded(data)
    except ValueError as error:
        return (), f"is damaged ({error})"
    return entries, None if entries else "has no entries"
