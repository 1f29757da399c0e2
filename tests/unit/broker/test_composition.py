"""The parts of a start, each built from those before it, in this process: what they open is closed in order."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.app import Broker, serving
from firearrow.broker.app.foundation import Foundation, Lifecycle, Start, foundation
from firearrow.broker.app.ports import Ports
from firearrow.broker.app.replication import Controlled, Replicated, Standalone
from firearrow.broker.app.services import Services
from firearrow.broker.app.state import State, load_state
from firearrow.broker.base.config import Config, apply
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.process import StopSignals
from firearrow.broker.base.systemd import PassedSockets
from firearrow.broker.context.broker_context import Restart
from firearrow.broker.replication.failover.role import BrokerRole
from tests.support.client_socket import ClientSocket
from tests.support.requests import send_ext

SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "brokerName": "here",
    "listenPort": "0",
    "bindAddress": "127.0.0.1",
}
SERVICE_THREADS = ("flusher", "saver", "periodic-saver", "retention", "metrics", "group-commit")


def start_on(store: Path, naming: int | None = 0, **settings: str) -> Start:
    loop = asyncio.get_running_loop()
    config = Config(apply(Options(store_root=str(store)), SIZES | settings))
    address = None if naming is None else ("127.0.0.1", naming)
    role = BrokerRole(str(store))
    return Start(loop, config, address, StopSignals(loop), PassedSockets({}), role, None, None, None)


def run(main: Coroutine[Any, Any, None]) -> None:
    """No thread of a service is left, but those of tests before this one."""
    before = set(threading.enumerate())
    try:
        asyncio.run(main)
    finally:
        gc.unfreeze()
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if name.startswith(SERVICE_THREADS)]


@asynccontextmanager
async def broker_on(store: Path, **settings: str) -> AsyncIterator[Broker]:
    async with serving(start_on(store, **settings), Lifecycle()) as broker:
        yield broker


async def ask(broker: Broker, code: int, ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    """Over a socket, in a thread: the loop is the broker's."""

    def asked() -> RemotingCommand:
        with ClientSocket(broker.ports.address) as client:
            return client.ask(code, ext, body)

    return await asyncio.to_thread(asked)


def test_the_parts_are_frozen_values() -> None:
    for part in (Foundation, State, Ports, Services, Standalone, Replicated, Controlled):
        assert is_dataclass(part)
        assert part.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert fields(part)


def test_the_foundation_alone_closes_its_store_cleanly(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(2):
            async with foundation(start_on(tmp_path), Lifecycle()) as base:
                assert (tmp_path / "abort").exists()
                assert not base.killed
                state = load_state(base)
                state.tables.topics.create("T", 4)
            assert not (tmp_path / "abort").exists()
        assert "T" in (tmp_path / "config" / "topics.json").read_text()

    run(main())


@pytest.mark.parametrize(
    ("fault", "reported"), [("", "not closed cleanly and will be recovered"), ("it fails", "^it fails$")]
)
def test_what_cannot_be_saved_keeps_the_journal_valid(tmp_path: Path, fault: str, reported: str) -> None:
    """If the start failed, that is what is reported."""

    async def unsaved(lifecycle: Lifecycle) -> None:
        async with foundation(start_on(tmp_path), lifecycle) as base:
            load_state(base).tables.topics.create("T", 4)
            folder = tmp_path / "config"
            folder.rename(tmp_path / "moved")
            folder.write_text("in the way")
            if fault:
                raise StartError(fault)

    async def main() -> None:
        lifecycle = Lifecycle()
        with pytest.raises(StartError, match=reported):
            await unsaved(lifecycle)
        assert isinstance(lifecycle.unsaved, OSError)
        assert (tmp_path / "abort").exists()

    run(main())


@pytest.mark.parametrize("at", ["broker", "vip", "ha"])
def test_a_start_that_fails_half_way_is_rolled_back(tmp_path: Path, at: str) -> None:
    async def main() -> None:
        async with broker_on(tmp_path / "a", haListenPort="0") as first:
            port = first.ports.address[1]
            taken = {"broker": port, "vip": port + 2, "ha": 0}[at]
            settings = {"listenPort": str(taken)}
            if at == "ha":
                settings["haListenPort"] = str(port)
            with pytest.raises(StartError, match=f"{port}"):
                async with broker_on(tmp_path / "b", **settings):
                    raise AssertionError("it serves")
        assert not (tmp_path / "b" / "abort").exists()
        async with broker_on(tmp_path / "b"):
            pass

    run(main())


def test_two_brokers_serve_on_one_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker_on(tmp_path / "a") as a, broker_on(tmp_path / "b", brokerName="other") as b:
            for broker in (a, b):
                assert (await ask(broker, RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")).code == 0
            assert b.base.store.written == a.base.store.written > 0
            assert [*a.state.tables.topics] != [*b.state.tables.topics]
        for name in ("a", "b"):
            assert not (tmp_path / name / "abort").exists()

    run(main())


def test_the_first_reason_to_start_again_counts() -> None:
    async def main() -> None:
        lifecycle = Lifecycle()
        lifecycle.restart_for(Restart("one"))
        lifecycle.restart_for(Restart("two"))
        assert lifecycle.stopping.is_set()
        assert lifecycle.restart == Restart("one")

    run(main())
