"""Up to where enough copies have the log, what a send gets if there are too few, and what readers of a slave see.

Apache: GroupTransferService, HAService.getInSyncReplicasNums, CommitLog.calcNeedAckNums.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.options import Options

log = logging.getLogger("firearrow.replication")

EVERYTHING = (1 << 62) - 1
"""An offset beyond every record: no client waits."""

MERGED_FROM = 1024
"""Pieces of a log that are remembered with their queues; later ones count as one."""


class CopiesNeeded(NamedTuple):
    """All numbers count the master's copy. `wanted`: inSyncReplicas. `least`: minInSyncReplicas. `adapts`:
    enableAutoInSyncReplicas. `strict`: enableSlaveActingMaster: sends that need more copies are refused."""

    wanted: int = 1
    least: int = 1
    adapts: bool = False
    strict: bool = False

    def readable(self, present: int) -> int:
        """How many copies readers wait for. `present`: copies in sync."""
        return max(self.least, min(self.wanted, present))


class Confirmed(NamedTuple):
    """`replicated`: replies up to here may be sent. `visible`: readers may see the log up to here. `fault`: the code
    of sends that would wait for slaves that are not in sync; 0: they wait. `refuses`: sends are not stored."""

    replicated: int = EVERYTHING
    visible: int = EVERYTHING
    fault: int = 0
    refuses: bool = False


def confirmed_by(
    acknowledged: Sequence[int], connected: int, copies: CopiesNeeded, *, starts: bool = False
) -> Confirmed:
    """`acknowledged`: the log's end at each slave in sync. `connected`: slaves, in sync or not. `starts`: slaves may
    not have come yet.

    While fewer slaves are in sync than wanted, sends are answered at once that they are not, and readers see what
    the least number of copies has; after a start they wait for all that are wanted.
    """
    present = len(acknowledged) + 1
    readable = copies.readable(present)
    needed = readable if copies.adapts else max(copies.wanted, copies.least)
    if needed <= present:
        fault = 0
    else:
        fault = ResponseCode.FLUSH_SLAVE_TIMEOUT if connected else ResponseCode.SLAVE_NOT_AVAILABLE
    refuses = present < copies.least or (copies.strict and needed > present)
    shown = copies.readable(copies.wanted) if starts else readable
    return Confirmed(_held_by(acknowledged, needed), _held_by(acknowledged, shown), int(fault), refuses)


def confirmed_at(
    acknowledged: Sequence[int], present: int, copies: CopiesNeeded, *, starts: bool = False
) -> int:
    """Up to where readers of a slave may see what it has, which is a copy itself. `acknowledged`: by the other slaves
    in sync. `present`: copies in sync. `starts`: as of `confirmed_by`."""
    return _held_by(acknowledged, copies.readable(copies.wanted if starts else present) - 1)


def has_caught_up(end: int, written: int, *, since_s: float, timeout_s: float) -> bool:
    """Whether a slave whose log ends at `end`, and which so has all that was written `since_s` ago, is in sync."""
    return end == written or since_s <= timeout_s


def _held_by(acknowledged: Sequence[int], copies: int) -> int:
    """The end of the log that `copies` brokers have; 0: fewer have any."""
    if copies <= 1:
        return EVERYTHING
    if len(acknowledged) < copies - 1:
        return 0
    return sorted(acknowledged, reverse=True)[copies - 2]


class CopiesWarning:
    """Warns of values of inSyncReplicas and minInSyncReplicas that do not do what they seem to; Apache takes them
    without a word. `check` with the options at the start and after each change: the same is not logged twice."""

    def __init__(self) -> None:
        self._logged = ""

    def check(self, options: Options) -> None:
        text = copies_fault(options)
        if text and text != self._logged:
            log.warning("%s", text)
        self._logged = text


def copies_fault(options: Options) -> str:
    """Empty: none, or it is a slave, which waits for no other."""
    wanted, least = options.in_sync_replicas, options.min_in_sync_replicas
    if options.is_slave or options.all_acknowledge:
        return ""
    if options.broker_role != "SYNC_MASTER":
        values = (("inSyncReplicas", wanted), ("minInSyncReplicas", least))
        idle = " and ".join(f"{key}={value}" for key, value in values if value > 1)
        verb = "have" if " and " in idle else "has"
        return idle and (
            f"{idle} {verb} no effect with brokerRole=ASYNC_MASTER, which waits for no slave: set "
            "brokerRole=SYNC_MASTER"
        )
    if least > wanted:
        waits = wanted if options.controller_mode else least
        copies = "no slave" if waits == 1 else f"{waits} copies"
        slaves = "without a slave" if least == 2 else f"with fewer than {least - 1} slaves"
        return (
            f"minInSyncReplicas={least} is above inSyncReplicas={wanted}: sends wait for {copies}, and are refused "
            f"while fewer than {least} copies are in sync, which is for ever {slaves}: set inSyncReplicas={least}, or "
            f"minInSyncReplicas={wanted}"
        )
    if wanted == 1:
        return "brokerRole=SYNC_MASTER waits for no slave while inSyncReplicas is 1, Apache's default: set it to 2"
    return ""


class ConfirmedLog:
    """What readers of a slave see of its log: up to what its master confirms. What was visible once stays so. Loop
    thread."""

    def __init__(self, store: MessageStore, arrivals: Callable[[list[tuple[str, int]]], object]) -> None:
        self._store = store
        self._arrivals = arrivals
        self._durable = store.written
        self._hidden = deque([(store.written, store.hidden_queues())])
        """Queues that have new messages, with where the log ended then."""
        self.offset = store.reader.confirmed
        """What the master reported last."""
        store.confirm_limit = self.offset

    def confirmed(self, offset: int) -> None:
        """The master reports it; 0: it has too few copies, or has reported nothing yet."""
        self.offset = offset
        self._store.confirm_limit = max(offset, self._store.reader.confirmed)
        self._show()

    def stored(self, end: int, queues: list[tuple[str, int]]) -> None:
        """The log is as durable as flushDiskType promises up to here."""
        self._durable = max(self._durable, end)
        if len(self._hidden) >= MERGED_FROM:  # a large log is copied while too few have it
            queues = list(dict.fromkeys(self._hidden.pop()[1] + queues))
        self._hidden.append((end, queues))
        self._show()

    def _show(self) -> None:
        self._store.confirm(self._durable)
        while self._hidden and self._hidden[0][0] <= self._store.reader.confirmed:
            self._arrivals(self._hidden.popleft()[1])
