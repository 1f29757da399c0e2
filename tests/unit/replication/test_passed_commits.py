"""ActingMaster: commits of consumers that still take a slave for the master are passed on, and are bounded."""

import asyncio
from types import SimpleNamespace
from unittest.mock import MagicMock

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.replication.failover.acting_master import PASSING_MAX, ActingMaster


async def test_commits_that_wait_for_a_connection_are_bounded() -> None:
    connected, passed = asyncio.Event(), []

    async def tell(code: int, ext: dict[str, str]) -> None:
        await connected.wait()
        passed.append(int(ext["commitOffset"]))

    context = MagicMock(loop=asyncio.get_running_loop())
    context.clock.monotonic_ms.return_value = 0
    master = SimpleNamespace(is_online=True, tell=tell)
    acting = ActingMaster(context, master, MagicMock())  # type: ignore[arg-type]
    acting._act()
    acting._end()
    for number in range(PASSING_MAX + 1):
        acting.committed(
            RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, {"commitOffset": str(number)})
        )
    connected.set()
    await asyncio.gather(*acting._passing)
    assert passed == list(range(PASSING_MAX))
