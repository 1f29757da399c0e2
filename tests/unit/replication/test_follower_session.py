"""A slave follows its master again after whatever ended a connection, also what nothing foresees."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.replication.session import follower_session
from firearrow.broker.replication.session.follower_session import FollowerSession
from firearrow.broker.replication.session.master_api import NO_NAMING, Master
from firearrow.broker.replication.session.slave_status import State
from firearrow.broker.replication.session.wire import FollowerWire
from firearrow.broker.services.timers import watched


async def test_a_fault_of_our_own_is_reported_and_the_slave_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower_session, "RETRY_S", 0.001)
    store = MessageStore.open(tmp_path)
    context: Any = SimpleNamespace(
        loop=asyncio.get_running_loop(),
        store=store,
        config=Config(Options()),
        write_batch=None,
        clock=Clock(),
    )
    connect: Any = None
    arrivals: Any = None
    session = FollowerSession(context, arrivals, Master(connect, ""), NO_NAMING)
    session.master.address = "127.0.0.1", 1
    tried, again = 0, asyncio.Event()

    async def wire() -> FollowerWire:
        nonlocal tried
        tried += 1
        if tried == 3:
            again.set()
            await asyncio.Event().wait()
        raise TypeError("nothing foresees this")

    task = asyncio.ensure_future(session.run(wire))
    try:
        async with asyncio.timeout(5):
            await again.wait()
        assert (session.status.state, session.status.reason) == (State.FAILED, "nothing foresees this")
        assert "TypeError" in caplog.text
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.close()


async def test_a_task_that_ends_by_a_fault_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        raise KeyError("a fault")

    task = watched(run(), "the task")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    assert "the task has ended" in caplog.text
