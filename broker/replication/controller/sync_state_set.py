"""SyncStateSet: the brokers whose copies count under a controller, as the master keeps the set. Pure; loop thread.

The set belongs to the controller: a change is asked of it (ALTER_SYNC_STATE_SET 1001), and until it answers, both the
old set and the one that is asked for count. Brokers are numbers that the controller gave them. Apache:
AutoSwitchHAService.
"""

from collections.abc import Iterable, Mapping

from firearrow.broker.replication.log.confirmed_offset import (
    EVERYTHING,
    Confirmed,
    CopiesNeeded,
    confirmed_by,
)

MEMBERS_MAX = 1024


class SyncStateSet:
    """`own`: the master's number. Times are the loop's, in s."""

    def __init__(self, own: int, members: Iterable[int], version: int) -> None:
        self._own = own
        self.version = version
        """Of the set, as the controller counts its changes (syncStateSetEpoch)."""
        self.members = frozenset(members) | {own}
        self._asked: frozenset[int] | None = None
        self._caught_up: dict[int, float] = {}
        self._ends: dict[int, int] = {}

    @property
    def counted(self) -> frozenset[int]:
        """Those whose copies count now."""
        return self.members if self._asked is None else self.members | self._asked

    def replace(self, members: Iterable[int], version: int) -> bool:
        """The set that the controller reports. False: it is not newer than what is known."""
        if version <= self.version:
            return False
        self.members, self.version, self._asked = frozenset(members) | {self._own}, version, None
        for number in self._ends.keys() - self.members:
            del self._ends[number]
        return True

    def ask_for(self, members: frozenset[int]) -> None:
        """The controller is asked for this set; it may be the set until the controller reports which one is."""
        self._asked = members if self._asked is None else self._asked | members

    def settle(self) -> None:
        """The controller reports that nothing has changed: what it was asked for does not count."""
        self._asked = None

    # ---- the slaves ----

    def caught_up(self, number: int, at: float) -> None:
        """The slave had all of the log at this time."""
        self._caught_up[number] = max(at, self._caught_up.get(number, at))

    def acknowledged(self, number: int, end: int) -> None:
        """Also of slaves that are not in the set."""
        self._ends[number] = end

    def left(self, number: int) -> frozenset[int] | None:
        """Its connection ended: the set to ask for; None: it was not in the set."""
        self._caught_up.pop(number, None)
        return self.members - {number} if number in self.members else None

    def shrunk(self, now: float, within_s: float) -> frozenset[int] | None:
        """The set without the slaves that were not caught up within this time, or never connected; None: that changes
        nothing."""
        kept = {
            number
            for number in self.members
            if number == self._own or now - self._caught_up.get(number, now - within_s - 1) <= within_s
        }
        return None if kept == self.members else frozenset(kept)

    # ---- what is confirmed ----

    def confirmed(self, copies: CopiesNeeded, connected: int, *, all_members: bool) -> Confirmed:
        """`all_members`: allAckInSyncStateSet. A member that is away holds everything up until the controller has taken
        it out of the set; of one that never acknowledged, nothing is known."""
        others = self.counted - {self._own}
        refuses = len(self.members) < copies.least
        ends = [self._ends.get(number, 0) for number in others]
        if all_members:
            least = min(ends, default=EVERYTHING)
            return Confirmed(least, least, 0, refuses)
        found = confirmed_by(ends, connected, CopiesNeeded(copies.wanted, 1))
        return found._replace(refuses=refuses)

    def ends(self) -> Mapping[int, int]:
        """Where the log of each slave ends, as it reported last."""
        return self._ends
