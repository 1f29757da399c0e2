"""TimeoutSync: which slaves count as copies of the log, and up to where it is confirmed by them: by slaveTimeout,
without controllers. Loop thread.

A slave is in sync once it has what the log had at most slaveTimeout ago. One that does not acknowledge a record within
slaveTimeout, or that is haMaxGapNotInSync bytes behind, is out until it is in sync again: one time-out, not one a
message. With ASYNC_MASTER, where no send waits, the time is at least LATE_S.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.replication.log.confirmed_offset import (
    Confirmed,
    CopiesNeeded,
    confirmed_at,
    confirmed_by,
    has_caught_up,
)
from firearrow.broker.replication.session.replica_registry import Replica, ReplicaRegistry
from firearrow.broker.replication.session.wire import SenderWire
from firearrow.broker.services.timers import Periodic

log = logging.getLogger("firearrow.replication")

TICK_S = 0.1
EXPECTED_AFTER_S = 2.0
"""In sync without a break: who connects and leaves keeps no place among REPLICAS_MAX."""
LATE_S = 2.0
"""The log's past is noted once a second, so a lag in time is known no better."""


class TimeoutSync:
    """`copies`: how many are needed."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: MessageStore, config: Config, registry: ReplicaRegistry
    ) -> None:
        self._loop = loop
        self._store = store
        self._config = config
        self._registry = registry
        self._waits = config.options.broker_role == "SYNC_MASTER"
        self.copies = CopiesNeeded()
        self._starts_until = 0.0
        """Until then readers wait for slaves that were there before the start; inf: slaves are not served yet; 0:
        readers wait for those in sync."""

    def start(self, periodic: Periodic, confirm: Callable[[], None], *, hides: bool) -> None:
        """`confirm()`: what `confirmed` returns may have changed; other changes come from the calls below. `hides`:
        readers do not see the log's end, which had too few copies: they wait for all slaves until `serve`."""
        self._starts_until = math.inf if hides else 0.0

        def check() -> None:
            if self._check():
                confirm()

        periodic.every(TICK_S, check)

    def stop(self) -> None: ...

    def serve(self) -> None:
        """Slaves are served from now on."""
        if self._starts_until > 0:  # the start may have taken longer than that
            self._starts_until = self._loop.time() + self._config.options.slave_timeout_ms / 1000

    def configure(self, options: Options) -> None:
        self.copies = CopiesNeeded(
            options.in_sync_replicas,
            options.min_in_sync_replicas,
            options.auto_in_sync_replicas,
            options.acting_master,
        )

    def fault_of(self, replica: Replica) -> str:
        """Why a slave that asks for the log gets none; empty: it gets it."""
        return ""

    def on_acknowledged(self, replica: Replica) -> None:
        written, now, options = self._store.written, self._loop.time(), self._config.options
        wire = replica.wire
        if not replica.in_sync and wire.end >= replica.target:
            replica.in_sync = has_caught_up(
                wire.end, written, since_s=now - replica.target_at, timeout_s=options.slave_timeout_ms / 1000
            )
            self._registry.set_target(replica)
            if replica.in_sync:
                self._registry.expected.in_sync(wire, wire.place)
                self._loop.call_later(EXPECTED_AFTER_S, self._stayed, replica, replica.target_at)
        if replica.in_sync and written - wire.end >= options.ha_gap_bytes:
            self._drop_out(replica, f"is {written - wire.end} bytes behind (haMaxGapNotInSync)")

    def _stayed(self, replica: Replica, since: float) -> None:
        """It was in sync all that time, if it is in sync since then."""
        if replica in self._registry.in_sync and replica.target_at == since:
            self._registry.expected.stayed(replica.wire, replica.wire.place)

    def _drop_out(self, replica: Replica, why: str) -> None:
        replica.in_sync = False
        self._registry.set_target(replica)
        remote = replica.wire.traffic.remote
        log.info("slave %s:%d %s: it does not count until it has caught up", *remote, why)

    def on_left(self, wire: SenderWire) -> None: ...

    def on_expired(self, end: int, timeout_ms: int) -> None:
        """Sends whose records end up to `end` were answered without the copies that they waited for."""
        for replica in self._registry.in_sync:
            if replica.wire.end < end:
                self._drop_out(replica, f"has not acknowledged {end} within {timeout_ms} ms (slaveTimeout)")

    def _check(self) -> bool:
        """Whether what is confirmed may have changed."""
        timeout_ms, now = self._config.options.slave_timeout_ms, self._loop.time()
        if not self._waits:
            self._drop_late(max(timeout_ms, 1000 * LATE_S))
            return False
        if not 0 < self._starts_until <= now:
            return False
        self._starts_until = 0.0
        log.warning(
            "not all slaves were in sync within slaveTimeout=%d ms: readers wait for those that are",
            timeout_ms,
        )
        return True

    def _drop_late(self, within_ms: float) -> None:
        """Slaves that lack what the log had that long ago, while no send waits for them."""
        for replica in self._registry.in_sync:
            if replica.wire.end < self._store.written:
                late_ms = self._registry.lag(replica.wire.end).ms
                if late_ms > within_ms:
                    self._drop_out(replica, f"is {late_ms} ms behind")

    def confirmed(self) -> Confirmed:
        ends = [replica.wire.end for replica in self._registry.in_sync]
        if len(ends) + 1 >= self.copies.wanted:
            self._starts_until = 0.0
        connected = len(self._registry.copying)
        return confirmed_by(ends, connected, self.copies, starts=self._starts_until > 0)

    def confirmed_at(self, wire: SenderWire) -> int:
        """Up to where readers of this slave may see what it has."""
        if not self._waits or self._config.options.read_unconfirmed:
            return self._store.written
        in_sync = self._registry.in_sync
        others = [each.wire.end for each in in_sync if each.wire is not wire]
        found = confirmed_at(others, len(in_sync) + 1, self.copies, starts=self._starts_until > 0)
        return min(found, self._store.written)

    def present(self) -> int:
        """Copies in sync, ours included."""
        return 1 + len(self._registry.in_sync)

    def status(self) -> dict[str, object]:
        """Members of `replication` in /status."""
        return {}
