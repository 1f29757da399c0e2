"""Bad networks: half frames, silence, resets, a name server or a broker that is gone and comes back.

A consumer loses nothing and handles nothing twice while it runs. Everything passes a proxy, see `Detour`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import TransportError
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume import concurrent_service
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.rebalance import remote_offset_store
from tests.client.conftest import unique
from tests.client.proxy import Detour
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer
from tests.support.eventually import eventually_async

Topics = Callable[..., str]
EVER = 1 << 30
QUICK = {
    "api_timeout_s": 1.0,
    "connect_timeout_s": 1.0,
    "exception_delay_s": 0.05,
    "heartbeat_s": 1.0,
    "rebalance_s": 1.0,
}


class Consuming:
    """A consumer behind a Detour, and what its handler got."""

    def __init__(self, detour: Detour, topic: str, group: str | None = None, **options: object) -> None:
        wanted: dict[str, object] = {
            "from_where": ConsumeFromWhere.FIRST_OFFSET,
            "pull_suspend_s": 0.5,
            "pull_timeout_s": 1.0,
            "batch_size": 8,
        }
        self.seen: list[bytes] = []
        self.answer: Callable[[ReceivedMessage], object] = lambda message: None
        self.consumer = PushConsumer(
            group or unique("group"),
            options=PushConsumerOptions(**(wanted | options)),  # type: ignore[arg-type]
            client=ClientOptions(name_server=detour.name_server, **QUICK),  # type: ignore[arg-type]
        )
        self.consumer.subscribe(topic, self._handle)

    async def _handle(self, messages: list[ReceivedMessage]) -> object:
        self.seen += [message.body for message in messages]
        return [self.answer(message) for message in messages][-1]

    async def got(self, bodies: list[bytes], seconds: float = 30) -> None:
        """All of them arrived, each once, and nothing else."""
        await eventually_async(lambda: len(self.seen) >= len(bodies), seconds)
        assert Counter(self.seen) == Counter(bodies)


@asynccontextmanager
async def consuming(peer: Peer, topic: str, **options: object) -> AsyncIterator[tuple[Consuming, Detour]]:
    async with Detour(peer) as detour:
        running = Consuming(detour, topic, **options)
        async with running.consumer:
            yield running, detour


def bodies(start: int, count: int, size: int = 300) -> list[bytes]:
    return [b"%06d" % number + b"." * size for number in range(start, start + count)]


# ---- a consumer ----


async def test_frames_in_small_chunks_are_reassembled(
    peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, sent = topics(), bodies(0, 60)
    async with consuming(peer, topic) as (running, detour):
        detour.broker.chunk_bytes = 7
        for queue_id in range(4):
            feeder.feed(topic, sent[queue_id::4], queue_id=queue_id)
        await running.got(sent)


@pytest.mark.parametrize("cut_at", [1, 3, 4, 9, 200, 5000])
async def test_a_connection_cut_within_an_answer_costs_a_consumer_nothing(
    cut_at: int, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, sent = topics(), bodies(0, 200)
    async with consuming(peer, topic) as (running, detour):
        await eventually_async(lambda: len(running.consumer.queues) == 5)
        accepted = detour.broker.accepted
        detour.broker.answer_bytes = cut_at
        for queue_id in range(4):
            feeder.feed(topic, sent[queue_id::4], queue_id=queue_id)
        await running.got(sent)
        assert detour.broker.accepted > accepted


async def test_resets_again_and_again_under_load(peer: Peer, topics: Topics, feeder: RawProducer) -> None:
    topic, sent = topics(), bodies(0, 600)
    async with consuming(peer, topic) as (running, detour):
        await eventually_async(lambda: len(running.consumer.queues) == 5)
        for at in range(0, 600, 60):
            await asyncio.to_thread(feeder.feed, topic, sent[at : at + 60], queue_id=at % 4)
            detour.broker.reset()
        await running.got(sent)


async def test_silence_ends_in_recovery(peer: Peer, topics: Topics, feeder: RawProducer) -> None:
    """Longer than a pull may take, so that later answers find no waiter."""
    topic, sent = topics(), bodies(0, 40)
    async with consuming(peer, topic) as (running, detour):
        feeder.feed(topic, sent[:20])
        await running.got(sent[:20])
        detour.broker.flowing.clear()
        feeder.feed(topic, sent[20:])
        await asyncio.sleep(2.5)
        assert len(running.seen) == 20
        detour.broker.flowing.set()
        await running.got(sent)


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_broker_that_is_gone_and_back_is_consumed_on(
    orderly: bool, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, sent = topics(), bodies(0, 60)
    async with consuming(peer, topic, orderly=orderly) as (running, detour):
        feeder.feed(topic, sent[:20])
        await running.got(sent[:20])
        await detour.broker.shut()
        feeder.feed(topic, sent[20:40])
        await asyncio.sleep(1.5)
        assert len(running.seen) == 20
        await detour.broker.open()
        feeder.feed(topic, sent[40:], queue_id=1)
        await running.got(sent)


async def test_without_a_name_server_a_running_consumer_goes_on(
    peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, sent = topics(), bodies(0, 40)
    async with consuming(peer, topic) as (running, detour):
        feeder.feed(topic, sent[:20])
        await running.got(sent[:20])
        await detour.naming.shut()
        feeder.feed(topic, sent[20:])
        await running.got(sent)


async def test_a_start_without_a_name_server_is_refused_and_may_be_tried_again(
    peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic = topics()
    feeder.feed(topic, [b"a"])
    async with Detour(peer) as detour:
        await detour.naming.shut()
        running = Consuming(detour, topic)
        with pytest.raises(TransportError):
            await running.consumer.start()
        await detour.naming.open()
        async with running.consumer:
            await running.got([b"a"])


async def test_what_cannot_be_sent_back_is_tried_again_by_the_same_consumer(
    peer: Peer, topics: Topics, feeder: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the send-back nor publishing works: the message stays here, and the offset before it."""
    monkeypatch.setattr(concurrent_service, "RESUBMIT_S", 0.1)
    topic = topics(queues=1)
    async with consuming(peer, topic) as (running, detour):
        failures: list[int] = []

        def answer(message: ReceivedMessage) -> object:
            if not message.reconsume_times:
                detour.broker.reset_requests = EVER
                detour.broker.reset()
            else:
                detour.broker.reset_requests = 0
            failures.append(message.reconsume_times)
            return message.reconsume_times > 0

        running.answer = answer
        feeder.feed(topic, [b"stubborn"])
        await eventually_async(lambda: len(failures) == 2, 30)
        assert failures == [0, 1]
        feeder.feed(topic, [b"next"])
        await eventually_async(lambda: len(running.seen) == 3, 30)


