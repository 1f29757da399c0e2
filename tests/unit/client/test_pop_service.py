"""What a push consumer does with queues that it pops: the loop, and the service."""

import asyncio

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import BrokerError, RequestTimeout, RocketMQError
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import (
    Accepted,
    ConsumeResult,
    DeadLetter,
    Retry,
    concurrent_verdict,
)
from firearrow.client.consume.invoke_listener import Handlers
from firearrow.client.consume.listeners import Handler, HandlerThreads
from firearrow.client.pop.pop_loop import PopLoop, PopLoopContext
from firearrow.client.pop.pop_request import PopRequest, PopResult, PopStatus
from firearrow.client.pop.pop_service import DELAYS_S, PopService, delay_level_above
from firearrow.client.pop.receipt_handles import ReceiptHandle
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription
from tests.client.records import received
from tests.client.services import ManualScheduler, Stats, calls_of, settled

QUEUE = MessageQueue("orders", "broker-a", -1)


def popped(*offsets: int, reconsume_times: int = 0, tag: str = "a") -> list[ReceivedMessage]:
    messages = received(QUEUE, offsets, reconsume_times=reconsume_times, TAGS=tag)
    for message in messages:
        receipt = ReceiptHandle(0, 1, 60000, 0, "0", "broker-a", 2, message.queue_offset)
        message.put_property(Property.POP_CHECK_POINT, receipt.text)
    return messages


def found(messages: list[ReceivedMessage]) -> PopResult:
    return PopResult(PopStatus.FOUND, messages, 0, 1, 60000)


# ---- the loop ----


