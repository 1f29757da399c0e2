"""FollowerSession: follows the master's log over its replication port, from our log's end on: connects again and again,
appends what comes, and reports what is durable. The wire that the master speaks is a part of it (`FollowerWire`).
Apache: HAClient. Loop thread.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

from firearrow._native.fastpath.arrivals import ArrivalNotifier
from firearrow._native.replication.follower import Follower, FollowError, RecordDamaged, RecordDoubted
from firearrow._native.store.message_store import PutRefused
from firearrow.broker.base.peer import Address
from firearrow.broker.base.tls import plain_hint
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.log.confirmed_offset import ConfirmedLog
from firearrow.broker.replication.session.master_api import Master, MasterError, Naming
from firearrow.broker.replication.session.slave_status import NO_ADDRESS, NotFollowed, SlaveStatus, State
from firearrow.broker.replication.session.wire import FollowerWire, MasterStream

log = logging.getLogger("firearrow.slave")

CONNECT_S = 3.0
RETRY_S, AGAIN_S, REGISTER_S = 1.0, 0.1, 5.0
DAMAGED_MAX = 3
"""A record that came damaged so often is reported; it is asked for again all the same."""
TICK_S = 0.5
FAULTS = OSError, MasterError, FollowError, PutRefused, MemoryError
"""What master, network and disk may cause."""


class FollowerSession:
    """`naming`: of it, only `refresh` asks for the master's address again. `durable`: up to where our log is as durable
    as flushDiskType states, or was before this connection. `pushes_tables`: the master that is followed, or was last,
    sends its tables by itself."""

    def __init__(
        self, context: BrokerContext, arrivals: ArrivalNotifier, master: Master, naming: Naming
    ) -> None:
        self.loop = context.loop
        self.store = context.store
        self.config = context.config
        self._write_batch = context.write_batch
        self._clock = context.clock
        self.naming = naming
        self.master = master
        self.status = SlaveStatus()
        self.confirmed_log = ConfirmedLog(context.store, arrivals)
        self.follower = Follower(context.store)
        self.durable = 0
        self.pushes_tables = False
        self._wire: FollowerWire | None = None
        self._damaged: dict[int, int] = {}
        self._refreshed_at = -REGISTER_S

    async def run(self, wire: Callable[[], Awaitable[FollowerWire]]) -> None:
        """Follow until cancelled. `wire()`: a new end of the wire that the master speaks. NotFollowed, OSError,
        MasterError."""
        while True:
            pause_s = RETRY_S
            written = self.store.written
            try:
                await self._follow(wire)
            except NotFollowed as error:
                self.status.enter(error.state, str(error))
            except RecordDoubted as error:
                log.info("%s: asking for it again", error)
                pause_s = AGAIN_S
            except RecordDamaged as error:
                pause_s = self._note_damaged(error)
            except Exception as error:  # whatever it is: a slave that no longer follows is of no use
                if not isinstance(error, FAULTS):
                    log.error("the master's log is not followed, for a fault of this broker", exc_info=error)
                state = State.FAILED if self.master.address is not None else State.NO_MASTER
                self.status.enter(state, self._reason(error))
                if self.store.written > written:
                    pause_s = AGAIN_S
            self._refresh_sometimes()
            await asyncio.sleep(pause_s)

    def interrupt(self, error: Exception) -> None:
        """End the connection, if there is one."""
        if self._wire is not None:
            self._wire.stream.fail(error)

    def _note_damaged(self, error: RecordDamaged) -> float:
        """How long to wait before it is asked for again."""
        count = self._damaged.get(error.offset, 0) + 1
        self._damaged = {error.offset: count}
        if count < DAMAGED_MAX:
            log.info("%s: asking for it again", error)
            return AGAIN_S
        reason = (
            f"{error}; it came so {count} times: compare the master's store with `firearrow store verify`"
        )
        self.status.enter(State.CORRUPTED, reason if count == DAMAGED_MAX else self.status.reason)
        return RETRY_S

    def _reason(self, error: Exception) -> str:
        """In the place of an unknown address, why a name server does not report it; and what to do."""
        text = str(error) or type(error).__name__
        if self.master.address is None and (fault := self.naming.fault()):
            text = fault if text == NO_ADDRESS else f"{text}; {fault}"
        options = self.config.options
        return plain_hint(text, tls=options.tls_outgoing or options.tls_outgoing_too)

    def _refresh_sometimes(self) -> None:
        now = self.loop.time()
        if now - self._refreshed_at >= REGISTER_S:
            self._refreshed_at = now
            self.naming.refresh()

    # ---- one connection ----

    async def _follow(self, next_wire: Callable[[], Awaitable[FollowerWire]]) -> None:
        """Until the connection ends, which is always an exception."""
        if self.store.stopped is not None:
            raise NotFollowed(State.FAILED, self.store.stopped)
        if not self.store.writable:
            raise NotFollowed(State.FAILED, "the store takes no messages since the disk failed a write")
        if self.config.options.sync_flush:
            await self._write_batch.settled()  # what we ask for counts as acknowledged
        wire = self._wire = await next_wire()
        self.pushes_tables = wire.pushes_tables
        try:
            await wire.open()
            if self.status.state is not State.CORRUPTED:  # until that record has come
                self.status.enter(State.FOLLOWING)
            await self._watch(wire)
        finally:
            self._wire = None
            self.status.local = None
            self.status.bytes_per_second = 0
            wire.stream.close()
            wire.closed()

    async def connect(
        self, stream: MasterStream, address: Address, context: ssl.SSLContext | None = None
    ) -> None:
        """OSError, TimeoutError."""
        host, port = address
        server = None if context is None else host
        async with asyncio.timeout(CONNECT_S):
            await self.loop.create_connection(lambda: stream, host, port, ssl=context, server_hostname=server)
        self.status.local, self.status.ha_address = stream.local, f"{host}:{port}"

    async def _watch(self, wire: FollowerWire) -> None:
        """Report how far we are and look for silence, until the connection ends."""
        stream, status = wire.stream, self.status
        seen, seen_at = stream.received, self.loop.time()
        while True:
            done, _ = await asyncio.wait([stream.ended], timeout=TICK_S)
            if done:
                raise stream.ended.result()
            options, now, now_ms = self.config.options, self.loop.time(), self._clock.now_ms()
            if now - stream.read_at >= options.ha_housekeeping_ms / 1000:
                raise ConnectionError(f"the master sent nothing for {options.ha_housekeeping_ms} ms")
            if now - stream.written_at >= options.ha_heartbeat_ms / 1000:
                wire.report(self.durable)
            status.bytes_per_second = int((stream.received - seen) / max(now - seen_at, TICK_S))
            seen, seen_at = stream.received, now
            status.last_read_ms = now_ms - int(1000 * (now - stream.read_at))
            status.last_write_ms = now_ms - int(1000 * (now - stream.written_at))
            status.master_end = max(status.master_end, self.store.written)
            await wire.check()

    def note_end(self, end: int) -> None:
        """Of the master's log."""
        self.status.master_end = end
        self.status.master_times.note(end, self.loop.time())

    # ---- what comes in ----

    def append(self) -> None:
        """Append what is whole of what the follower has. FollowError, OSError: close the connection."""
        try:
            while self.follower.append():
                self._commit()
        finally:
            self._commit()
        if self.follower.skipped_lmqs > self.status.skipped_lmqs:
            self._note_skipped_lmqs()

    def _note_skipped_lmqs(self) -> None:
        """Log the first."""
        if self.status.skipped_lmqs == 0:
            log.info(
                "the record before %d is not in the LMQs that it names, for these do not continue there; such records "
                "are counted as skippedLmqs in /status and not logged again",
                self.store.written,
            )
        self.status.skipped_lmqs = self.follower.skipped_lmqs

    def _commit(self) -> None:
        """Write what is staged; report it when it is as durable as flushDiskType states."""
        if self.store.staged_bytes == 0:
            return
        end = self.store.written + self.store.staged_bytes
        queues = self.follower.drain_queues()
        self._write_batch.on_durable(end, partial(self._stored, self._wire, end, queues))
        self._write_batch.commit()

    def _stored(
        self, wire: FollowerWire | None, end: int, queues: list[tuple[str, int]], stored: bool
    ) -> None:
        if not stored:
            if wire is not None:
                wire.stream.fail(OSError("what the master sent could not be written to the disk"))
            return
        self.durable = max(self.durable, end)
        self.confirmed_log.stored(end, queues)
        if wire is not None and wire is self._wire:
            if self.status.state is State.CORRUPTED:
                self.status.enter(State.FOLLOWING)
            wire.report(self.durable)


