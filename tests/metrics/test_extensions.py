"""Extensions: status and history of a broker."""

import asyncio
import time
from pathlib import Path

import pytest

from firearrow.client import Admin, BrokerError, ClientError, Extensions
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send


async def ask(broker: BrokerProcess) -> None:
    assert broker.name_server is not None
    async with Admin("{}:{}".format(*broker.name_server)) as admin:
        extensions = Extensions(admin)
        [name] = await admin.calls.masters()
        status = await extensions.status(name)
        assert status["ready"] is True
        assert status["counts"]["messagesIn"] == 1
        now_ms = time.time_ns() // 1_000_000
        history = await extensions.history(name, now_ms - 60_000, now_ms, "lag")
        assert history["stepMs"] == 10_000
        assert all(name.startswith("lag") for name in history["series"])
        assert (await extensions.history(name))["fromMs"] <= now_ms - 3_590_000
        with pytest.raises(BrokerError, match="from before to"):
            await extensions.history(name, 5, 3)
        with pytest.raises(ClientError, match="knows no master"):
            await extensions.status("nowhere")


def test_status_and_history(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with broker.connect() as connection:
            send(connection, "T", b"x")
        asyncio.run(ask(broker))