class LoopBench:
    """A loop whose pops are answered from a list; then the queue is dropped. Sleeps end at once."""

    def __init__(self, options: PushConsumerOptions | None = None, most: int = 16) -> None:
        self.answers: list[PopResult | Exception] = []
        self.pops: list[PopRequest] = []
        self.slept: list[float] = []
        self.submitted: list[list[ReceivedMessage]] = []
        self.unwanted: list[int] = []
        self.is_running, self.is_paused = True, False
        self.now, self.pop_takes_s = 50.0, 1.0
        self.sleeps_max = 3
        self.subscriptions = {"orders": Subscription.of("orders", "a || b")}
        self.process_queue = ProcessQueue(lambda: self.now)
        self.process_queue.last_pop_s = 0
        self.counts: list[int] = []
        self.loop = PopLoop(
            PopLoopContext(
                group="G",
                options=options or PushConsumerOptions(client_rebalance=False),
                pop=self._pop,
                sink=self,
                subscriptions=self.subscriptions,
                running=lambda: self.is_running,
                paused=lambda: self.is_paused,
                stats=self,
                max_reconsume_times=most,
                filters=[self],
                exception_delay_s=0.9,
                clock=lambda: self.now,
                sleep=self._sleep,
            )
        )

    async def run(self) -> "LoopBench":
        await asyncio.wait_for(self.loop.run(QUEUE, self.process_queue), 5)
        return self

    async def _pop(self, pop: PopRequest) -> PopResult:
        self.pops.append(pop)
        if not self.answers:
            self.process_queue.dropped = True
            return PopResult(PopStatus.NOT_FOUND, [])
        self.now += self.pop_takes_s
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.process_queue.dropped |= len(self.slept) >= self.sleeps_max

    def submit(
        self,
        messages: list[ReceivedMessage],
        process_queue: ProcessQueue,
        queue: MessageQueue,
        invisible_ms: int,
    ) -> None:
        assert invisible_ms == 60000
        self.submitted.append(messages)

    def ack_unwanted(self, messages: list[ReceivedMessage], queue: MessageQueue) -> None:
        self.unwanted += [message.queue_offset for message in messages]

    def pull_took(self, topic: str, elapsed_s: float) -> None:
        assert elapsed_s == self.pop_takes_s

    def pulled(self, topic: str, messages: int) -> None:
        self.counts.append(messages)

    def filter(
        self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        return [message for message in messages if message.queue_offset != 99]


async def test_what_a_pop_brings_after_the_pause_is_handed_out_after_it() -> None:
    bench = LoopBench()
    bench.answers = [PopResult(PopStatus.FOUND, received(QUEUE, [1]), invisible_ms=60_000)] * 2

    async def pause_then_pop(pop: PopRequest) -> PopResult:
        bench.is_paused = len(bench.pops) == 0
        return await bench._pop(pop)

    async def resume(seconds: float) -> None:
        assert (seconds, bench.submitted) == (1.0, [])
        bench.is_paused = False

    bench.loop._context.pop, bench.loop._context.sleep = pause_then_pop, resume
    bench.subscriptions["orders"] = Subscription.of("orders")
    await bench.run()
    assert [len(messages) for messages in bench.submitted] == [1, 1]


async def test_what_is_popped_and_visible_to_others_before_the_end_of_the_pause_is_theirs() -> None:
    bench = LoopBench()
    bench.answers = [PopResult(PopStatus.FOUND, received(QUEUE, [1]), invisible_ms=60_000)]

    async def pause_then_pop(pop: PopRequest) -> PopResult:
        bench.is_paused = len(bench.pops) == 0
        return await bench._pop(pop)

    async def resume(seconds: float) -> None:
        bench.now += 60
        bench.is_paused = False

    bench.loop._context.pop, bench.loop._context.sleep = pause_then_pop, resume
    bench.subscriptions["orders"] = Subscription.of("orders")
    await bench.run()
    assert bench.submitted == []


async def test_what_is_asked_for() -> None:
    options = PushConsumerOptions(
        client_rebalance=False, from_where=ConsumeFromWhere.FIRST_OFFSET, pop_batch=7, pop_invisible_s=20
    )
    bench = await LoopBench(options).run()
    [pop] = bench.pops
    assert (pop.batch, pop.invisible_ms, pop.wait_ms) == (7, 20000, 15000)
    assert (pop.from_first, pop.in_order) == (True, False)
    assert (await LoopBench().run()).pops[0].from_first is False
    assert bench.process_queue.last_pop_s == 50.0


async def test_delays_before_a_pop() -> None:
    for change, delay in (
        ({"is_running": False}, 0.9),
        ({"is_paused": True}, 1.0),
        ({"subscriptions": {}}, 0.9),
    ):
        bench = LoopBench()
        for name, value in change.items():
            if name == "subscriptions":
                bench.subscriptions.clear()
            else:
                setattr(bench, name, value)
        await bench.run()
        assert (bench.slept, bench.pops) == ([delay] * 3, [])


async def test_too_many_open_messages_hold_the_queue_up() -> None:
    bench = LoopBench(PushConsumerOptions(client_rebalance=False, pop_queue_max=5))
    bench.process_queue.unacknowledged = 6
    await bench.run()
    assert (bench.slept, bench.pops) == ([0.05] * 3, [])
    bench = LoopBench(PushConsumerOptions(client_rebalance=False, pop_queue_max=5))
    bench.process_queue.unacknowledged = 5
    assert len((await bench.run()).pops) == 1


@pytest.mark.parametrize(
    ("answer", "delays"),
    [
        (PopResult(PopStatus.NOT_FOUND, []), []),
        (PopResult(PopStatus.POLLING_FULL, []), [0.9]),
        (BrokerError(215, "busy", "b"), [0.02]),
        (BrokerError(26, "no group", "b"), [0.9]),
        (RequestTimeout("late"), [0.9]),
        (found([]), []),
    ],
)
async def test_delays_after_a_pop(answer: PopResult | Exception, delays: list[float]) -> None:
    bench = LoopBench()
    bench.answers = [answer]
    assert (await bench.run()).slept == delays
    assert bench.process_queue.unacknowledged == 0


async def test_a_broker_that_did_not_wait_is_not_asked_in_a_hurry() -> None:
    bench = LoopBench()
    bench.pop_takes_s = 0.001
    bench.answers = [PopResult(PopStatus.NOT_FOUND, [])]
    assert (await bench.run()).slept == [0.05]


async def test_what_is_found_is_counted_and_handed_on() -> None:
    bench = LoopBench(PushConsumerOptions(client_rebalance=False, pull_interval_s=0.3))
    messages = popped(1, 2)
    bench.answers = [found(messages)]
    await bench.run()
    assert bench.submitted == [messages]
    assert (bench.process_queue.unacknowledged, bench.counts, bench.slept) == (2, [2], [0.3])


async def test_what_is_not_wanted_is_acknowledged_at_once() -> None:
    """Another tag, what a hook drops, and what was redelivered too often."""
    bench = LoopBench(most=3)
    keep = popped(1) + popped(2, reconsume_times=3)
    drop = popped(3, tag="c") + popped(99) + popped(4, reconsume_times=4)
    bench.answers = [found(drop[:1] + keep + drop[1:])]
    await bench.run()
    assert bench.submitted == [keep]
    assert bench.unwanted == [3, 99, 4]
    assert bench.process_queue.unacknowledged == 2


async def test_what_comes_for_a_queue_that_is_not_ours_any_more_is_left_to_others() -> None:
    bench = LoopBench()
    bench.answers = [found(popped(1))]
    bench.process_queue.dropped = False

    async def pop(pop: PopRequest) -> PopResult:
        bench.process_queue.dropped = True
        return found(popped(1))

    bench.loop._context.pop = pop
    await bench.run()
    assert bench.submitted == []


# ---- the service ----


class Acks:
    """Records the calls; `error` is what brokers answer."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int | None]] = []
        self.error: RocketMQError | None = None
        self.failures = 1 << 30
        """How often each call fails."""

    async def ack(self, topic: str, receipt: ReceiptHandle) -> None:
        self._record(topic, receipt, None)

    async def change_invisible(self, topic: str, receipt: ReceiptHandle, invisible_ms: int) -> ReceiptHandle:
        self._record(topic, receipt, invisible_ms // 1000)
        return receipt

    def _record(self, topic: str, receipt: ReceiptHandle, seconds: int | None) -> None:
        assert topic == "orders"
        self.calls.append((receipt.queue_offset, seconds))
        if self.error is not None and self.calls.count(self.calls[-1]) <= self.failures:
            raise self.error


class ServiceBench:
    def __init__(
        self, handler: Handler, *, batch_size: int = 32, most: int = 16, wall_ms: int = 1000
    ) -> None:
        self.time, self.stats, self.acks = ManualScheduler(), Stats(), Acks()
        self.dead: list[int] = []
        self.dead_letters_work = True
        self.process_queue = ProcessQueue(self.time)
        threads = HandlerThreads("test", 2)
        self.service = PopService(
            Handlers(
                calls=calls_of(handler, concurrent_verdict, self.stats, self.time, threads=threads),
                threads=threads, at_a_time=2, batch_size=batch_size, later=self.time.later,
            ),
            acks=self.acks, max_reconsume_times=most, dead_letter=self._dead_letter, clock_ms=lambda: wall_ms,
        )  # type: ignore[arg-type]  # fmt: skip

    async def _dead_letter(self, message: ReceivedMessage) -> bool:
        self.dead.append(message.queue_offset)
        return self.dead_letters_work

    async def submit(self, messages: list[ReceivedMessage]) -> "ServiceBench":
        self.process_queue.unacknowledged += len(messages)
        self.service.submit(messages, self.process_queue, QUEUE, 60000)
        await settled()
        return self


def answering(answer: object) -> Handler:
    async def handler(messages: list[ReceivedMessage]) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler


@pytest.mark.parametrize(
    ("answer", "calls"),
    [
        (None, [(1, None), (2, None)]),
        (ConsumeResult.RETRY_LATER, [(1, 10), (2, 10)]),
        (ValueError("broken"), [(1, 10), (2, 10)]),
        (Retry(3), [(1, 120), (2, 120)]),
        (Retry(99), [(1, 7200), (2, 7200)]),
        (Accepted(1), [(1, None), (2, 10)]),
        (Accepted(9), [(1, None), (2, None)]),
    ],
)
async def test_what_handlers_return_is_reported_to_the_broker(
    answer: object, calls: list[tuple[int, int | None]]
) -> None:
    bench = await ServiceBench(answering(answer)).submit(popped(1, 2))
    assert bench.acks.calls == calls
    assert bench.process_queue.unacknowledged == 0
    good = sum(seconds is None for _, seconds in calls)
    assert (bench.stats.good, bench.stats.bad) == (good, 2 - good)
    await bench.service.stop(1)


async def test_each_failure_hides_a_message_for_longer() -> None:
    for times, seconds in ((0, 10), (1, 30), (14, 3600), (15, 7200)):
        bench = await ServiceBench(answering(False)).submit(popped(1, reconsume_times=times))
        assert bench.acks.calls == [(1, seconds)]


async def test_what_failed_too_often_waits_as_long_as_it_is_old_and_is_given_up_in_the_end() -> None:
    """It was born at 1000 ms. There is no dead-letter topic in this: Java's client has none either."""
    for age_s, seconds in ((5, 10), (45, 60), (7100, 7200), (9000, 7200), (14400, 7200), (14401, None)):
        bench = ServiceBench(answering(False), most=2, wall_ms=1000 + age_s * 1000)
        await bench.submit(popped(1, reconsume_times=2))
        assert bench.acks.calls == [(1, seconds)], age_s
    assert [delay_level_above(0), delay_level_above(10), delay_level_above(10**6)] == [
        0,
        1,
        len(DELAYS_S) - 1,
    ]


async def test_a_dead_letter_is_acknowledged_once_it_is_safe() -> None:
    bench = await ServiceBench(answering(DeadLetter())).submit(popped(1))
    assert (bench.dead, bench.acks.calls) == ([1], [(1, None)])
    bench = ServiceBench(answering(DeadLetter()))
    bench.dead_letters_work = False
    await bench.submit(popped(1))
    assert (bench.dead, bench.acks.calls) == ([1], [])


async def test_handlers_get_no_more_than_a_batch() -> None:
    sizes: list[int] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))

    await ServiceBench(handler, batch_size=2).submit(popped(1, 2, 3, 4, 5))
    assert sorted(sizes) == [1, 2, 2]


