"""OwnLog: what a broker reports to the other one about its log, and up to where two logs are one.

Both brokers come to the same agreement from the same summaries. What epochs state is confirmed by checksums: the master
compares the slave's last MiBs with its own; where it cannot, the slave searches the common point.
"""

from typing import NamedTuple

from firearrow._native.replication.log_checksums import MIB_BYTES, LogChecksums
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.replication.log.epoch_file import Epoch, EpochFile, common_point
from firearrow.broker.replication.log.pair_identity import NO_ID, PairIdentity
from firearrow.broker.replication.wires.firearrow.handshake import (
    ASK_FOR_CHECKSUMS,
    LogSummary,
    Member,
    RefusalCode,
    Refused,
)

CHAIN_MIBS = 16
"""MiBs whose checksums are sent: reading them takes a few ms."""


class Agreement(NamedTuple):
    """`point`: up to where the logs should be one. `cuts`: the slave's is longer, and what comes later is of an epoch
    that ended: an old master's."""

    point: int
    cuts: bool


class OwnLog:
    """Of an open store, and of the broker that has it: `member`. Loop thread."""

    def __init__(
        self, store: MessageStore, identity: PairIdentity, epochs: EpochFile, member: Member | None = None
    ) -> None:
        self._store = store
        self._member = member
        self.identity = identity
        self.epochs = epochs
        self.checksums = LogChecksums(store)

    def summary(self, *, pair: bytes, begins: bool = False) -> LogSummary:
        """`begins`: a master's, whose first epoch begins now unless there is one. OSError."""
        store = self._store
        end = store.written
        first = min(store.min_physical, end)
        entries = tuple(entry for entry in self.epochs.entries if entry.start <= end)
        if begins and not entries:
            entries = (Epoch(max(self.epochs.last, 1), end),)
        epoch = max(self.epochs.last, entries[-1].number if entries else 0)
        start = max(-(-first // MIB_BYTES), end // MIB_BYTES - CHAIN_MIBS + 1) * MIB_BYTES
        chain = tuple(self.checksums.chained(start, end)) if start < end else ()
        flushed = min(store.flushed, end)
        chain_start = start if chain else end
        return LogSummary(
            pair, self.identity.node, epoch, first, end, flushed, entries, chain_start, chain, self._member
        )

    def epoch_at(self, offset: int) -> tuple[int, int | None]:
        """Number of the epoch that a byte of the log belongs to (0: of none), and where the next begins."""
        number, following = 0, None
        for entry in self.epochs.entries:
            if entry.start > offset:
                following = entry.start
                break
            number = entry.number
        return number, following

    def common_point(self, slave: LogSummary, agreed: Agreement) -> int:
        """The agreed point if our log has the slave's last MiBs before it, else ASK_FOR_CHECKSUMS. OSError."""
        if slave.end == 0 or agreed.point == slave.first:
            return agreed.point
        start, known = slave.chain_start, len(slave.chain)
        ends = [min(start + (number + 1) * MIB_BYTES, slave.end) for number in range(known)]
        if start % MIB_BYTES or start < self._store.min_physical or agreed.point not in ends:
            return ASK_FOR_CHECKSUMS
        ours = self.checksums.chained(start, agreed.point)
        return agreed.point if tuple(ours) == slave.chain[: len(ours)] else ASK_FOR_CHECKSUMS


def check_pair(ours: bytes, theirs: bytes) -> None:
    """Refused: the stores are of different pairs. `theirs` may be of no pair yet."""
    if theirs not in (NO_ID, ours):
        raise Refused(
            RefusalCode.PAIR,
            f"this store belongs to the pair {ours.hex()}, the other one to {theirs.hex()}: start the slave with an "
            "empty store, or let it follow the master of its own pair",
        )


def agree(master: LogSummary, slave: LogSummary) -> Agreement:
    """Refused: the slave cannot follow."""
    if slave.end == 0:
        return Agreement(0, cuts=False)
    if slave.end < master.first:
        raise Refused(
            RefusalCode.BEHIND,
            f"the slave's log ends at {slave.end}, but the master's begins at {master.first}, for it has deleted older "
            "files: start the slave with an empty store, or with a newer backup of the master's",
        )
    point: int | None = min(master.end, slave.end)
    if master.epochs and slave.epochs:
        point = common_point(_whole(master.epochs), master.end, _whole(slave.epochs), slave.end)
    if point is None or point < master.first:
        raise Refused(
            RefusalCode.DIVERGED,
            "the two logs have no epoch in common: decide which of the two is kept, and start the other broker with an "
            "empty store",
        )
    promoted = any(each.start == point and each not in slave.epochs for each in master.epochs)
    if point < slave.end and not promoted:
        raise Refused(
            RefusalCode.DIVERGED,
            f"the slave's log ends at {slave.end}, the master's at {master.end}: it has lost {slave.end - point} "
            "bytes, or is another one; decide which of the two logs is kept",
        )
    return Agreement(point, cuts=point < slave.end)


def _whole(epochs: tuple[Epoch, ...]) -> tuple[Epoch, ...]:
    """With one for what was written before the first one: the checksums state whether it is the same."""
    return epochs if epochs[0].number == 0 or epochs[0].start == 0 else (Epoch(0, 0), *epochs)