class MasterEnd:
    """Of one connection, by a wire that carries the log alone: where the master's log ends, as its remoting port
    reports it, and whether all of it comes."""

    def __init__(self, session: FollowerSession) -> None:
        self._session = session
        self._offset = session.follower.next_offset
        self._asked_at = self._moved_at = session.loop.time()

    async def check(self) -> bool:
        """Whether the master was asked this time. ConnectionError: its log ends later, and nothing comes."""
        session, now = self._session, self._session.loop.time()
        options = session.config.options
        if session.follower.next_offset != self._offset:
            self._offset, self._moved_at = session.follower.next_offset, now
        is_due = now - self._asked_at >= options.ha_heartbeat_ms / 1000
        if is_due:
            self._asked_at = now
            try:
                session.note_end((await session.master.log_range()).end)
            except (OSError, MasterError) as error:
                log.debug("the master does not report where its log ends: %s", error)
        is_behind = session.status.master_end > session.store.written
        if is_behind and now - self._moved_at > options.ha_housekeeping_ms / 1000:
            # also if all came: of a record whose size is damaged, the end never comes
            raise ConnectionError(
                f"the master's log ends at {session.status.master_end}, ours at {session.store.written}, and it sends "
                "no more of it"
            )
        return is_due


def check_begin(end: int, begin: int) -> None:
    """NotFollowed: our log ends before the master's begins."""
    if end < begin:
        raise NotFollowed(
            State.BEHIND,
            f"our log ends at {end}, but the master's begins at {begin}, for it has deleted older files: "
            "start this slave with an empty store, or with a newer backup of the master's",
        )


async def check_last_record(session: FollowerSession, begin: int) -> None:
    """NotFollowed: the master's log, from `begin` on, does not have our last record. OSError, MasterError."""
    last = session.follower.last_record()
    if last is None or last[0] < begin:
        return
    offset, record = last
    if not await session.master.has_record(offset, record):
        raise NotFollowed(
            State.DIVERGED,
            f"our last record, at {offset}, is not the master's: the logs are of different brokers, or one was "
            "changed; decide which of the two is kept",
        )
