"""How producers start, fail to start, share an instance, and end."""

import asyncio

import pytest

from firearrow.client.base.errors import ConfigError, NoRoute, NotRunning
from firearrow.client.base.hooks import SendContext
from firearrow.client.base.message import Message, SendStatus
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.base.service_state import ServiceState
from firearrow.client.send.producer import Producer
from tests.client.scripted import Scripted


async def test_a_start_that_failed_is_tried_again() -> None:
    async with Scripted("a") as cluster:
        cluster.known = False
        options = ProducerOptions(topics=("t",), latency_faults=True, fault_detector=True, trace=True)
        sender = Producer("g", name_server=cluster.name_server, options=options)
        assert sender.state is ServiceState.CREATE_JUST
        with pytest.raises(NoRoute):
            await sender.start()
        assert sender.state is ServiceState.START_FAILED
        with pytest.raises(NotRunning):
            await sender.send(Message("t", b"x"))
        assert not sender.end_transaction_hooks, "nothing is left of the first start"
        cluster.known = True
        async with sender:
            assert sender.state is ServiceState.RUNNING
            assert (await sender.send(Message("t", b"x"))).status is SendStatus.SEND_OK
            assert len(sender.end_transaction_hooks) == 1
        assert sender.state is ServiceState.SHUTDOWN_ALREADY
        with pytest.raises(NotRunning):
            await sender.start()


async def test_one_producer_of_a_group_in_an_instance() -> None:
    async with Scripted("a") as cluster:
        shared = ClientOptions(name_server=cluster.name_server)
        async with Producer("g", client=shared) as first:
            second = Producer("g", client=shared)
            with pytest.raises(ConfigError, match="group g"):
                await second.start()
            assert first.instance.producers == {"g": first}
            async with Producer("h", client=shared) as other:
                assert other.instance is first.instance
            assert (await first.send(Message("t", b"x"))).status is SendStatus.SEND_OK
        async with second:
            assert (await second.send(Message("t", b"x"))).status is SendStatus.SEND_OK


async def test_closing_sends_open_batches_and_waiting_messages() -> None:
    async with Scripted("a") as cluster:
        options = ProducerOptions(auto_batch=True, batch_delay_s=30, in_flight_max=10)
        sender = Producer("g", name_server=cluster.name_server, options=options)
        await sender.start()
        await sender.send(Message("t", b"warm", delay_level=1))
        gathers = [sender.submit(Message("t", b"x")) for _ in range(10)]
        waits = asyncio.create_task(sender.send(Message("t", b"y", delay_level=1)))
        await asyncio.sleep(0)
        assert len(cluster.brokers["a"].sent) == 1
        async with asyncio.timeout(5):
            await sender.close()
            results = await asyncio.gather(*gathers, waits)
        assert {result.status for result in results} == {SendStatus.SEND_OK}
        assert len(cluster.brokers["a"].sent) == 3


async def test_an_unused_producer_closes_and_stays_closed() -> None:
    sender = Producer("g", name_server="127.0.0.1:1")
    await sender.close()
    await sender.close()
    with pytest.raises(NotRunning):
        await sender.start()
    with pytest.raises(NotRunning):
        _ = sender.instance


class ClosesIt:
    """A SendHook that closes its producer after the first answer."""

    def __init__(self) -> None:
        self.sender: Producer | None = None
        self.closing: asyncio.Task[None] | None = None

    def before(self, context: SendContext, /) -> None: ...

    def after(self, context: SendContext, /) -> None:
        if self.sender is not None and self.closing is None:
            self.closing = asyncio.create_task(self.sender.close())


async def test_a_close_in_the_middle_of_many_sends_loses_no_answer() -> None:
    hook = ClosesIt()
    async with Scripted("a", "b") as cluster:
        hook.sender = sender = Producer("g", name_server=cluster.name_server, send_hooks=[hook])
        await sender.start()
        environment = [sender.submit(Message("t", b"%d" % number)) for number in range(500)]
        results = await asyncio.gather(*environment)
        assert hook.closing is not None
        await hook.closing
        assert len({result.message_id for result in results}) == 500
        assert sum(len(broker.sent) for broker in cluster.brokers.values()) == 500
