"""The orderly service: one call at a time for each queue, the lock, suspensions, commits by hand, too many failures."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from firearrow._native.store.received import ReceivedMessage
from firearrow.client.group.process_queue import LOCK_LIFE_S, ProcessQueue
from firearrow.client.handling.calling import Handlers
from firearrow.client.handling.consume_orderly import OrderlyService
from firearrow.client.handling.consuming import (
    Accepted,
    ConsumeResult,
    DeadLetter,
    Retry,
    Suspend,
    orderly_verdict,
)
from firearrow.client.handling.listeners import Handler, HandlerThreads
from firearrow.client.handling.send_back import ORDERLY_RECONSUME_MAX
from firearrow.client.message import MessageQueue
from tests.client.records import received
from tests.client.services import Back, Offsets, Stats, Timeline, calls_of, settled

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
RETRIES = MessageQueue("%RETRY%workers", "broker-a", 0)
COMMIT, ROLLBACK = ConsumeResult.COMMIT, ConsumeResult.ROLLBACK
Told = list[tuple[MessageQueue | None, str]]


class Brokers:
    """The broker's side of the locks."""

    def __init__(self, time: Timeline, table: dict[MessageQueue, ProcessQueue]) -> None:
        self.time, self.table, self.gives, self.told = time, table, True, list[str]()
        self.error: Exception | None = None

    async def lock(self, queue: MessageQueue) -> bool:
        self.told.append(f"lock {queue.queue_id}")
        if self.error is not None:
            raise self.error
        if self.gives:
            self.table[queue].locked, self.table[queue].last_lock_s = True, self.time.now
        return self.gives

    async def lock_all(self) -> None:
        self.told.append("lock all")

    async def unlock_all(self) -> None:
        self.told.append("unlock all")


class Room:
    def __init__(
        self,
        handler: Handler | dict[str, Handler],
        *,
        batch_size: int = 2,
        at_a_time: int = 3,
        max_reconsume_times: int = ORDERLY_RECONSUME_MAX,
        takes: Callable[[ReceivedMessage], bool] = lambda message: True,
        broadcasting: bool = False,
        auto_commit: bool = True,
        locked: bool = True,
    ) -> None:
        self.time, self.offsets, self.stats, self.published = Timeline(), Offsets(), Stats(), Back(takes)
        self.table = {queue: ProcessQueue(self.time) for queue in (QUEUE, OTHER, RETRIES)}
        for process_queue in self.table.values():
            process_queue.locked = locked
        self.locks = Brokers(self.time, self.table)
        threads = HandlerThreads("test", at_a_time)
        self.service = OrderlyService(
            Handlers(
                calls=calls_of(handler, orderly_verdict, self.stats, self.time, threads=threads),
                threads=threads,
                at_a_time=at_a_time,
                batch_size=batch_size,
                later=self.time.later,
            ),
            offsets=self.offsets,
            locks=None if broadcasting else self.locks,
            publish=self.published,
            max_reconsume_times=max_reconsume_times,
            every=self.time.every,
            rest_s=1.0,
            auto_commit=auto_commit,
        )

    async def pulled(self, *offsets: int, queue: MessageQueue = QUEUE) -> list[ReceivedMessage]:
        messages = received(queue, offsets)
        await self.submit(messages, queue)
        return messages

    async def submit(self, messages: list[ReceivedMessage], queue: MessageQueue) -> None:
        process_queue = self.table[queue]
        self.service.submit(messages, process_queue, queue, process_queue.put(messages))
        await settled()


@dataclass
class Script:
    """Answers in turn, then success; an error is raised. Keeps the offsets of each call."""

    answers: list[object] = field(default_factory=list)
    calls: list[list[int]] = field(default_factory=list)

    async def __call__(self, messages: list[ReceivedMessage]) -> object:
        self.calls.append([message.queue_offset for message in messages])
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return await answer if isinstance(answer, Awaitable) else answer


async def test_batches_come_in_order_and_each_success_stores_its_offset_even_a_lower_one() -> None:
    script = Script()
    room = Room(script)
    await room.pulled(10, 11, 12)
    assert script.calls == [[10, 11], [12]]
    assert room.offsets.updates == [(QUEUE, 12, False), (QUEUE, 13, False)]
    assert room.stats.good == 3
    assert not room.table[QUEUE].consuming


async def test_one_call_at_a_time_for_a_queue_while_other_queues_go_on() -> None:
    first: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    script = Script([first])
    room = Room(script)
    await room.pulled(1)
    await room.pulled(2)
    await room.pulled(7, queue=OTHER)
    assert script.calls == [[1], [7]]
    first.set_result(None)
    await settled()
    assert script.calls == [[1], [7], [2]]


