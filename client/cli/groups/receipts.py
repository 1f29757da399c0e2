"""Receipts: what became of each dead letter that was sent again or dropped, in a file of JSON Lines.

A letter has a line before it is sent (`sending`), synced to the disk, and one after (`sent`, `failed`). So a command
that was killed leaves at most one block of letters of which it is not known whether they were sent, and the next one
looks them up where they went. The last line of a letter counts.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

import orjson

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.times import now_ms
from firearrow.client.cli.file_lock import open_locked, state_folder

FILE_BYTES_MAX = 1 << 30


class Fate(StrEnum):
    """What became of a letter."""

    SENDING = "sending"
    """It is being sent; if this is its last line, it may have been sent"""
    SENT = "sent"
    FAILED = "failed"
    """It was not sent"""
    DROPPED = "dropped"


DONE = frozenset({Fate.SENT, Fate.DROPPED})


class LetterId(NamedTuple):
    """Where a letter is, and its id: a dead letter topic that was recreated has other letters at these offsets."""

    broker: str
    queue_id: int
    offset: int
    message_id: str

    @classmethod
    def of(cls, letter: ReceivedMessage) -> "LetterId":
        return cls(letter.broker_name, letter.queue_id, letter.queue_offset, letter.message_id)


@dataclass(frozen=True, slots=True)
class Receipt:
    """`facts`: the other members of its line: where the letter went, or why not."""

    letter: LetterId
    fate: Fate
    at_ms: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        place = {"broker": self.letter.broker, "queueId": self.letter.queue_id, "offset": self.letter.offset}
        return {
            "atMs": self.at_ms,
            "state": self.fate,
            **place,
            "msgId": self.letter.message_id,
            **self.facts,
        }

    @classmethod
    def of(cls, row: dict[str, Any]) -> "Receipt":
        """KeyError, TypeError, ValueError: it is none."""
        rest = dict(row)
        at_ms, fate = int(rest.pop("atMs")), Fate(rest.pop("state"))
        place = str(rest.pop("broker")), int(rest.pop("queueId")), int(rest.pop("offset"))
        return cls(LetterId(*place, str(rest.pop("msgId"))), fate, at_ms, rest)


class Receipts:
    """The receipts of one group. Context manager."""

    def __init__(self, path: Path, file: IO[bytes] | None, found: dict[LetterId, Receipt]) -> None:
        self.path = path
        self._file = file
        self._found = found

    @classmethod
    def open(cls, path: Path) -> "Receipts":
        """To write them. ConfigError: another command writes them, or the file cannot be used."""
        file = open_locked(path, "redrive or drop")
        try:
            found, whole_bytes = _read(path)
            file.truncate(whole_bytes)  # without a line that a kill cut off
        except (ConfigError, OSError) as error:
            file.close()
            raise error if isinstance(error, ConfigError) else _unusable(path, error) from None
        return cls(path, file, found)

    @classmethod
    def read(cls, path: Path) -> "Receipts":
        """As they are now, to look at them. ConfigError."""
        return cls(path, None, _read(path)[0] if path.exists() else {})

    def of(self, letter: ReceivedMessage) -> Receipt | None:
        return self._found.get(LetterId.of(letter)) if self._found else None

    def is_done(self, letter: ReceivedMessage) -> bool:
        receipt = self.of(letter)
        return receipt is not None and receipt.fate in DONE

    def __iter__(self) -> Iterator[Receipt]:
        return iter(self._found.values())

    def note(self, letters: Iterable[ReceivedMessage], fate: Fate, **facts: Any) -> None:  # noqa: ANN401 (JSON)
        """Write a receipt for each letter, all with these facts. ConfigError: see `note_each`."""
        self.note_each(((letter, facts) for letter in letters), fate)

    def note_each(self, letters: Iterable[tuple[ReceivedMessage, Mapping[str, Any]]], fate: Fate) -> None:
        """Write a receipt for each letter. ConfigError: the file cannot be written; nothing more may be sent."""
        file = self._file
        assert file is not None
        try:
            for letter, facts in letters:
                receipt = Receipt(LetterId.of(letter), fate, now_ms(), facts)
                file.write(orjson.dumps(receipt.row(), option=orjson.OPT_APPEND_NEWLINE))
                self._found[receipt.letter] = receipt
            file.flush()
            if fate is Fate.SENDING:
                os.fsync(file.fileno())
        except OSError as error:
            raise _unusable(self.path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def receipts_path(given: str | None, group: str, options: ClientOptions) -> Path:
    """The file of `--receipts`, or that of this group at these name servers."""
    if given is not None:
        return Path(given)
    servers = ";".join(sorted((options.name_server or "").split(";")))
    cluster = sha256(f"{servers} {options.namespace}".encode()).hexdigest()[:8]
    return state_folder() / "receipts" / f"{group}-{cluster}.jsonl"


def _read(path: Path) -> tuple[dict[LetterId, Receipt], int]:
    """The last receipt of each letter, and the bytes of whole lines."""
    found: dict[LetterId, Receipt] = {}
    whole_bytes = 0
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(
                f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB: delete it if the dead letters expired"
            )
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                receipt = _parsed(path, number, line)
                found[receipt.letter] = receipt
                whole_bytes += len(line)
    except OSError as error:
        raise _unusable(path, error) from None
    return found, whole_bytes


def _parsed(path: Path, number: int, line: bytes) -> Receipt:
    try:
        return Receipt.of(orjson.loads(line))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            f"{path}: line {number} is not a receipt: name another file with --receipts, or delete this one"
        ) from None


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot use {path}: {error.strerror}")
