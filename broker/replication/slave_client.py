"""HAClient: follows the master's log over its replication port, from our log's end on.

Before each connection the master is asked where its log begins and ends (28) and what it has where our last
record is (33), so that a log of this slave that is ahead, too old, or another one is found before a byte is taken.
Loop thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from firearrow._native.replication.follower import Follower, FollowError, RecordDamaged, RecordDoubted
from firearrow._native.store.message_store import PutRefused
from firearrow.broker.base.peer import Address
from firearrow.broker.base.tls import plain_hint
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.log.confirmed_offset import EVERYTHING, ConfirmedLog
from firearrow.broker.replication.session.master_api import (
    NO_ADDRESS,
    LogRange,
    Master,
    MasterError,
    MasterStream,
    Naming,
    NotFollowed,
    SlaveStatus,
    State,
)
from firearrow.broker.replication.wires.firearrow.follower import PairClient, spoken_version
from firearrow.broker.replication.wires.firearrow.handshake import LATEST

log = logging.getLogger("firearrow.slave")

CONNECT_S = 3.0
RETRY_S, AGAIN_S, REGISTER_S = 1.0, 0.1, 5.0
DAMAGED_MAX = 3
"""A record that came damaged so often is reported; it is asked for again all the same."""
TICK_S = 0.5
ACK_BYTES = 8


Connection = TypeVar("Connection", bound="ReplicationConnection")


class HAClient:
    """`naming`: of it, only `refresh` asks for the master's address again. `follows_pair`: the master is FireArrow,
    too, and pushes its tables."""

    def __init__(
        self,
        context: BrokerContext,
        master: Master,
        status: SlaveStatus,
        confirmed_log: ConfirmedLog,
        naming: Naming,
        pair: PairClient | None,
        follower: Follower,
    ) -> None:
        self._loop = context.loop
        self._store = context.store
        self._write_batch = context.write_batch
        self._config = context.config
        self._clock = context.clock
        self._master = master
        self._status = status
        self._confirmed_log = confirmed_log
        self._naming = naming
        self._pair = pair
        self._follower = follower
        self.follows_pair = False
        self._connection: ReplicationConnection | None = None
        self._asked = self._durable = 0
        self._damaged: dict[int, int] = {}
        self._refreshed_at = -REGISTER_S

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            pause_s = RETRY_S
            written = self._store.written
            try:
                await self._follow()
            except NotFollowed as error:
                self._status.enter(error.state, str(error))
            except RecordDoubted as error:
                log.info("%s: asking for it again", error)
                pause_s = AGAIN_S
            except RecordDamaged as error:
                pause_s = self._note_damaged(error)
            except (OSError, MasterError, FollowError, PutRefused, MemoryError) as error:
                state = State.FAILED if self._master.address is not None else State.NO_MASTER
                self._status.enter(state, self._reason(error))
                if self._store.written > written:
                    pause_s = AGAIN_S
            self._refresh_sometimes()
            await asyncio.sleep(pause_s)

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
        self._status.enter(State.CORRUPTED, reason if count == DAMAGED_MAX else self._status.reason)
        return RETRY_S

    def _reason(self, error: Exception) -> str:
        """In the place of an unknown address, why a name server does not report it; and what to do."""
        text = str(error) or type(error).__name__
        if self._master.address is None and (fault := self._naming.fault()):
            text = fault if text == NO_ADDRESS else f"{text}; {fault}"
        options = self._config.options
        return plain_hint(text, tls=options.tls_outgoing or options.tls_outgoing_too)

    def _refresh_sometimes(self) -> None:
        now = self._loop.time()
        if now - self._refreshed_at >= REGISTER_S:
            self._refreshed_at = now
            self._naming.refresh()

    # ---- one connection ----

    async def _follow(self) -> None:
        """Until the connection ends, which is always an exception."""
        if self._store.stopped is not None:
            raise NotFollowed(State.FAILED, self._store.stopped)
        if not self._store.writable:
            raise NotFollowed(State.FAILED, "the store takes no messages since the disk failed a write")
        if self._config.options.sync_flush:
            await self._write_batch.settled()  # what we ask for counts as acknowledged
        version = 0 if self._pair is None else await self._pair_version()
        self.follows_pair = version > 0
        address = self._master.replication_address(knows_pair=self.follows_pair)
        if self._pair is not None and self.follows_pair:
            return await self._pair.follow(*address, version)
        if self._config.options.ha_secret:
            raise NotFollowed(
                State.REFUSED,
                "the master is not a FireArrow broker that replicates, so it cannot prove that it has haSecret: remove "
                "haSecret to follow a master of Apache",
            )
        master = await self._check()
        self._asked = self._follower.begin(master.begin, master.end)
        self._durable = self._asked
        self._confirmed_log.confirmed(EVERYTHING)  # on this wire the master reports nothing of it
        make = partial(ReplicationConnection, self._follower, self._received, self._loop.time)
        async with self._connected(make, address) as connection:
            await self._serve(connection)

    async def _pair_version(self) -> int:
        """If no name server takes us, a master at haMasterAddress is tried as a FireArrow broker: it reports its
        address then."""
        if self._master.address is None and self._master.ha_address is not None and self._naming.fault():
            return LATEST
        return await spoken_version(self._master)

    @asynccontextmanager
    async def _connected(self, make: Callable[[], Connection], address: Address) -> AsyncIterator[Connection]:
        """A context in which there is a connection to the master. OSError, TimeoutError."""
        async with asyncio.timeout(CONNECT_S):
            _, connection = await self._loop.create_connection(make, *address)
        self._status.local = connection.local
        self._status.ha_address = "{}:{}".format(*address)
        try:
            yield connection
        finally:
            self._connection = None
            self._status.local = None
            self._status.bytes_per_second = 0
            connection.abort()

    async def _serve(self, connection: "ReplicationConnection") -> None:
        """Report where our log ends, and follow until the connection ends."""
        self._connection = connection
        self._report()
        if self._status.state is not State.CORRUPTED:
            self._status.enter(State.FOLLOWING)
        await self._watch(connection)

    async def _check(self) -> LogRange:
        """Compare the two logs; returns the master's ends. NotFollowed; OSError, MasterError."""
        master, end = await self._master.log_range(), self._store.written
        self._note_end(master.end)
        if not self._follower.is_empty and end > master.end:
            raise NotFollowed(
                State.DIVERGED,
                f"our log ends at {end}, the master's at {master.end}: it has lost {end - master.end} bytes, or is "
                "another one; decide which of the two logs is kept",
            )
        if not self._follower.is_empty and end < master.begin:
            raise NotFollowed(
                State.BEHIND,
                f"our log ends at {end}, but the master's begins at {master.begin}, for it has deleted older files: "
                "start this slave with an empty store, or with a newer backup of the master's",
            )
        await self._compare(master)
        return master

    async def _compare(self, master: LogRange) -> None:
        """Whether the master's log has our last record as well."""
        last = self._follower.last_record()
        if last is None or last[0] < master.begin:
            return
        offset, record = last
        if not await self._master.has_record(offset, record):
            raise NotFollowed(
                State.DIVERGED,
                f"our last record, at {offset}, is not the master's: the logs are of different brokers, or one was "
                "changed; decide which of the two is kept",
            )

    async def _watch(self, connection: "ReplicationConnection") -> None:
        """Report how far we are, look for silence, until the connection ends."""
        seen, offset, seen_at = connection.received, self._follower.next_offset, self._loop.time()
        asked_at = moved_at = self._loop.time()
        while True:
            done, _ = await asyncio.wait([connection.ended], timeout=TICK_S)
            if done:
                raise connection.ended.result()
            options, now = self._config.options, self._loop.time()
            if now - connection.read_at >= options.ha_housekeeping_ms / 1000:
                raise ConnectionError(f"the master sent nothing for {options.ha_housekeeping_ms} ms")
            if now - connection.written_at >= options.ha_heartbeat_ms / 1000:
                self._report()
            self._status.bytes_per_second = int((connection.received - seen) / max(now - seen_at, TICK_S))
            if self._follower.next_offset != offset:
                offset, moved_at = self._follower.next_offset, now
            seen, seen_at = connection.received, now
            self._note_times(connection)
            if now - asked_at >= options.ha_heartbeat_ms / 1000:
                asked_at = now
                await self._ask_end()
                await self._look_for_pair()
            is_behind = self._status.master_end > self._store.written
            if is_behind and now - moved_at > options.ha_housekeeping_ms / 1000:
                # also if all came: of a record whose size is damaged, the end never comes
                raise ConnectionError(
                    f"the master's log ends at {self._status.master_end}, ours at {self._store.written}, and it sends "
                    "no more of it"
                )

    async def _ask_end(self) -> None:
        try:
            self._note_end((await self._master.log_range()).end)
        except (OSError, MasterError) as error:
            log.debug("the master did not report where its log ends: %s", error)

    async def _look_for_pair(self) -> None:
        """A FireArrow master that takes over from its slaves serves our own wire only then. ConnectionError: it
        does."""
        try:
            version = 0 if self._pair is None else await spoken_version(self._master)
        except (OSError, MasterError):
            return
        if version:
            raise ConnectionError("the master speaks the wire of a pair now")

    def _note_end(self, end: int) -> None:
        self._status.master_end = end
        self._status.master_times.note(end, self._loop.time())

    def _note_times(self, connection: "ReplicationConnection") -> None:
        status, now_ms, now = self._status, self._clock.now_ms(), self._loop.time()
        status.last_read_ms = now_ms - int(1000 * (now - connection.read_at))
        status.last_write_ms = now_ms - int(1000 * (now - connection.written_at))
        status.master_end = max(status.master_end, self._store.written)

    # ---- what comes in ----

    def _received(self, length: int) -> None:
        """Append what is whole. FollowError, OSError: close the connection."""
        fault: Exception | None = None
        self._status.bytes_received += length
        try:
            self._follower.received(length)
        except FollowError as error:
            fault = error
        try:
            while self._follower.append():
                self._commit()
        finally:
            self._commit()
        if self._follower.skipped_lmqs > self._status.skipped_lmqs:
            self._note_skipped_lmqs()
        if fault is not None:
            raise fault

    def _note_skipped_lmqs(self) -> None:
        """Log the first."""
        if self._status.skipped_lmqs == 0:
            log.info(
                "the record before %d is not in the LMQs that it names, for these do not continue there; such records "
                "are counted as skippedLmqs in /status and not logged again",
                self._store.written,
            )
        self._status.skipped_lmqs = self._follower.skipped_lmqs

    def _commit(self) -> None:
        """Write what is staged; report it when it is as durable as flushDiskType states."""
        if self._store.staged_bytes == 0:
            return
        end = self._store.written + self._store.staged_bytes
        queues = self._follower.drain_queues()
        self._write_batch.on_durable(end, partial(self._stored, self._connection, end, queues))
        self._write_batch.commit()

    def _stored(
        self,
        connection: "ReplicationConnection | None",
        end: int,
        queues: list[tuple[str, int]],
        stored: bool,
    ) -> None:
        if not stored:
            if connection is not None:
                connection.fail(OSError("what the master sent could not be written to the disk"))
            return
        self._durable = max(self._durable, end)
        self._confirmed_log.stored(end, queues)
        if connection is not None and connection is self._connection:
            if self._status.state is State.CORRUPTED:
                self._status.enter(State.FOLLOWING)
            self._report()

    def _report(self) -> None:
        """Send the end of our log; at first it is what we ask for."""
        if self._connection is not None:
            self._connection.write(max(self._durable, self._asked).to_bytes(ACK_BYTES, "big"))


class ReplicationConnection(MasterStream, asyncio.BufferedProtocol):
    """Apache's wire: bytes go to the follower's buffer, then to `take`."""

    def __init__(
        self, follower: Follower, take: Callable[[int], None], loop_time: Callable[[], float]
    ) -> None:
        super().__init__(loop_time)
        self._buffer = memoryview(follower.wire)
        self._take = take

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.read_at = self._loop_time()
        if self.ended.done():
            return
        self.received += nbytes
        try:
            self._take(nbytes)
        except Exception as error:  # the client tries again
            self.fail(error)

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
