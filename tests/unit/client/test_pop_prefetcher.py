"""How a consumer that pops waits at several brokers at once; the brokers are fakes."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import BrokerError, NotRunning, RequestTimeout, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.pop.pop_prefetcher import PopPrefetcher, PopSource, ReceiveOptions
from firearrow.client.pop.pop_request import PopRequest
from firearrow.client.rebalance.subscription import Subscription
from tests.client.records import record
from tests.client.services import settled

NOW_MS = 1_000_000


def source(broker: str, *, in_order: bool = False) -> PopSource:
    pop = PopRequest(
        group="G",
        queue=MessageQueue("T", broker, -1),
        subscription=Subscription.of("T"),
        batch=0,
        invisible_ms=0,
        wait_ms=0,
        in_order=in_order,
    )
    return PopSource(pop, "T")


def found(*bodies: bytes) -> RemotingCommand:
    """What a pop of queue 0 returns."""
    records = [record(body, queue_offset=offset) for offset, body in enumerate(bodies)]
    offsets = ",".join(str(offset) for offset in range(len(bodies)))
    ext = {
        "popTime": str(NOW_MS),
        "invisibleTime": "60000",
        "reviveQid": "0",
        "restNum": "0",
        "startOffsetInfo": "0 0 0",
        "msgOffsetInfo": f"0 0 {offsets}",
    }
    return RemotingCommand(0, ext, b"".join(records))


NOTHING = RemotingCommand(210, {"restNum": "0"})
FULL = RemotingCommand(209, {"restNum": "0"})
Answer = RemotingCommand | RocketMQError


class Brokers:
    """Each pop takes the next answer of its broker, or NOTHING; one that holds (`wait`) and a notification wait."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.asked: list[tuple[str, int, int]] = []
        self.attempts: list[str | None] = []
        self.waiting: dict[str, asyncio.Future[RemotingCommand]] = {}

    async def call_master(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_s: float,
        *,
        topic: str | None = None,
        any_code: bool = False,
    ) -> RemotingCommand:
        hold_ms = command.integer("pollTime")
        assert timeout_s == pytest.approx(hold_ms / 1000 + 10, abs=0.01)
        self.asked.append((broker_name, command.code, hold_ms))
        if command.code == RequestCode.POP_MESSAGE:
            self.attempts.append(command.ext.get("attemptId"))
            answers = self.answers.get(broker_name, [])
            if answers or hold_ms == 0:
                answer = answers.pop(0) if answers else NOTHING
                if isinstance(answer, RocketMQError):
                    raise answer
                return answer
        self.waiting[broker_name] = asyncio.get_running_loop().create_future()
        return await self.waiting[broker_name]

    def notify(self, broker: str, has_some: bool = True) -> None:
        self.waiting.pop(broker).set_result(RemotingCommand(0, {"hasMsg": str(has_some).lower()}))

    def pops(self) -> list[str]:
        return [broker for broker, code, _ in self.asked if code == RequestCode.POP_MESSAGE]


def sources_at(
    brokers: Brokers, keep: Callable[[PopSource, ReceivedMessage], bool] = lambda source, message: True
) -> PopPrefetcher:
    return PopPrefetcher(brokers, lambda sys_flag, stored: stored, keep, lambda: NOW_MS)


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


TERMS = ReceiveOptions(batch=2, invisible_ms=60000, wait_s=20)
TWO = [source("a"), source("b")]


async def test_one_broker_alone_holds_the_request() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    waiting = asyncio.create_task(prefetcher.receive([source("a")], TERMS))
    await settled()
    [(_, code, hold_ms)] = brokers.asked
    assert code == RequestCode.POP_MESSAGE
    assert 19000 < hold_ms <= 20000
    brokers.waiting["a"].set_result(found(b"1"))
    assert bodies(await waiting) == [b"1"]
    await prefetcher.close()


async def test_several_brokers_are_asked_in_turn_and_each_is_the_first_once() -> None:
    brokers = Brokers()
    brokers.answers = {"a": [found(b"a1"), found(b"a2")], "b": [found(b"b1")]}
    prefetcher = sources_at(brokers)
    seen = [bodies(await prefetcher.receive(TWO, TERMS)) for _ in range(3)]
    assert sorted(seen) == [[b"a1"], [b"a2"], [b"b1"]]
    assert seen[0] != seen[1]
    assert {hold_ms for _, _, hold_ms in brokers.asked} == {0}
    await prefetcher.close()


