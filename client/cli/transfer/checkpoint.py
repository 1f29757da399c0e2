"""Checkpoint: how far a command came, in a file of JSON that is replaced whole. One command at a time has it.

Positions: which messages of one source, a queue or a file, are done, although they end in another order.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from firearrow._native.base.durable_files import replace_durably
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.options import ClientOptions
from firearrow.client.cli.file_lock import open_locked, state_folder

VERSION = 1
FILE_BYTES_MAX = 256 << 20
CHECKPOINTS = "checkpoints"
"""Their folder in that of what commands note."""


class Checkpoint:
    """`state`: what the command notes, empty at its first run; `path` None: it cannot be resumed. Context manager."""

    def __init__(
        self, path: Path | None, job: str, arguments: Mapping[str, Any], state: dict[str, Any]
    ) -> None:
        self.path = path
        self.state = state
        self._job = job
        self._arguments = dict(arguments)
        self._lock = None if path is None else open_locked(lock_of(path), f"topic {job}")

    @classmethod
    def open(
        cls, path: Path | None, job: str, arguments: Mapping[str, Any], *, again: bool = False
    ) -> "Checkpoint":
        """The state of the last run, or a new one (`again`: always). ConfigError: it is of another job, another command
        has it, or it cannot be read."""
        found = cls(path, job, arguments, {})
        if path is None or again:
            return found
        try:
            text = _read(path)
            if text is not None:
                found.state = _state(path, text, job, found._arguments)
        except ConfigError:
            found.close()
            raise
        return found

    def save(self) -> None:
        """ClientError: it cannot be written."""
        if self.path is None:
            return
        whole = {"version": VERSION, "job": self._job, "arguments": self._arguments, "state": self.state}
        try:
            replace_durably(str(self.path), orjson.dumps(whole, option=orjson.OPT_SORT_KEYS), mode=0o600)
        except OSError as error:
            raise ClientError(
                f"cannot write {self.path}: {error.strerror}; the same command continues"
            ) from None

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            assert self.path is not None
            with contextlib.suppress(OSError):
                lock_of(self.path).unlink()
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def checkpoint_path(given: str | None, job: str, arguments: Mapping[str, Any]) -> Path:
    """The file of `--checkpoint`, or one for this job with these arguments."""
    if given is not None:
        return Path(given)
    digest = sha256(orjson.dumps(dict(arguments), option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
    return state_folder() / CHECKPOINTS / f"{job}-{digest}.json"


def cluster_of(options: ClientOptions) -> str:
    """By which a job is known again: the name servers, in one order, and the namespace."""
    servers = sorted(filter(None, map(str.strip, (options.name_server or "").split(";"))))
    return " ".join(filter(None, (";".join(servers), options.namespace)))


def new_job_id(job: str) -> str:
    """A name for the messages that one run and those that resume it have sent."""
    return f"{job}-{secrets.token_hex(6)}"


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _read(path: Path) -> bytes | None:
    try:
        if os.stat(path).st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is not a checkpoint: name another file with --checkpoint")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None


def _state(path: Path, text: bytes, job: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        whole = orjson.loads(text)
        known = whole["version"] == VERSION and isinstance(whole["state"], dict)
        same = (whole["job"], whole["arguments"]) == (job, orjson.loads(orjson.dumps(arguments)))
        if not known:
            raise ValueError(f"version {whole['version']}")
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is not a checkpoint that can be read ({error}): delete it to start from the beginning"
        ) from None
    if not same:
        raise ConfigError(
            f"{path} is of `topic {whole['job']}` with other arguments: give those again, or delete it to start "
            "from the beginning"
        )
    found: dict[str, Any] = whole["state"]
    return found


@dataclass(slots=True)
class Positions:
    """`next`: all before it are done; `beyond`: those after it that are done. `lost` gets how many there are of a range
    [start, end) that is not there, once `next` is after it: so a run that continues counts none twice."""

    next: int
    beyond: set[int] = field(default_factory=set)
    lost: Callable[[int, int, int], object] = lambda *_: None
    _jumps: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> "Positions":
        return cls(int(saved["next"]), set(map(int, saved["beyond"])))

    def saved(self) -> dict[str, Any]:
        return {"next": self.next, "beyond": sorted(self.beyond)}

    def is_done(self, position: int) -> bool:
        return position < self.next or position in self.beyond

    def done(self, *positions: int) -> None:
        self.beyond.update(each for each in positions if each >= self.next)
        self._settle()

    def passed(self, start: int, end: int) -> None:
        """What is between them is not there."""
        if start < end:
            self._jumps[start] = end
            self._settle()

    def _settle(self) -> None:
        while True:
            if self.next in self.beyond:
                self.beyond.remove(self.next)
                self.next += 1
            elif self.next in self._jumps:
                start, self.next = self.next, self._jumps.pop(self.next)
                done = {position for position in self.beyond if position < self.next}
                self.beyond -= done  # they were there when an earlier run read them
                self.lost(start, self.next, self.next - start - len(done))
            else:
                return


def ranges_text(ranges: Iterable[tuple[str, int, int]], most: int = 5) -> str:
    """`broker/0[3..5)`, a few of them."""
    texts = [f"{queue}[{start}..{end})" for queue, start, end in ranges]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
