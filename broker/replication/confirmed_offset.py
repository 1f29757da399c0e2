"""Up to where enough copies have the log, and what a send gets if there are too few. Pure functions.

Apache: GroupTransferService, HAService.getInSyncReplicasNums, CommitLog.calcNeedAckNums.
"""

from collections.abc import Sequence
from typing import NamedTuple

from firearrow._native.wire.codes import ResponseCode

EVERYTHING = (1 << 62) - 1
"""An offset beyond every record: nobody waits."""


class CopiesNeeded(NamedTuple):
    """All numbers count the master's copy. `wanted`: inSyncReplicas. `least`: minInSyncReplicas. `adapts`:
    enableAutoInSyncReplicas. `strict`: enableSlaveActingMaster: sends that need more copies are refused."""

    wanted: int = 1
    least: int = 1
    adapts: bool = False
    strict: bool = False


class Confirmed(NamedTuple):
    """`replicated`: replies up to here may be sent. `visible`: readers may see the log up to here. `fault`: the code
    of sends that would wait for slaves that are not in sync; 0: they wait. `refuses`: sends are not stored."""

    replicated: int = EVERYTHING
    visible: int = EVERYTHING
    fault: int = 0
    refuses: bool = False


def confirmed_by(acknowledged: Sequence[int], connected: int, copies: CopiesNeeded) -> Confirmed:
    """`acknowledged`: the log's end at each slave in sync. `connected`: slaves, in sync or not.

    While fewer slaves are in sync than wanted, sends are answered at once that they are not, and readers see what
    the least number of copies has.
    """
    present = len(acknowledged) + 1
    readable = max(copies.least, min(copies.wanted, present))
    needed = readable if copies.adapts else max(copies.wanted, copies.least)
    if needed <= present:
        fault = 0
    else:
        fault = ResponseCode.FLUSH_SLAVE_TIMEOUT if connected else ResponseCode.SLAVE_NOT_AVAILABLE
    refuses = present < copies.least or (copies.strict and needed > present)
    return Confirmed(_held_by(acknowledged, needed), _held_by(acknowledged, readable), int(fault), refuses)


def has_caught_up(end: int, written: int, *, since_s: float, timeout_s: float) -> bool:
    """Whether a slave whose log ends at `end`, and which so has all that was written `since_s` ago, is in sync."""
    return end == written or since_s <= timeout_s


def _held_by(acknowledged: Sequence[int], copies: int) -> int:
    """The log up to here is in so many copies; 0: in fewer."""
    if copies <= 1:
        return EVERYTHING
    if len(acknowledged) < copies - 1:
        return 0
    return sorted(acknowledged, reverse=True)[copies - 2]
