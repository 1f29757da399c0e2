"""Fast sends are only an optimisation: each test runs with them and with the full path."""

import asyncio
from asyncio import Future
from collections.abc import Iterator

import pytest

from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConnectionLost,
    MessageRefused,
    RequestTimeout,
)
from firearrow.client.base.message import Message, SendResult, SendStatus, decode_properties
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.fast_send import FastSends, SlowPath
from firearrow.client.send.producer import Producer
from tests.client.scripted import Scripted
from tests.support.eventually import eventually_async


@pytest.fixture(params=["short", "whole"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each message was sent by the fast path."""
    taken: list[bool] = []
    real = FastSends.submit

    def submit(
        self: FastSends, message: Message, timeout_s: float, slow_path: SlowPath
    ) -> Future[SendResult] | None:
        future = real(self, message, timeout_s, slow_path) if request.param == "short" else None
        taken.append(future is not None)
        return future

    monkeypatch.setattr(FastSends, "submit", submit)
    yield taken
    assert any(taken) is (request.param == "short")


async def warm(cluster: Scripted, sender: Producer) -> None:
    """Wait until routes are known and connections open."""
    while not all(broker.sent for broker in cluster.brokers.values()):
        await sender.send(Message("t", b"warm"))
    await sender.send(Message("t", b"warm"))
    for broker in cluster.brokers.values():
        broker.sent.clear()


def sent(cluster: Scripted) -> list[dict[str, str]]:
    return [request.ext for broker in cluster.brokers.values() for request in broker.sent]


@pytest.mark.parametrize("binary", [False, True])
async def test_requests_and_results_are_the_same(binary: bool) -> None:
    client = ClientOptions(binary_headers=binary)
    async with (
        Scripted("a") as cluster,
        Producer("g", name_server=cluster.name_server, client=client) as sender,
    ):
        await warm(cluster, sender)
        message = Message(
            "t", b"\0body", tags="x", keys=["k1", "k2"], properties={"own": "ö"}, flag=-3, delay_level=2
        )
        result = await sender.submit(message)
        request = cluster.brokers["a"].sent[0]
        assert decode_properties(request.ext.pop("i").encode()) == {
            "own": "ö",
            "KEYS": "k1 k2",
            "UNIQ_KEY": message.unique_id,
            "WAIT": "true",
            "TAGS": "x",
            "DELAY": "2",
        }
        queue_id, born_ms = int(request.ext.pop("e")), int(request.ext.pop("g"))
        assert born_ms > 1_700_000_000_000
        assert request.ext == {
            "a": "g",
            "b": "t",
            "c": "TBW102",
            "d": "4",
            "f": "0",
            "h": "-3",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "a",
        }
        assert (request.body, request.serializer, request.flag) == (b"\0body", binary, 0)
        assert (result.status, result.message_id, result.queue_offset) == (
            SendStatus.SEND_OK,
            message.unique_id,
            0,
        )
        assert (result.queue.topic, result.queue.broker_name, result.queue.queue_id) == ("t", "a", queue_id)
        assert (result.offset_message_id, result.region, result.trace_on) == (
            "00" * 16,
            "DefaultRegion",
            True,
        )
        assert result.raise_for_status() is result


async def test_queues_of_all_brokers_take_turns() -> None:
    async with Scripted("a", "b") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        results = await asyncio.gather(*(sender.submit(Message("t", b"x")) for _ in range(8)))
        queues = sorted((result.queue.broker_name, result.queue.queue_id) for result in results)
        assert queues == sorted([("a", 0), ("a", 1), ("b", 0), ("b", 1)] * 2)


async def test_a_refusal_is_tried_elsewhere_by_the_rules_of_the_verb() -> None:
    async with Scripted("a", "b") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        for broker in cluster.brokers.values():
            broker.script = [2]
        message = Message("t", b"x")
        assert (await sender.send(message)).status is SendStatus.SEND_OK
        assert len(sent(cluster)) == 3
        assert all(f"UNIQ_KEY\x01{message.unique_id}\x02" in ext["i"] for ext in sent(cluster))
        for broker in cluster.brokers.values():
            broker.script = [2]
        with pytest.raises(BrokerError, match="as scripted"):
            await sender.submit(Message("t", b"x"))
        assert len(sent(cluster)) == 4


async def test_less_safe_is_reported() -> None:
    async with Scripted("a") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        cluster.brokers["a"].script = [10]
        result = await sender.send(Message("t", b"x"))
        assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert result.message_id


async def test_silence_is_a_time_out() -> None:
    async with Scripted("a") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        cluster.brokers["a"].script = [None] * 9
        with pytest.raises(RequestTimeout):
            await sender.submit(Message("t", b"x"), timeout_s=0.1)
        with pytest.raises(RequestTimeout):
            await sender.send(Message("t", b"x"), timeout_s=0.1)
        cluster.brokers["a"].script = []
        assert (await sender.send(Message("t", b"x"))).status is SendStatus.SEND_OK


async def test_a_lost_connection_is_opened_again() -> None:
    options = ProducerOptions(async_retries=0, retries=0)
    async with (
        Scripted("a") as cluster,
        Producer("g", name_server=cluster.name_server, options=options) as sender,
    ):
        await warm(cluster, sender)
        cluster.brokers["a"].script = [None]
        future = sender.submit(Message("t", b"x"))
        await eventually_async(lambda: cluster.brokers["a"].sent)
        for writer in list(cluster._writers):
            writer.transport.abort()
        with pytest.raises(ConnectionLost):
            await future
        assert (await sender.send(Message("t", b"x"))).status is SendStatus.SEND_OK


async def test_capacity_is_always_released() -> None:
    async with Scripted("a") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        cluster.brokers["a"].script = [0, 13, None, None]
        futures = [sender.submit(Message("t", b"xyz"), timeout_s=0.2) for _ in range(4)]
        futures[3].cancel()
        await asyncio.gather(*futures, return_exceptions=True)
        await eventually_async(lambda: sender._back_pressure.count == 0)
        assert sender._back_pressure.bytes == 0


async def test_what_is_not_ordinary_goes_the_whole_way(way: list[bool]) -> None:
    async with Scripted("a") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        way[:-1], kept = [], way[:]
        for message in (
            Message("t", b"x" * 5000),
            Message("t", b""),
            Message("t", b"x", sharding_key="s"),
            Message("t", b"x", properties={"MSG_TYPE": "reply"}),
            Message("t", b"x", properties={"TRAN_MSG": "true"}),
        ):
            way.clear()
            await sender.submit(message)
            assert way == [False]
        way[:] = kept
        with pytest.raises(MessageRefused, match="property"):
            await sender.send(Message("t", b"x", tags="a\x01"))
        with pytest.raises(ClientError):
            await sender.send(Message("t", b"x", properties={"k": "v" * 40_000}))
        await eventually_async(lambda: sender._back_pressure.count == 0)


async def test_new_routes_are_followed() -> None:
    async with Scripted("a", "b") as cluster, Producer("g", name_server=cluster.name_server) as sender:
        await warm(cluster, sender)
        del cluster.brokers["b"]
        await sender.instance.routes.refresh("t")
        results = await asyncio.gather(*(sender.submit(Message("t", b"x")) for _ in range(8)))
        assert {result.queue.broker_name for result in results} == {"a"}