async def test_a_broker_that_accepts_and_resets_is_not_connected_to_in_a_loop(
    peer: Peer, topics: Topics, feeder: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy without a backend does: a heartbeat opens no other, and a last offset is sent again after a pause."""
    monkeypatch.setattr(remote_offset_store, "FINAL_S", 1)
    topic = topics(queues=1)
    async with consuming(peer, topic) as (running, detour):
        feeder.feed(topic, [b"before"])
        await eventually_async(lambda: len(running.seen) == 1, 30)
        detour.broker.reset_requests = EVER
        detour.broker.reset()
        before = detour.broker.accepted
        await asyncio.sleep(1)
        assert 1 <= detour.broker.accepted - before <= 60
        before = detour.broker.accepted
    assert detour.broker.accepted - before <= 60


@pytest.mark.parametrize("fault", ["gone", "silent"])
async def test_a_close_without_a_reachable_broker_ends(
    fault: str, peer: Peer, topics: Topics, feeder: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be reported is consumed again by the next member: twice at most, never lost."""
    monkeypatch.setattr(remote_offset_store, "TIMEOUT_S", 1)
    topic, group, sent = topics(queues=1), unique("group"), bodies(0, 40)
    async with Detour(peer) as detour:
        first = Consuming(detour, topic, group)
        await first.consumer.start()
        feeder.feed(topic, sent)
        await first.got(sent)
        if fault == "gone":
            await detour.broker.shut()
        else:
            detour.broker.flowing.clear()
        async with asyncio.timeout(15):
            await first.consumer.close()
    async with consuming(peer, topic, group=group) as (second, _):
        feeder.feed(topic, [b"last"])
        await eventually_async(lambda: b"last" in second.seen, 30)
    assert set(sent) | {b"last"} == set(first.seen) | set(second.seen)
