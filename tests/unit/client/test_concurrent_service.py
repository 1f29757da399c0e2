"""The concurrent service: the effect of each result, which offset is stored, and what waits for what."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.hooks import ConsumeContext
from firearrow.client.consume.consume_results import (
    Accepted,
    ConsumeResult,
    DeadLetter,
    Retry,
    Suspend,
)
from firearrow.client.consume.listeners import Handler
from tests.client.concurrent_harness import QUEUE, RETRIES, ConcurrentHarness, Gate, answering
from tests.client.records import received
from tests.client.services import settled
from tests.support.eventually import eventually_async


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS, Accepted(99)])
async def test_success_removes_the_messages_and_stores_the_next_offset_upwards_only(answer: object) -> None:
    harness = ConcurrentHarness(answering(answer))
    await harness.pulled(10, 11, 12)
    assert harness.offsets.updates == [(QUEUE, 13, True)]
    assert (harness.stats.good, harness.stats.bad, harness.process_queue.message_count) == (3, 0, 0)
    assert harness.back.given == []


@pytest.mark.parametrize(
    ("answer", "level"),
    [(False, 0), (ConsumeResult.RETRY_LATER, 0), (Retry(), 0), (Retry(5), 5), (DeadLetter(), -1)],
)
async def test_a_failed_batch_goes_back_with_the_delay_that_the_handler_chose(
    answer: object, level: int
) -> None:
    harness = ConcurrentHarness(answering(answer))
    await harness.pulled(10, 11)
    assert harness.back.given == [(10, level), (11, level)]
    assert harness.offsets.last == 12
    assert (harness.stats.good, harness.stats.bad) == (0, 2)


async def test_only_what_comes_after_the_accepted_ones_goes_back() -> None:
    harness = ConcurrentHarness(answering(Accepted(2, delay_level=4)))
    await harness.pulled(10, 11, 12, 13)
    assert harness.back.given == [(12, 4), (13, 4)]
    assert (harness.stats.good, harness.stats.bad, harness.offsets.last) == (2, 2, 14)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()]
)
@pytest.mark.parametrize("plain", [False, True])
async def test_messages_of_a_failing_handler_are_redelivered_and_the_others_go_on(
    error: BaseException, plain: bool
) -> None:
    def plain_handler(messages: list[ReceivedMessage]) -> None:
        raise error

    async def handler(messages: list[ReceivedMessage]) -> None:
        raise error

    harness = ConcurrentHarness(plain_handler if plain else handler, batch_size=1)
    await harness.pulled(10, 11)
    await eventually_async(lambda: harness.process_queue.message_count == 0)
    assert sorted(harness.back.given) == [(10, 0), (11, 0)]
    await harness.service.stop(1)


@pytest.mark.parametrize("answer", ["done", 7, Suspend(1), ConsumeResult.COMMIT, ConsumeResult.SUSPEND, []])
async def test_what_is_no_answer_counts_as_a_failure(answer: object) -> None:
    harness = ConcurrentHarness(answering(answer))
    await harness.pulled(10)
    assert harness.back.given == [(10, 0)]


async def test_the_offset_is_that_of_the_lowest_unfinished_message() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate, batch_size=2)
    await harness.pulled(10, 11, 12, 13, 14)
    assert [offsets for offsets, _ in gate.calls] == [[10, 11], [12, 13], [14]]
    await gate.answer(2)
    await gate.answer(1)
    assert [offset for _, offset, _ in harness.offsets.updates] == [10, 10]
    await gate.answer(0)
    assert harness.offsets.last == 15


async def test_no_more_handlers_run_at_a_time_than_allowed_and_the_next_begins_when_one_ends() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate, batch_size=1, at_a_time=2)
    await harness.pulled(*range(5))
    assert [offsets for offsets, _ in gate.calls] == [[0], [1]]
    await gate.answer(1)
    assert [offsets for offsets, _ in gate.calls] == [[0], [1], [2]]


async def test_what_cannot_be_sent_back_stays_unfinished_and_is_handled_again_after_5_s() -> None:
    harness = ConcurrentHarness(answering(False), takes=lambda message: message.queue_offset != 11)
    messages = await harness.pulled(10, 11, 12)
    assert [offset for _, offset, _ in harness.offsets.updates] == [11]
    assert messages[1].reconsume_times == 1
    assert harness.time.waits == [5.0]
    await harness.time.pass_by(4.9)
    assert len(harness.back.given) == 3
    harness.back.takes = lambda message: True
    await harness.time.pass_by(0.2)
    assert harness.back.given[3:] == [(11, 0)]
    assert harness.offsets.last == 13


async def test_the_result_of_a_queue_given_away_meanwhile_is_ignored() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate)
    await harness.pulled(10)
    harness.process_queue.dropped = True
    await gate.answer(0, False)
    assert (harness.offsets.updates, harness.back.given, harness.stats.bad) == ([], [], 0)


async def test_what_was_not_begun_when_the_queue_was_given_away_is_left_to_others() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate, batch_size=1, at_a_time=1)
    await harness.pulled(10, 11)
    harness.process_queue.dropped = True
    await gate.answer(0)
    assert len(gate.calls) == 1


async def test_broadcasting_drops_what_failed() -> None:
    harness = ConcurrentHarness(answering(Accepted(1)), broadcasting=True)
    await harness.pulled(10, 11)
    assert harness.offsets.last == 12
    assert harness.time.waits == []
    assert (harness.stats.good, harness.stats.bad) == (1, 1)


async def test_messages_expired_meanwhile_are_not_sent_back_again() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate)
    messages = await harness.pulled(10, 11)
    harness.process_queue.remove([messages[0]])
    await gate.answer(0, False)
    assert harness.back.given == [(11, 0)]
    assert harness.offsets.last == 12


async def test_handlers_get_at_most_a_batch_and_a_separate_list() -> None:
    seen: list[list[int]] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.append([message.queue_offset for message in messages])
        messages.clear()

    harness = ConcurrentHarness(handler, batch_size=2)
    await harness.pulled(1, 2, 3)
    assert seen == [[1, 2], [3]]
    assert harness.process_queue.message_count == 0


async def test_a_retried_message_shows_its_own_topic_and_reaches_the_handler_of_that_topic() -> None:
    seen: list[tuple[str, list[str]]] = []

    def handler_of(name: str) -> Handler:
        async def handler(messages: list[ReceivedMessage]) -> None:
            seen.append((name, [message.topic for message in messages]))

        return handler

    harness = ConcurrentHarness({"orders": handler_of("a"), "refunds": handler_of("b")}, queue=RETRIES)
    messages = [
        *received(RETRIES, [0, 1], RETRY_TOPIC="orders"),
        *received(RETRIES, [2], RETRY_TOPIC="refunds"),
        *received(RETRIES, [3], RETRY_TOPIC="orders"),
    ]
    harness.submit(messages)
    await settled()
    assert seen == [("a", ["orders", "orders"]), ("b", ["refunds"]), ("a", ["orders"])]


async def test_a_message_that_no_handler_wants_comes_again() -> None:
    harness = ConcurrentHarness({}, queue=RETRIES)
    await harness.pulled(0, RETRY_TOPIC="gone")
    assert harness.back.given == [(0, 0)]


async def test_a_property_retry_topic_of_an_ordinary_topic_changes_nothing() -> None:
    seen: list[str] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.append(messages[0].topic)

    await ConcurrentHarness(handler).pulled(0, RETRY_TOPIC="elsewhere")
    assert seen == ["orders"]


class Hook:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool, str]] = []

    def before(self, context: ConsumeContext) -> None:
        self.seen.append((context.group, context.status, context.success, context.return_type))
        raise RuntimeError("a hook changes nothing")

    def after(self, context: ConsumeContext) -> None:
        self.seen.append((context.group, context.status, context.success, context.return_type))


@pytest.mark.parametrize(
    ("answer", "status", "success", "return_type"),
    [
        (None, "CONSUME_SUCCESS", True, "SUCCESS"),
        (False, "RECONSUME_LATER", False, "FAILED"),
        (ValueError(), "RECONSUME_LATER", False, "EXCEPTION"),
    ],
)
async def test_hooks_see_how_it_went(answer: object, status: str, success: bool, return_type: str) -> None:
    async def handler(messages: list[ReceivedMessage]) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    hook = Hook()
    harness = ConcurrentHarness(handler, hooks=(hook,))
    await harness.pulled(10)
    assert hook.seen == [("workers", "", False, ""), ("workers", status, success, return_type)]
    assert [topic for topic, _ in harness.stats.calls] == ["orders"]


async def test_a_handler_that_takes_too_long_is_called_time_out() -> None:
    hook = Hook()
    gate = Gate()
    harness = ConcurrentHarness(gate, hooks=(hook,))
    await harness.pulled(10)
    harness.time.advance(900_000)
    await gate.answer(0)
    assert hook.seen[1] == ("workers", "CONSUME_SUCCESS", True, "TIME_OUT")
    assert harness.stats.calls == [("orders", 900)]


async def test_plain_functions_run_in_threads_side_by_side() -> None:
    together = threading.Barrier(3)
    names: set[str] = set()

    def handler(messages: list[ReceivedMessage]) -> None:
        names.add(threading.current_thread().name)
        together.wait(10)

    harness = ConcurrentHarness(handler, batch_size=1, at_a_time=3)
    await harness.pulled(0, 1, 2)
    await eventually_async(lambda: harness.process_queue.message_count == 0)
    assert len(names) == 3
    assert threading.main_thread().name not in names
    await harness.service.stop(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retry(-1),
        lambda: Retry(1001),
        lambda: Accepted(-1),
        lambda: Accepted(1, -2),
        lambda: Suspend(-0.1),
        lambda: Suspend(float("nan")),
    ],
)
def test_impossible_answers_cannot_be_made(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        make()
