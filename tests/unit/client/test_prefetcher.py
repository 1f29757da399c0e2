"""Pull tasks: every check before a pull, and which offsets of a queue count as returned and as done."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import BrokerError, OffsetUnknown, RequestTimeout
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MIB, PullConsumerOptions
from firearrow.client.consumers.pull_consumer_runtime import StreamRequestHook
from firearrow.client.pull.prefetcher import PrefetchContext, PrefetchedQueue, Prefetcher
from firearrow.client.pull.pull_request import PullQuery, PullResult, PullStatus, pull_command
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription
from tests.client.records import received
from tests.golden import session
from tests.support.eventually import eventually_async

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)


def found(*offsets: int, body: bytes = b"x", next_offset: int | None = None) -> PullResult:
    messages = received(QUEUE, offsets, body)
    return PullResult(
        PullStatus.FOUND, offsets[-1] + 1 if next_offset is None else next_offset, 0, 1000, messages
    )


def nothing(next_offset: int, status: PullStatus = PullStatus.NO_NEW_MSG) -> PullResult:
    return PullResult(status, next_offset, 0, 1000, [])


class Bench:
    """Answers each queue's pulls from a list; a pull without an answer waits. Sleeps end at once."""

    def __init__(self, options: PullConsumerOptions | None = None) -> None:
        self.answers: dict[MessageQueue, list[PullResult | Exception]] = {QUEUE: [], OTHER: []}
        self.pulls: list[PullQuery] = []
        self.slept: list[float] = []
        self.held: list[asyncio.Future[PullResult]] = []
        self.starts: list[int | Exception] = []
        self.subscription: Subscription | None = Subscription.of("orders", "a || b")
        self.on_sleep: Callable[[], object] = lambda: None
        self.tasks = Prefetcher(
            PrefetchContext(
                options=options or PullConsumerOptions(),
                pull=self._pull,
                subscription=lambda topic: self.subscription,
                start_offset=self._start,
                exception_delay_s=0.9,
                clock=lambda: 7.0,
                sleep=self._sleep,
            )
        )

    def begin(self, *answers: PullResult | Exception, start: int = 10) -> PrefetchedQueue:
        self.answers[QUEUE] += answers
        return self.tasks.begin(QUEUE, ProcessQueue(), start)

    async def _pull(self, pull: PullQuery) -> PullResult:
        self.pulls.append(pull)
        waiting = self.answers[pull.queue]
        if not waiting:
            future = asyncio.get_running_loop().create_future()
            self.held.append(future)
            return await future
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _start(self, queue: MessageQueue) -> int:
        start = self.starts.pop(0)
        if isinstance(start, Exception):
            raise start
        return start

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()
        await asyncio.sleep(0)

    async def take(self, most: int = 10, timeout_s: float = 5) -> list[int]:
        taken = await self.tasks.poll_batch(timeout_s, most)
        return [] if taken is None else [message.queue_offset for message in taken[1]]


async def test_the_request_carries_the_filter_and_may_wait_at_the_broker() -> None:
    bench = Bench()
    bench.begin(found(10))
    await eventually_async(lambda: bench.held)
    first, second = bench.pulls
    assert (first.lite, first.post_expression, first.commit) == (True, True, None)
    assert (first.offset, first.batch, first.suspend_s, first.timeout_s) == (10, 10, 20, 30)
    assert (first.subscription.expression, first.subscription.version) == ("a || b", 0)
    assert second.offset == 11
    await bench.tasks.close()


async def test_requests_are_those_of_apaches_client() -> None:
    """Except the flag of the stream, which is in every request."""
    bench, seen = Bench(), 0
    for frame in session("consumer-lite-pull"):
        if frame.line["name"] != "LITE_PULL_MESSAGE" or frame.raw is None:
            continue
        request, seen = RemotingCommand.decode(frame.raw), seen + 1
        queue = MessageQueue(request.ext["topic"], request.ext["bname"], int(request.ext["queueId"]))
        pulled = PrefetchedQueue(queue, ProcessQueue(), int(request.ext["queueOffset"]))
        pull = bench.tasks._pull(pulled, Subscription.of(queue.topic))
        ours = pull_command(pull, request.ext["consumerGroup"], to_master=True)
        StreamRequestHook().before("", ours)
        assert (ours.code, ours.ext) == (request.code, request.ext)
    assert seen > 4


async def test_sql_keeps_its_version() -> None:
    bench = Bench()
    bench.subscription = Subscription.of("orders", sql="a > 1")
    bench.begin()
    await eventually_async(lambda: bench.held)
    assert bench.pulls[0].subscription.version > 0
    await bench.tasks.close()


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        (PullConsumerOptions(cached_max=1), [found(10, 11)]),
        (PullConsumerOptions(queue_messages_max=2), [found(10, 11, 12)]),
        (PullConsumerOptions(queue_bytes_max=MIB), [found(10, body=bytes(2 * MIB))]),
        (PullConsumerOptions(span_max=5), [found(10, 16)]),
    ],
)
async def test_a_full_queue_waits_until_something_was_polled(
    options: PullConsumerOptions, answers: list[PullResult]
) -> None:
    bench = Bench(options)
    bench.begin(*answers)
    await eventually_async(lambda: len(bench.slept) > 2)
    assert set(bench.slept) == {0.05}
    assert len(bench.pulls) == 1
    await bench.take()
    await eventually_async(lambda: len(bench.pulls) == 2)
    await bench.tasks.close()


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        (PullConsumerOptions(cached_max=2), [found(10, 11)]),
        (PullConsumerOptions(queue_messages_max=2), [found(10, 11)]),
        (PullConsumerOptions(queue_bytes_max=MIB), [found(10, body=bytes(2 * MIB - 1))]),
        (PullConsumerOptions(span_max=5), [found(10, 15)]),
    ],
)
async def test_at_its_limit_a_queue_is_not_full(
    options: PullConsumerOptions, answers: list[PullResult]
) -> None:
    bench = Bench(options)
    bench.begin(*answers)
    await eventually_async(lambda: len(bench.pulls) == 2)
    assert bench.slept == []
    await bench.tasks.close()


