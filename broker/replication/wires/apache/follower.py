"""ApacheFollower: the slave's end of Apache's wire: the end of our log (i64) goes out, pieces of the master's come in.

Before each connection the master is asked where its log begins and ends (28) and what it has where our last
record is (33), so that our log that is ahead, too old, or another one is found before a byte is taken.
Loop thread.
"""

from collections.abc import Awaitable, Callable

from firearrow.broker.replication.log.confirmed_offset import EVERYTHING
from firearrow.broker.replication.session.follower_session import (
    FollowerSession,
    MasterEnd,
    check_begin,
    check_last_record,
)
from firearrow.broker.replication.session.master_api import LogRange, MasterError
from firearrow.broker.replication.session.slave_status import NotFollowed, State
from firearrow.broker.replication.session.wire import MasterStream

ACK_BYTES = 8


class ApacheFollower:
    """`is_firearrow()`: whether the master speaks FireArrow's wire now. OSError, MasterError."""

    pushes_tables = False

    def __init__(self, session: FollowerSession, is_firearrow: Callable[[], Awaitable[bool]]) -> None:
        self._session = session
        self._is_firearrow = is_firearrow
        self._end = MasterEnd(session)
        self.stream = MasterStream(session.loop, session.follower.wire, self._received)

    async def open(self) -> None:
        session = self._session
        address = session.master.replication_address()
        if session.config.options.ha_secret:
            raise NotFollowed(
                State.REFUSED,
                "the master is not a FireArrow broker that replicates, so it cannot prove that it has haSecret: remove "
                "haSecret to follow a master of Apache",
            )
        master = await self._check_logs()
        session.durable = session.follower.begin(master.begin, master.end)
        session.confirmed_log.confirmed(EVERYTHING)  # on this wire the master reports nothing of it
        await session.connect(self.stream, address)
        self.report(session.durable)

    async def _check_logs(self) -> LogRange:
        """Compare the two; returns the master's ends. NotFollowed; OSError, MasterError."""
        session = self._session
        master, end = await session.master.log_range(), session.store.written
        session.note_end(master.end)
        if not session.follower.is_empty:
            if end > master.end:
                raise NotFollowed(
                    State.DIVERGED,
                    f"our log ends at {end}, the master's at {master.end}: it has lost {end - master.end} bytes, or is "
                    "another one; decide which of the two logs is kept",
                )
            check_begin(end, master.begin)
        await check_last_record(session, master.begin)
        return master

    def _received(self, length: int) -> None:
        """Append what is whole, also before a fault. FollowError, OSError."""
        session = self._session
        session.status.bytes_received += length
        try:
            session.follower.received(length)
        finally:
            session.append()

    def report(self, durable: int) -> None:
        """At first it is what we ask for."""
        self.stream.write(durable.to_bytes(ACK_BYTES, "big"))

    async def check(self) -> None:
        """A FireArrow master that takes over from its slaves serves FireArrow's wire only after it has."""
        if await self._end.check():
            try:
                is_firearrow = await self._is_firearrow()
            except (OSError, MasterError):
                return
            if is_firearrow:
                raise ConnectionError("the master speaks FireArrow's wire now")

    def closed(self) -> None: ...
