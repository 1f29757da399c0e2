"""What is retried, where, and what is not: by codes of a scripted broker."""

import asyncio

import pytest

from firearrow.client.base.errors import BrokerError, ClientError, NoRoute, RequestTimeout, TooManyRequests
from firearrow.client.base.hooks import SendContext
from firearrow.client.base.message import Message, MessageQueue, SendStatus
from firearrow.client.base.options import ProducerOptions
from firearrow.client.send.producer import Producer
from tests.client.scripted import Scripted


def producer(cluster: Scripted, **options: object) -> Producer:
    return Producer("g", name_server=cluster.name_server, options=ProducerOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("code", sorted(ProducerOptions().retry_codes - {1500}))
async def test_codes_that_another_broker_may_not_say_are_tried_there(code: int) -> None:
    async with Scripted("a", "b") as cluster, producer(cluster) as sender:
        for broker in cluster.brokers.values():
            broker.script = [code]
        cluster.brokers["b"].script = []
        for _ in range(4):
            result = await sender.send(Message("t", b"x"))
            assert result.status is SendStatus.SEND_OK
        assert len(cluster.brokers["a"].sent) + len(cluster.brokers["b"].sent) == 5


async def test_a_second_try_goes_to_another_broker_with_the_same_unique_id() -> None:
    async with Scripted("a", "b") as cluster, producer(cluster) as sender:
        for broker in cluster.brokers.values():
            broker.script = [2]
        message = Message("t", b"x")
        await sender.send(message)
        tries = [request for broker in cluster.brokers.values() for request in broker.sent]
        assert len(tries) == 3
        assert len(cluster.brokers["a"].sent) in (1, 2)
        assert all(f"UNIQ_KEY\x01{message.unique_id}\x02" in request.ext["i"] for request in tries)


async def test_other_codes_are_final() -> None:
    async with Scripted("a", "b") as cluster, producer(cluster) as sender:
        for broker in cluster.brokers.values():
            broker.script = [13] * 3
        with pytest.raises(BrokerError, match="MESSAGE_ILLEGAL") as refused:
            await sender.send(Message("t", b"x"))
        assert refused.value.code == 13
        assert sum(len(broker.sent) for broker in cluster.brokers.values()) == 1


async def test_after_the_last_try_the_last_error_is_raised() -> None:
    async with Scripted("a") as cluster, producer(cluster, retries=2) as sender:
        cluster.brokers["a"].script = [1, 2, 14, 0]
        with pytest.raises(BrokerError) as refused:
            await sender.send(Message("t", b"x"))
        assert refused.value.code == 14
        assert len(cluster.brokers["a"].sent) == 3


async def test_submit_does_not_repeat_what_a_broker_refused() -> None:
    async with Scripted("a") as cluster, producer(cluster) as sender:
        cluster.brokers["a"].script = [2]
        with pytest.raises(BrokerError):
            await sender.submit(Message("t", b"x"))
        assert len(cluster.brokers["a"].sent) == 1


async def test_a_chosen_queue_is_tried_once() -> None:
    async with Scripted("a") as cluster, producer(cluster) as sender:
        for chosen in (
            {"selector": lambda queues, message: queues[1]},
            {"queue": (await sender.send(Message("t", b"x"))).queue},
        ):
            cluster.brokers["a"].script = [2]
            with pytest.raises(BrokerError):
                await sender.send(Message("t", b"x"), **chosen)  # type: ignore[arg-type]
        cluster.brokers["a"].script = [2]
        with pytest.raises(BrokerError):
            await sender.send(Message("t", b"x", sharding_key="k"))


async def test_stored_less_safely_is_a_result_unless_configured_otherwise() -> None:
    async with Scripted("a", "b") as cluster:
        async with producer(cluster) as sender:
            for broker in cluster.brokers.values():
                broker.script = [10]
            result = await sender.send(Message("t", b"x"))
            assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
            with pytest.raises(BrokerError):
                result.raise_for_status()
        async with producer(cluster, retry_when_not_stored_ok=True) as sender:
            for broker in cluster.brokers.values():
                broker.script = [11]
            assert (await sender.send(Message("t", b"x"))).status is SendStatus.SEND_OK


async def test_one_time_for_all_tries() -> None:
    async with Scripted("a", "b") as cluster, producer(cluster, attempt_timeout_s=0.2) as sender:
        await asyncio.gather(*(sender.send(Message("t", b"warm")) for _ in range(4)))
        for broker in cluster.brokers.values():
            broker.sent.clear()
            broker.script = [None] * 9
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout):
            await sender.send(Message("t", b"x"), timeout_s=0.5)
        assert 0.35 < asyncio.get_running_loop().time() - began < 2
        assert sum(len(broker.sent) for broker in cluster.brokers.values()) == 3


async def test_a_broker_that_goes_away_is_reached_again() -> None:
    async with Scripted("a") as cluster, producer(cluster) as sender:
        cluster.brokers["a"].script = [1500]
        assert (await sender.send(Message("t", b"x"))).status is SendStatus.SEND_OK
        assert len(cluster.brokers["a"].sent) == 2