@pytest.mark.parametrize(
    "answer",
    [
        False,
        ConsumeResult.SUSPEND,
        ConsumeResult.RETRY_LATER,
        ValueError("no"),
        KeyboardInterrupt(),
        Accepted(1),
        Retry(3),
        DeadLetter(),
        "done",
    ],
)
async def test_after_a_failure_the_queue_rests_and_the_same_messages_come_first(answer: object) -> None:
    script = Script([answer])
    room = Room(script)
    messages = await room.pulled(10, 11, 12)
    assert script.calls == [[10, 11]]
    assert [message.reconsume_times for message in messages] == [1, 1, 0]
    assert (room.stats.bad, room.offsets.updates, room.time.waits) == (2, [], [1.0])
    await room.pulled(13)
    assert len(script.calls) == 1
    await room.time.pass_by(1)
    assert script.calls == [[10, 11], [10, 11], [12, 13]]
    assert room.offsets.last == 14


@pytest.mark.parametrize(("asked", "rests"), [(0, 0.01), (0.5, 0.5), (30, 30), (3600, 30)])
async def test_a_handler_may_choose_the_rest_within_10_ms_and_30_s(asked: float, rests: float) -> None:
    room = Room(Script([Suspend(asked)]))
    await room.pulled(10)
    assert room.time.waits == [rests]


async def test_a_queue_that_is_not_locked_waits_for_its_lock() -> None:
    script = Script()
    room = Room(script, locked=False)
    room.locks.gives = False
    await room.pulled(10)
    assert room.time.waits == [0.1]
    await room.time.pass_by(0.1)
    assert room.locks.told == ["lock 0"]
    assert room.time.waits == [3.0]
    room.locks.gives = True
    await room.time.pass_by(3.1)
    assert room.locks.told == ["lock 0", "lock 0"]
    assert script.calls == []
    await room.time.pass_by(0.01)
    assert script.calls == [[10]]


async def test_an_error_while_locking_is_tried_again_later() -> None:
    script = Script()
    room = Room(script, locked=False)
    room.locks.error = OSError("no network")
    await room.pulled(10)
    await room.time.pass_by(0.1)
    assert room.time.waits == [3.0]
    room.locks.error = None
    await room.time.pass_by(4)
    assert script.calls == [[10]]


@pytest.mark.parametrize("lost", ["not ours", "expired"])
async def test_a_lock_lost_between_two_calls_is_asked_for_again_before_the_next(lost: str) -> None:
    script = Script()
    room = Room(script, batch_size=1)

    async def lose() -> None:
        if lost == "expired":
            room.time.now += LOCK_LIFE_S + 1
        else:
            room.table[QUEUE].locked = False

    script.answers = [lose()]
    await room.pulled(10, 11)
    assert script.calls == [[10]]
    assert room.time.waits == [0.01]
    await room.time.pass_by(0.03)
    assert room.locks.told == ["lock 0"]
    assert script.calls == [[10], [11]]


async def test_broadcasting_needs_no_lock() -> None:
    script = Script()
    room = Room(script, broadcasting=True, locked=False)
    await room.service.start()
    await room.pulled(10)
    assert script.calls == [[10]]
    assert room.time.repeated == []
    await room.service.stop(1)
    assert room.locks.told == []


async def test_locks_are_renewed_each_20_s_from_the_first_second_on_and_given_up_at_the_end() -> None:
    room = Room(Script())
    await room.service.start()
    ((seconds, work, first_s),) = room.time.repeated
    assert (seconds, first_s) == (20, 1)
    await work()
    await room.service.stop(1)
    assert room.locks.told == ["lock all", "unlock all"]


async def test_locks_are_given_up_after_the_handlers_ended() -> None:
    last: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    room = Room(Script([last]), batch_size=1)
    await room.pulled(10, 11)
    stopping = asyncio.create_task(room.service.stop(30))
    await settled()
    assert room.locks.told == []
    last.set_result(None)
    await stopping
    assert room.locks.told == ["unlock all"]
    assert room.offsets.updates == [(QUEUE, 11, False)]


async def test_a_queue_gives_others_their_turn_after_a_minute() -> None:
    script = Script()
    room = Room(script, batch_size=1)

    async def take_a_minute() -> None:
        room.time.now += 61
        room.table[QUEUE].last_lock_s = room.time.now

    script.answers = [take_a_minute()]
    await room.pulled(10, 11)
    assert script.calls == [[10]]
    assert room.time.waits == [0.01]
    await room.time.pass_by(0.01)
    assert script.calls == [[10], [11]]