async def test_when_all_are_empty_they_are_waited_for_together() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    waiting = asyncio.create_task(prefetcher.receive(TWO, TERMS))
    await settled()
    assert sorted(brokers.waiting) == ["a", "b"]
    brokers.answers["b"] = [found(b"1")]
    brokers.notify("b")
    assert bodies(await waiting) == [b"1"]
    again = asyncio.create_task(prefetcher.receive(TWO, TERMS))
    await settled()
    notifications = [broker for broker, code, _ in brokers.asked if code == RequestCode.NOTIFICATION]
    assert sorted(notifications) == ["a", "b", "b"], "the one that still waits at a is not sent twice"
    again.cancel()
    await prefetcher.close()


async def test_without_time_to_wait_nothing_waits() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    assert await prefetcher.receive(TWO, TERMS._replace(wait_s=0)) == []
    assert sorted(brokers.pops()) == ["a", "b"]
    assert brokers.waiting == {}
    await prefetcher.close()


async def test_one_broker_that_fails_does_not_hold_up_the_others() -> None:
    brokers = Brokers()
    broken = BrokerError(1, "broken", "a")
    brokers.answers = {"a": [broken, broken], "b": [found(b"1")]}
    prefetcher = sources_at(brokers)
    assert bodies(await prefetcher.receive(TWO, TERMS)) == [b"1"]
    assert await prefetcher.receive(TWO, TERMS._replace(wait_s=0)) == []
    brokers.answers = {"a": [broken], "b": [RequestTimeout("late")]}
    with pytest.raises((BrokerError, RequestTimeout)):
        await prefetcher.receive(TWO, TERMS)
    await prefetcher.close()


async def test_what_is_more_than_was_asked_for_comes_next() -> None:
    """An answer to a pop that another caller cancelled may contain more."""
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    first = asyncio.create_task(prefetcher.receive([source("a")], TERMS._replace(batch=3)))
    await settled()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    brokers.waiting["a"].set_result(found(b"1", b"2", b"3"))
    one = TERMS._replace(batch=1, wait_s=0)
    assert [bodies(await prefetcher.receive([source("a")], one)) for _ in range(3)] == [
        [b"1"],
        [b"2"],
        [b"3"],
    ]
    assert brokers.pops() == ["a"]
    await prefetcher.close()


async def test_what_was_kept_for_too_long_is_not_given_out() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    brokers.answers["a"] = [found(b"1", b"2")]
    assert bodies(await prefetcher.receive([source("a")], TERMS._replace(batch=1))) == [b"1"]
    prefetcher._buffered = type(prefetcher._buffered)(
        one._replace(visible_at_s=0) for one in prefetcher._buffered
    )
    assert await prefetcher.receive([source("a")], TERMS._replace(wait_s=0)) == []
    await prefetcher.close()


async def test_a_failed_pop_without_a_waiter_is_forgotten() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    first = asyncio.create_task(prefetcher.receive([source("a")], TERMS))
    await settled()
    first.cancel()
    await settled()
    brokers.waiting["a"].set_exception(RequestTimeout("late"))
    await settled()
    brokers.answers["a"] = [found(b"1")]
    assert bodies(await prefetcher.receive([source("a")], TERMS)) == [b"1"]
    await prefetcher.close()


async def test_what_is_not_wanted_is_passed_over_and_the_rest_waited_for() -> None:
    brokers = Brokers()
    brokers.answers["a"] = [found(b"no"), found(b"yes")]
    prefetcher = sources_at(brokers, lambda source, message: message.body == b"yes")
    assert bodies(await prefetcher.receive([source("a")], TERMS)) == [b"yes"]
    await prefetcher.close()


async def test_a_pop_in_order_that_failed_is_repeated_as_the_same() -> None:
    brokers = Brokers()
    brokers.answers["a"] = [RequestTimeout("late"), found(b"1"), found(b"2")]
    prefetcher = sources_at(brokers)
    ordered = [source("a", in_order=True)]
    with pytest.raises(RequestTimeout):
        await prefetcher.receive(ordered, TERMS)
    for _ in range(2):
        await prefetcher.receive(ordered, TERMS)
    first, second, third = brokers.attempts
    assert first == second
    assert first != third
    assert None not in brokers.attempts
    await prefetcher.close()


async def test_closing_ends_waiting_calls() -> None:
    brokers = Brokers()
    prefetcher = sources_at(brokers)
    alone = asyncio.create_task(prefetcher.receive([source("c")], TERMS))
    both = asyncio.create_task(prefetcher.receive(TWO, TERMS))
    await settled()
    await prefetcher.close()
    for waiting in (alone, both):
        with pytest.raises(NotRunning):
            await asyncio.wait_for(waiting, 5)


async def test_a_broker_where_too_many_wait_is_left_in_peace_for_a_moment() -> None:
    brokers = Brokers()
    brokers.answers["a"] = [FULL]
    prefetcher = sources_at(brokers)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await prefetcher.receive([source("a")], TERMS._replace(wait_s=0.1)) == []
    assert loop.time() - began >= 0.1
    assert brokers.pops() == ["a"]
    await prefetcher.close()
