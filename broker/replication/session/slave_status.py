"""SlaveStatus: how far a slave follows its master, and why not further. Loop thread."""

import logging
from dataclasses import dataclass, field
from enum import StrEnum

from firearrow.broker.base.peer import Address
from firearrow.broker.replication.log.replica_lag import LogTimes

log = logging.getLogger("firearrow.slave")

NO_ADDRESS = "no name server has reported the master's address yet"


class State(StrEnum):
    """`DIVERGED`: our log has records that the master's has not. `BEHIND`: the master has deleted what comes next.
    `CORRUPTED`: the same record came damaged several times. `REFUSED`: one of the two brokers refuses the other.
    `FENCED`: another broker was promoted, and the configuration states that this one is a master."""

    NO_MASTER = "no master"
    FOLLOWING = "following"
    DIVERGED = "diverged"
    BEHIND = "behind the log"
    CORRUPTED = "corrupted"
    REFUSED = "refused"
    FAILED = "failed"
    FENCED = "fenced"


class NotFollowed(Exception):
    """The master's log is not to be followed; the text states why."""

    def __init__(self, state: State, reason: str) -> None:
        super().__init__(reason)
        self.state = state


@dataclass(slots=True)
class SlaveStatus:
    """`reason`: of the state, in a sentence. `master_end`: of the master's log when it was last reported;
    `master_times`: when it ended where. `local`: our end of the replication connection. `skipped_lmqs`: records
    without entries in the LMQs that they name. Times in ms."""

    state: State = State.NO_MASTER
    reason: str = NO_ADDRESS
    master_end: int = 0
    ha_address: str = ""
    last_read_ms: int = 0
    last_write_ms: int = 0
    bytes_received: int = 0
    skipped_lmqs: int = 0
    bytes_per_second: int = 0
    master_flushed: int = 0
    local: Address | None = None
    master_times: LogTimes = field(default_factory=LogTimes)

    def enter(self, state: State, reason: str = "") -> None:
        """Log a change, not each try."""
        if (state, reason) == (self.state, self.reason):
            return
        fresh = state is not self.state
        self.state, self.reason = state, reason
        if state is State.FOLLOWING:
            log.info("following the master's log at %s", self.ha_address)
        elif state in (State.DIVERGED, State.BEHIND, State.CORRUPTED, State.REFUSED):
            log.error("the master's log is not followed (%s): %s", state, reason)
        elif fresh and reason and state is not State.FENCED:  # of that, the start has logged why
            log.warning("the master's log is not followed: %s; trying again", reason)