async def test_a_result_counts_only_within_the_invisible_time() -> None:
    """Nor is a handler called for what was already redelivered."""
    gates: list[asyncio.Event] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        gates.append(asyncio.Event())
        await gates[-1].wait()

    for passed_s, calls in ((59.9, [(1, None)]), (60, [])):
        bench = await ServiceBench(handler).submit(popped(1))
        bench.time.advance(passed_s * 1000)
        gates.pop().set()
        await settled()
        assert bench.acks.calls == calls
        assert bench.process_queue.unacknowledged == 0
    bench = ServiceBench(handler, batch_size=1)
    await bench.submit(popped(1, 2, 3))
    assert len(gates) == 2, "two at a time"
    bench.time.advance(61_000)
    for gate in gates:
        gate.set()
    await settled()
    assert len(gates) == 2, "the third is not handled any more"
    assert bench.process_queue.unacknowledged == 0


async def test_the_result_of_a_queue_given_away_counts_no_more() -> None:
    bench = ServiceBench(answering(None))
    bench.process_queue.dropped = True
    await bench.submit(popped(1))
    assert bench.acks.calls == []
    assert bench.stats.calls == []


async def test_a_broker_that_refuses_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = ServiceBench(answering(None))
    bench.acks.error = BrokerError(1, "broken", "b")
    await bench.submit(popped(1))
    assert "will redeliver" in caplog.text
    await bench.service.stop(1)


