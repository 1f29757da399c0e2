"""Extensions: requests that only FireArrow's broker answers."""

import asyncio
import time
from pathlib import Path

import pytest

from firearrow.client import Admin, BrokerError, ClientOptions, Extensions, OnlyFireArrow
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send


async def ask(broker: BrokerProcess) -> None:
    assert broker.name_server is not None
    address, naming = "{}:{}".format(*broker.address), "{}:{}".format(*broker.name_server)
    async with Admin(client=ClientOptions(name_server=naming)) as admin:
        extensions = Extensions(admin)
        status = await extensions.status(address)
        assert status["ready"] is True
        assert status["counts"]["messagesIn"] == 1
        now_ms = time.time_ns() // 1_000_000
        history = await extensions.history(address, now_ms - 60_000, now_ms, "lag")
        assert history["stepMs"] == 10_000
        assert all(name.startswith("lag") for name in history["series"])
        assert (await extensions.history(address))["fromMs"] <= now_ms - 3_590_000
        with pytest.raises(BrokerError, match="from before to"):
            await extensions.history(address, 5, 3)
        with pytest.raises(OnlyFireArrow, match="only FireArrow's does"):
            await extensions.status(naming)  # a name server does not know the request, as Apache's broker


def test_status_and_history(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with broker.connect() as connection:
            send(connection, "T", b"x")
        asyncio.run(ask(broker))
