"""ThreadWatch: notices service threads that ended or hang, and stops the store then.

A broker without one of its threads keeps some promise no more, and nothing else would show it: the broker refuses
messages, is not ready, and logs it. A name server alone, which has no store, logs it and refuses changes. Loop thread;
the threads are only looked at.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from firearrow._native.store.message_store import MessageStore

log = logging.getLogger("firearrow.threads")

HUNG_S = 60.0
"""A job of a thread that takes longer hangs: an fsync, a file that is deleted or written."""
SYNC_HUNG_S = 30.0
"""The same for a sync of the log, without which nothing may be acknowledged."""
LOOK_S = 1.0
"""How often to look at the threads."""
LOOK_MAX_S = 2.0
"""A longer time between two looks does not count: the process was stopped, or the loop was busy."""


BROKER = ("broker", "No more messages are accepted until then, stored ones can still be read")
NAME_SERVER = (
    "name server",
    "No more changes of KV entries and users are accepted until then, routes are still answered",
)
"""What is to be restarted, and what the end of a thread means until then."""


class WatchedThread(Protocol):
    name: str

    def is_alive(self) -> bool: ...

    def progress(self) -> int | None:
        """None: it waits for work; otherwise a number that changes with its progress."""


class ThreadState(NamedTuple):
    """`busy_s`: how long it has made no progress with its work. `fault`: in a sentence."""

    name: str
    is_alive: bool
    busy_s: float
    fault: str | None


@dataclass(slots=True)
class _Watched:
    thread: WatchedThread
    hung_s: Callable[[], float]
    stops_when_hung: bool
    seen: int | None = None
    busy_s: float = 0.0
    ended: str | None = None
    """Why it ended; it stays so until a restart."""
    hangs: bool = False

    def fault(self) -> str | None:
        if self.hangs and not self.ended:
            return f"the {self.thread.name} hangs for {self.busy_s:.0f} s: look for errors of the disk"
        return self.ended


class LogSync:
    """The log as a thread whose progress is what is synced: nothing may be acknowledged while that stands still,
    whichever thread is at fault."""

    name = "sync of the log"

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def is_alive(self) -> bool:
        return True

    def progress(self) -> int | None:
        return self._store.flushed if self._store.flushed < self._store.written else None


class ThreadWatch:
    """`stopped(reason)` is called once, when a thread has ended: what waits is to be refused. `store` None: that of a
    name server."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: MessageStore | None, stopped: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._store = store
        self._stopped = stopped
        self._watched: list[_Watched] = []
        self._looked_at = loop.time()
        self._server, self._effect = BROKER if store is not None else NAME_SERVER

    def watch(
        self,
        thread: WatchedThread,
        hung_s: Callable[[], float] = lambda: HUNG_S,
        *,
        stops_when_hung: bool = False,
    ) -> None:
        """`stops_when_hung`: no message is accepted until it goes on."""
        self._watched.append(_Watched(thread, hung_s, stops_when_hung))

    def ended(self, name: str, reason: str) -> None:
        """The thread reports that it has ended. `reason`: in a sentence, with what to do."""
        for each in self._watched:
            if each.thread.name == name and not each.ended:
                self._end(each, reason)

    def look(self) -> None:
        """Look at all threads; to be called each `LOOK_S`."""
        now = self._loop.time()
        passed_s, self._looked_at = min(now - self._looked_at, LOOK_MAX_S), now
        for each in self._watched:
            if not each.ended and not each.thread.is_alive():
                self._end(each, f"the {each.thread.name} thread has ended: restart the {self._server}")
            progress = each.thread.progress()
            each.busy_s = each.busy_s + passed_s if progress is not None and progress == each.seen else 0.0
            each.seen = progress
            self._note_hang(each)
        self._set_stopped()

    def fault(self) -> str | None:
        """What is wrong with the threads; None: nothing is."""
        return next((fault for each in self._watched if (fault := each.fault())), None)

    def states(self) -> list[ThreadState]:
        return [
            ThreadState(
                each.thread.name, not each.ended and each.thread.is_alive(), each.busy_s, each.fault()
            )
            for each in self._watched
        ]

    def _end(self, each: _Watched, reason: str) -> None:
        if all(other.ended != reason for other in self._watched):  # two threads see one fault of the disk
            log.critical("%s. %s", reason, self._effect)
        each.ended = reason
        self._set_stopped()
        self._stopped(reason)

    def _note_hang(self, each: _Watched) -> None:
        hangs = not each.ended and each.busy_s >= each.hung_s()
        if hangs == each.hangs:
            return
        each.hangs = hangs
        refused = each.stops_when_hung
        if hangs:
            log.error(
                "%s%s", each.fault(), ". No messages are accepted until it works again" if refused else ""
            )
        else:
            log.info(
                "the %s works again%s", each.thread.name, ": messages are accepted again" if refused else ""
            )

    def _set_stopped(self) -> None:
        if self._store is None:
            return
        faults = [
            each.fault() for each in self._watched if each.ended or (each.hangs and each.stops_when_hung)
        ]
        self._store.stopped = faults[0] if faults else None