async def test_stopping_waits_for_handlers_and_their_results() -> None:
    began, gate = asyncio.Event(), asyncio.Event()

    async def handler(messages: list[ReceivedMessage]) -> None:
        began.set()
        await gate.wait()

    bench = ServiceBench(handler, batch_size=1)
    await bench.submit(popped(1, 2, 3))
    await began.wait()
    stopping = asyncio.create_task(bench.service.stop(5))
    await settled()
    gate.set()
    await stopping
    assert sorted(bench.acks.calls) == [(1, None), (2, None)]


@pytest.mark.parametrize(("failures", "lost"), [(1, 0), (2, 2)])
async def test_acknowledgements_at_the_end_get_another_request_or_are_reported(
    failures: int, lost: int, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = asyncio.Event()

    async def handler(messages: list[ReceivedMessage]) -> None:
        await gate.wait()

    bench = ServiceBench(handler)
    bench.acks.error = RequestTimeout("broker-a: no answer in time")
    bench.acks.failures = failures
    await bench.submit(popped(1, 2))
    stopping = asyncio.create_task(bench.service.stop(5))
    await settled()
    gate.set()
    await stopping
    assert sorted(bench.acks.calls) == [(1, None), (1, None), (2, None), (2, None)]
    report = "firearrow: 2 answers for popped messages were not sent, the messages come again: 2 times RequestTimeout"
    assert capsys.readouterr().err.startswith(report) is bool(lost)