async def test_delays_after_errors() -> None:
    bench = Bench()
    bench.begin(BrokerError(215, "busy", "b"), BrokerError(1, "broken", "b"), RequestTimeout("late"))
    await eventually_async(lambda: bench.held)
    assert bench.slept == [0.02, 0.9, 0.9]
    assert {pull.offset for pull in bench.pulls} == {10}
    await bench.tasks.close()


async def test_a_start_that_is_not_known_is_asked_for_again() -> None:
    bench = Bench()
    bench.starts = [OffsetUnknown("?"), 42]
    bench.begin(start=-1)
    await eventually_async(lambda: bench.held)
    assert bench.slept == [3.0]
    assert bench.pulls[0].offset == 42
    await bench.tasks.close()


async def test_without_a_subscription_nothing_is_pulled() -> None:
    bench = Bench()
    wanted, bench.subscription = bench.subscription, None

    def subscribe_again() -> None:
        bench.subscription = wanted

    bench.on_sleep = subscribe_again
    bench.begin()
    await eventually_async(lambda: bench.held)
    assert bench.slept == [0.9]
    await bench.tasks.close()


async def test_what_a_pull_brings_after_the_pause_is_pulled_again_after_it() -> None:
    bench = Bench()
    pulled = bench.begin()
    await eventually_async(lambda: bench.held)
    pulled.resumed.clear()
    bench.held[0].set_result(found(10, 11))
    await asyncio.sleep(0.01)
    assert bench.tasks._batches == type(bench.tasks._batches)()
    bench.answers[QUEUE] += [found(10, 11)]
    pulled.resumed.set()
    assert await bench.take() == [10, 11]
    assert [pull.offset for pull in bench.pulls[:2]] == [10, 10]
    await bench.tasks.close()


async def test_a_paused_queue_rests_until_it_is_resumed() -> None:
    bench = Bench()
    pulled = bench.begin()
    pulled.resumed.clear()
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.pulls == []
    pulled.resumed.set()
    await eventually_async(lambda: bench.held)
    await bench.tasks.close()


async def test_given_out_is_not_yet_done() -> None:
    bench = Bench()
    pulled = bench.begin(found(10, 11, 12))
    assert await bench.take(2) == [10, 11]
    assert (pulled.position, pulled.done) == (12, -1)
    bench.tasks.commit_delivered()
    assert pulled.done == 12
    assert await bench.take(2) == [12]
    assert (pulled.position, pulled.done) == (13, 12)
    assert await bench.take(timeout_s=0) == []
    await bench.tasks.close()


async def test_what_the_filter_left_out_is_passed_over_once_all_is_given_out() -> None:
    bench = Bench()
    pulled = bench.begin(found(10, 11), nothing(50, PullStatus.NO_MATCHED_MSG))
    await eventually_async(lambda: bench.held)
    assert pulled.position == 10
    assert await bench.take() == [10, 11]
    assert pulled.position == 50
    bench.held[0].set_result(nothing(60))
    await eventually_async(lambda: len(bench.held) == 2)
    assert pulled.position == 60
    bench.tasks.commit_delivered()
    assert pulled.done == 60
    await bench.tasks.close()


async def test_an_offset_that_the_broker_does_not_have_is_replaced_by_the_broker_s() -> None:
    bench = Bench()
    pulled = bench.begin(nothing(3, PullStatus.OFFSET_ILLEGAL))
    await eventually_async(lambda: bench.held)
    assert bench.pulls[-1].offset == 3
    bench.tasks.commit_delivered()
    assert pulled.done == 3
    await bench.tasks.close()


async def test_seeking_forgets_what_was_pulled_and_what_is_on_the_way() -> None:
    bench = Bench()
    pulled = bench.begin(found(10, 11))
    await eventually_async(lambda: bench.held)
    bench.answers[QUEUE] = [found(5, 6)]
    bench.tasks.seek(pulled, 5)
    assert bench.held[0].cancelled() or not bench.held[0].done()
    assert await bench.take() == [5, 6]
    assert pulled.position == 7
    assert await bench.take(timeout_s=0) == []
    bench.tasks.commit_delivered()
    assert pulled.done == 7
    await bench.tasks.close()


async def test_a_dropped_queue_gives_nothing_and_does_not_hold_up_the_others() -> None:
    bench = Bench(PullConsumerOptions(cached_max=1))
    pulled = bench.begin(found(10, 11))
    await eventually_async(lambda: bench.slept)
    bench.answers[OTHER] = [found(3)]
    bench.tasks.begin(OTHER, ProcessQueue(), 3)
    bench.tasks.drop(QUEUE)
    assert pulled.process_queue.dropped
    assert await bench.take() == [3]
    await bench.tasks.close()


async def test_closing_wakes_waiting_calls() -> None:
    bench = Bench()
    bench.begin()
    waiting = asyncio.create_task(bench.take(timeout_s=60))
    await eventually_async(lambda: bench.held)
    await bench.tasks.close()
    assert await waiting == []
    assert bench.held[0].cancelled()