async def test_a_queue_given_away_during_a_call_stores_nothing_and_stops() -> None:
    room = Room(Script(), batch_size=1)

    async def give_away() -> bool:
        room.table[QUEUE].dropped = True
        return False

    script = Script([give_away()])
    room = Room(script, batch_size=1)
    await room.pulled(10, 11)
    assert script.calls == [[10]]
    assert (room.offsets.updates, room.time.waits, room.published.given) == ([], [], [])


async def test_whoever_gives_the_queue_away_waits_for_the_call_that_runs() -> None:
    call: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    script = Script([call])
    room = Room(script, batch_size=1)
    await room.pulled(10, 11)
    lock = room.table[QUEUE].consume_lock
    assert lock.locked()
    room.table[QUEUE].dropped = True
    call.set_result(None)
    await settled()
    assert not lock.locked()
    assert script.calls == [[10]]


# ---- too many failures ----


async def test_who_failed_too_often_is_published_and_the_queue_goes_on() -> None:
    script = Script([False, False, False])
    room = Room(script, batch_size=1, max_reconsume_times=2)
    await room.pulled(10, 11)
    await room.time.pass_by(3)
    assert script.calls == [[10], [10], [10], [11]]
    assert [offset for offset, _ in room.published.given] == [10]
    assert room.offsets.last == 12


async def test_a_publish_that_fails_suspends_once_more() -> None:
    room = Room(Script([False, False]), batch_size=1, max_reconsume_times=0, takes=lambda message: False)
    (message,) = await room.pulled(10)
    assert message.reconsume_times == 1
    assert room.time.waits == [1.0]
    room.published.takes = lambda message: True
    await room.time.pass_by(1)
    assert len(room.published.given) == 2
    assert room.offsets.last == 11


async def test_if_one_of_a_batch_must_be_repeated_all_are() -> None:
    script = Script([False])
    room = Room(script, max_reconsume_times=1)
    messages = received(QUEUE, [10, 11])
    messages[0].reconsume_times = 1
    await room.submit(messages, QUEUE)
    assert [offset for offset, _ in room.published.given] == [10]
    await room.time.pass_by(1)
    assert script.calls == [[10, 11], [10, 11]]


# ---- commits by hand ----


async def test_without_auto_commit_success_only_goes_on_until_a_commit() -> None:
    room = Room(Script([None, None, COMMIT]), batch_size=1, auto_commit=False)
    await room.pulled(10, 11, 12, 13)
    assert room.offsets.updates == [(QUEUE, 13, False)]
    assert room.table[QUEUE].message_count == 1


async def test_a_rollback_brings_back_all_since_the_last_commit() -> None:
    script = Script([COMMIT, None, ROLLBACK])
    room = Room(script, batch_size=1, auto_commit=False)
    await room.pulled(10, 11, 12)
    assert room.time.waits == [1.0]
    await room.time.pass_by(1)
    assert script.calls == [[10], [11], [12], [11], [12]]
    assert room.offsets.last == 11


async def test_without_auto_commit_a_suspension_puts_back_just_its_own_messages() -> None:
    script = Script([None, False, COMMIT])
    room = Room(script, batch_size=1, auto_commit=False)
    await room.pulled(10, 11)
    await room.time.pass_by(1)
    assert script.calls == [[10], [11], [11]]
    assert room.offsets.last == 12


async def test_without_auto_commit_published_messages_wait_for_a_commit_as_others_do() -> None:
    script = Script([False, COMMIT])
    room = Room(script, batch_size=1, auto_commit=False, max_reconsume_times=0)
    await room.pulled(10, 11)
    assert script.calls == [[10], [11]]
    assert room.offsets.updates == [(QUEUE, 12, False)]


@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
async def test_with_auto_commit_commit_and_rollback_are_taken_as_success(answer: ConsumeResult) -> None:
    script = Script([answer])
    room = Room(script)
    await room.pulled(10)
    assert script.calls == [[10]]
    assert room.offsets.last == 11
    assert room.stats.good == 1


async def test_messages_of_several_topics_in_the_retry_queue_reach_each_their_handler_in_order() -> None:
    orders, refunds = Script(), Script()
    room = Room({"orders": orders, "refunds": refunds}, batch_size=3)
    messages = [
        *received(RETRIES, [0, 1], RETRY_TOPIC="orders"),
        *received(RETRIES, [2], RETRY_TOPIC="refunds"),
        *received(RETRIES, [3], RETRY_TOPIC="orders"),
    ]
    await room.submit(messages, RETRIES)
    assert (orders.calls, refunds.calls) == ([[0, 1], [3]], [[2]])
    assert [offset for _, offset, _ in room.offsets.updates] == [2, 3, 4]
