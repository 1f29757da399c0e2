"""The concurrent service: what becomes of each answer, which offset is stored, and what waits for what."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from firearrow._native.store.received import ReceivedMessage
from firearrow.client.errors import ConfigError
from firearrow.client.group.process_queue import ProcessQueue
from firearrow.client.handling.calling import Handlers
from firearrow.client.handling.consume_concurrently import ConcurrentService
from firearrow.client.handling.consuming import (
    Accepted,
    ConsumeResult,
    DeadLetter,
    Retry,
    Suspend,
    concurrent_verdict,
)
from firearrow.client.handling.listeners import Handler, HandlerThreads
from firearrow.client.hooks import ConsumeContext
from firearrow.client.message import MessageQueue
from tests.client.records import received
from tests.client.services import Back, Offsets, Stats, Timeline, calls_of, settled
from tests.client.waiting import wait_until

QUEUE = MessageQueue("orders", "broker-a", 0)
RETRIES = MessageQueue("%RETRY%workers", "broker-a", 0)


class Room:
    """A service over one ProcessQueue."""

    def __init__(
        self,
        handler: Handler | dict[str, Handler],
        *,
        batch_size: int = 4,
        at_a_time: int = 3,
        takes: Callable[[ReceivedMessage], bool] = lambda message: True,
        broadcasting: bool = False,
        hooks: tuple[Any, ...] = (),
        queue: MessageQueue = QUEUE,
    ) -> None:
        self.time, self.offsets, self.stats, self.back = Timeline(), Offsets(), Stats(), Back(takes)
        self.queue, self.process_queue = queue, ProcessQueue(self.time)
        self.threads = HandlerThreads("test", at_a_time)
        self.calls = calls_of(
            handler, concurrent_verdict, self.stats, self.time, threads=self.threads, hooks=hooks
        )
        self.service = ConcurrentService(
            Handlers(
                calls=self.calls,
                threads=self.threads,
                at_a_time=at_a_time,
                batch_size=batch_size,
                later=self.time.later,
            ),
            offsets=self.offsets,
            send_back=None if broadcasting else self.back,
            queues=lambda: [self.process_queue],
            every=self.time.every,
            timeout_s=900,
        )

    async def pulled(self, *offsets: int, **properties: str) -> list[ReceivedMessage]:
        messages = received(self.queue, offsets, **properties)
        self.submit(messages)
        await settled()
        return messages

    def submit(self, messages: list[ReceivedMessage]) -> None:
        dispatch = self.process_queue.put(messages)
        self.service.submit(messages, self.process_queue, self.queue, dispatch)


def answering(answer: object) -> Handler:
    async def handler(messages: list[ReceivedMessage]) -> object:
        return answer

    return handler


@dataclass
class Gate:
    """A handler that waits until each of its calls is let go, with what it shall answer."""

    calls: list[tuple[list[int], asyncio.Future[object]]] = field(default_factory=list)

    async def __call__(self, messages: list[ReceivedMessage]) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.calls.append(([message.queue_offset for message in messages], future))
        return await future

    async def answer(self, call: int, answer: object = None) -> None:
        self.calls[call][1].set_result(answer)
        await settled()


@pytest.mark.parametrize("answer", [None, True, ConsumeResult.SUCCESS, Accepted(99)])
async def test_success_removes_the_messages_and_stores_the_next_offset_upwards_only(answer: object) -> None:
    room = Room(answering(answer))
    await room.pulled(10, 11, 12)
    assert room.offsets.updates == [(QUEUE, 13, True)]
    assert (room.stats.good, room.stats.bad, room.process_queue.message_count) == (3, 0, 0)
    assert room.back.given == []


@pytest.mark.parametrize(
    ("answer", "level"),
    [(False, 0), (ConsumeResult.RETRY_LATER, 0), (Retry(), 0), (Retry(5), 5), (DeadLetter(), -1)],
)
async def test_a_failed_batch_goes_back_with_the_delay_that_the_handler_chose(
    answer: object, level: int
) -> None:
    room = Room(answering(answer))
    await room.pulled(10, 11)
    assert room.back.given == [(10, level), (11, level)]
    assert room.offsets.last == 12
    assert (room.stats.good, room.stats.bad) == (0, 2)


async def test_only_what_comes_after_the_accepted_ones_goes_back() -> None:
    room = Room(answering(Accepted(2, delay_level=4)))
    await room.pulled(10, 11, 12, 13)
    assert room.back.given == [(12, 4), (13, 4)]
    assert (room.stats.good, room.stats.bad, room.offsets.last) == (2, 2, 14)


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()]
)
@pytest.mark.parametrize("plain", [False, True])
async def test_whatever_a_handler_raises_its_messages_come_again_and_the_others_go_on(
    error: BaseException, plain: bool
) -> None:
    def plain_handler(messages: list[ReceivedMessage]) -> None:
        raise error

    async def handler(messages: list[ReceivedMessage]) -> None:
        raise error

    room = Room(plain_handler if plain else handler, batch_size=1)
    await room.pulled(10, 11)
    await wait_until(lambda: room.process_queue.message_count == 0)
    assert sorted(room.back.given) == [(10, 0), (11, 0)]
    await room.service.stop(1)


@pytest.mark.parametrize("answer", ["done", 7, Suspend(1), ConsumeResult.COMMIT, ConsumeResult.SUSPEND, []])
async def test_what_is_no_answer_counts_as_a_failure(answer: object) -> None:
    room = Room(answering(answer))
    await room.pulled(10)
    assert room.back.given == [(10, 0)]


async def test_the_offset_is_that_of_the_lowest_unfinished_message() -> None:
    gate = Gate()
    room = Room(gate, batch_size=2)
    await room.pulled(10, 11, 12, 13, 14)
    assert [offsets for offsets, _ in gate.calls] == [[10, 11], [12, 13], [14]]
    await gate.answer(2)
    await gate.answer(1)
    assert [offset for _, offset, _ in room.offsets.updates] == [10, 10]
    await gate.answer(0)
    assert room.offsets.last == 15


async def test_no_more_handlers_run_at_a_time_than_allowed_and_the_next_begins_when_one_ends() -> None:
    gate = Gate()
    room = Room(gate, batch_size=1, at_a_time=2)
    await room.pulled(*range(5))
    assert [offsets for offsets, _ in gate.calls] == [[0], [1]]
    await gate.answer(1)
    assert [offsets for offsets, _ in gate.calls] == [[0], [1], [2]]


async def test_what_nobody_takes_back_stays_unfinished_and_comes_to_a_handler_again_after_5_s() -> None:
    room = Room(answering(False), takes=lambda message: message.queue_offset != 11)
    messages = await room.pulled(10, 11, 12)
    assert [offset for _, offset, _ in room.offsets.updates] == [11]
    assert messages[1].reconsume_times == 1
    assert room.time.waits == [5.0]
    await room.time.pass_by(4.9)
    assert len(room.back.given) == 3
    room.back.takes = lambda message: True
    await room.time.pass_by(0.2)
    assert room.back.given[3:] == [(11, 0)]
    assert room.offsets.last == 13


async def test_the_result_of_a_queue_given_away_meanwhile_is_ignored() -> None:
    gate = Gate()
    room = Room(gate)
    await room.pulled(10)
    room.process_queue.dropped = True
    await gate.answer(0, False)
    assert (room.offsets.updates, room.back.given, room.stats.bad) == ([], [], 0)


async def test_what_was_not_begun_when_the_queue_was_given_away_is_left_to_others() -> None:
    gate = Gate()
    room = Room(gate, batch_size=1, at_a_time=1)
    await room.pulled(10, 11)
    room.process_queue.dropped = True
    await gate.answer(0)
    assert len(gate.calls) == 1


async def test_broadcasting_drops_what_failed() -> None:
    room = Room(answering(Accepted(1)), broadcasting=True)
    await room.pulled(10, 11)
    assert room.offsets.last == 12
    assert room.time.waits == []
    assert (room.stats.good, room.stats.bad) == (1, 1)


async def test_messages_expired_meanwhile_are_not_sent_back_again() -> None:
    gate = Gate()
    room = Room(gate)
    messages = await room.pulled(10, 11)
    room.process_queue.remove([messages[0]])
    await gate.answer(0, False)
    assert room.back.given == [(11, 0)]
    assert room.offsets.last == 12


async def test_handlers_get_at_most_a_batch_and_a_list_of_their_own() -> None:
    seen: list[list[int]] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.append([message.queue_offset for message in messages])
        messages.clear()

    room = Room(handler, batch_size=2)
    await room.pulled(1, 2, 3)
    assert seen == [[1, 2], [3]]
    assert room.process_queue.message_count == 0


async def test_a_retried_message_shows_its_own_topic_and_reaches_the_handler_of_that_topic() -> None:
    seen: list[tuple[str, list[str]]] = []

    def handler_of(name: str) -> Handler:
        async def handler(messages: list[ReceivedMessage]) -> None:
            seen.append((name, [message.topic for message in messages]))

        return handler

    room = Room({"orders": handler_of("a"), "refunds": handler_of("b")}, queue=RETRIES)
    messages = [
        *received(RETRIES, [0, 1], RETRY_TOPIC="orders"),
        *received(RETRIES, [2], RETRY_TOPIC="refunds"),
        *received(RETRIES, [3], RETRY_TOPIC="orders"),
    ]
    room.submit(messages)
    await settled()
    assert seen == [("a", ["orders", "orders"]), ("b", ["refunds"]), ("a", ["orders"])]


async def test_a_message_that_no_handler_wants_comes_again() -> None:
    room = Room({}, queue=RETRIES)
    await room.pulled(0, RETRY_TOPIC="gone")
    assert room.back.given == [(0, 0)]


async def test_a_property_retry_topic_of_an_ordinary_topic_changes_nothing() -> None:
    seen: list[str] = []

    async def handler(messages: list[ReceivedMessage]) -> None:
        seen.append(messages[0].topic)

    await Room(handler).pulled(0, RETRY_TOPIC="elsewhere")
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
    room = Room(handler, hooks=(hook,))
    await room.pulled(10)
    assert hook.seen == [("workers", "", False, ""), ("workers", status, success, return_type)]
    assert [topic for topic, _ in room.stats.calls] == ["orders"]


async def test_a_handler_that_takes_too_long_is_called_time_out() -> None:
    hook = Hook()
    gate = Gate()
    room = Room(gate, hooks=(hook,))
    await room.pulled(10)
    room.time.now += 900
    await gate.answer(0)
    assert hook.seen[1] == ("workers", "CONSUME_SUCCESS", True, "TIME_OUT")
    assert room.stats.calls == [("orders", 900)]


async def test_plain_functions_run_in_threads_side_by_side() -> None:
    together = threading.Barrier(3)
    names: set[str] = set()

    def handler(messages: list[ReceivedMessage]) -> None:
        names.add(threading.current_thread().name)
        together.wait(10)

    room = Room(handler, batch_size=1, at_a_time=3)
    await room.pulled(0, 1, 2)
    await wait_until(lambda: room.process_queue.message_count == 0)
    assert len(names) == 3
    assert threading.main_thread().name not in names
    await room.service.stop(1)


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