@pytest.mark.parametrize("chosen", [False, True])
async def test_a_broker_that_goes_away_took_nothing_so_everybody_may_try_again(chosen: bool) -> None:
    options = {"retries": 0, "async_retries": 0}
    async with Scripted("a") as cluster, producer(cluster, **options) as sender:
        queue = MessageQueue("t", "a", 1) if chosen else None
        for way in (sender.send, sender.submit):
            for _ in range(2):  # the second takes the fast path
                cluster.brokers["a"].script = [1500]
                assert (await way(Message("t", b"x"), queue=queue)).status is SendStatus.SEND_OK
        assert len(cluster.brokers["a"].sent) == 8
        cluster.brokers["a"].script = [1500, 1500]
        with pytest.raises(BrokerError, match="GO_AWAY"):
            await sender.submit(Message("t", b"x"), queue=queue)


async def test_without_a_route_nothing_is_tried() -> None:
    async with Scripted("a") as cluster, producer(cluster) as sender:
        cluster.known = False
        with pytest.raises(NoRoute) as unknown:
            await sender.send(Message("t", b"x"))
        assert unknown.value.code == 10005
        assert cluster.asked == ["t", "TBW102"]


async def test_a_failing_broker_is_avoided_while_fault_tolerance_is_on() -> None:
    async with Scripted("a", "b") as cluster, producer(cluster, latency_faults=True) as sender:
        cluster.brokers["a"].script = [2]
        for _ in range(40):
            await sender.send(Message("t", b"x"))
        assert len(cluster.brokers["a"].sent) <= 2
        assert len(cluster.brokers["b"].sent) >= 39


async def test_a_full_house_waits_or_refuses() -> None:
    async with Scripted("a") as cluster:
        async with producer(cluster, in_flight_max=10) as sender:
            await sender.send(Message("t", b"warm"))
            cluster.brokers["a"].script = [None] * 10
            waiting = [sender.submit(Message("t", b"x"), timeout_s=0.4) for _ in range(10)]
            with pytest.raises(TooManyRequests):
                sender.submit(Message("t", b"x"))
            with pytest.raises(TooManyRequests):
                await sender.send(Message("t", b"x"), timeout_s=0.05)
            late = await asyncio.gather(*waiting, sender.send(Message("t", b"y")), return_exceptions=True)
            assert [type(error) for error in late[:-1]] == [RequestTimeout] * 10
            assert not isinstance(late[-1], BaseException)
        async with producer(cluster, in_flight_max=10, wait_when_full=False) as sender:
            await sender.send(Message("t", b"warm"))
            cluster.brokers["a"].script = [None] * 10
            waiting = [sender.submit(Message("t", b"x"), timeout_s=0.2) for _ in range(10)]
            with pytest.raises(TooManyRequests):
                await sender.send(Message("t", b"x"))
            await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_cancelled_send_releases_its_capacity_and_the_answer_is_dropped() -> None:
    async with Scripted("a") as cluster, producer(cluster, in_flight_max=10) as sender:
        await sender.send(Message("t", b"warm"))
        cluster.brokers["a"].script = [None] * 10
        waiting = [asyncio.create_task(sender.send(Message("t", b"x"), timeout_s=0.3)) for _ in range(10)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await sender.send(Message("t", b"y"))).status is SendStatus.SEND_OK


class Hooked:
    def __init__(self, fails: bool = False) -> None:
        self.seen: list[tuple[str, str, object]] = []
        self.fails = fails

    def before(self, context: SendContext, /) -> None:
        self.seen.append(("before", context.mode, context.queue))
        if self.fails:
            raise ValueError("a hook's own trouble")

    def after(self, context: SendContext, /) -> None:
        self.seen.append(("after", context.mode, context.error or context.result))


class NoBlue:
    def check(self, context: SendContext, /) -> None:
        if context.message.tags == "blue":
            raise PermissionError("not blue")


async def test_hooks_see_every_try_and_may_fail_a_veto_may_not() -> None:
    async with Scripted("a", "b") as cluster:
        quiet, loud = Hooked(), Hooked(fails=True)
        sender = Producer(
            "g", name_server=cluster.name_server, send_hooks=[quiet, loud], forbidden=[NoBlue()]
        )
        async with sender:
            for broker in cluster.brokers.values():
                broker.script = [2]
            await sender.send(Message("t", b"x"))
            assert [seen[0] for seen in quiet.seen] == ["before", "after"] * 3
            assert isinstance(quiet.seen[1][2], BrokerError)
            assert len(loud.seen) == len(quiet.seen)
            with pytest.raises(PermissionError):
                await sender.send(Message("t", b"x", tags="blue"))
            with pytest.raises(PermissionError):
                await sender.send_oneway(Message("t", b"x", tags="blue"))


async def test_an_error_of_a_selector_is_raised() -> None:
    async with Scripted("a") as cluster, producer(cluster) as sender:
        with pytest.raises(ClientError, match="selector") as failed:
            await sender.send(Message("t", b"x"), selector=lambda queues, message: queues[99])
        assert isinstance(failed.value.__cause__, IndexError)
