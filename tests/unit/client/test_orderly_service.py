"""The orderly service: one call at a time for each queue, the lock, suspensions, manual commits, too many failures."""

import asyncio

import pytest

from firearrow.client.consume.consume_results import (
    Accepted,
    ConsumeResult,
    DeadLetter,
    Retry,
    Suspend,
)
from firearrow.client.rebalance.process_queue import LOCK_LIFE_S
from tests.client.orderly_harness import COMMIT, OTHER, QUEUE, RETRIES, ROLLBACK, OrderlyHarness, Script
from tests.client.records import received
from tests.client.services import settled


async def test_batches_come_in_order_and_each_success_stores_its_offset_even_a_lower_one() -> None:
    script = Script()
    harness = OrderlyHarness(script)
    await harness.pulled(10, 11, 12)
    assert script.calls == [[10, 11], [12]]
    assert harness.offsets.updates == [(QUEUE, 12, False), (QUEUE, 13, False)]
    assert harness.stats.good == 3
    assert not harness.table[QUEUE].consuming


async def test_one_call_at_a_time_for_a_queue_while_other_queues_go_on() -> None:
    first: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    script = Script([first])
    harness = OrderlyHarness(script)
    await harness.pulled(1)
    await harness.pulled(2)
    await harness.pulled(7, queue=OTHER)
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
    harness = OrderlyHarness(script)
    messages = await harness.pulled(10, 11, 12)
    assert script.calls == [[10, 11]]
    assert [message.reconsume_times for message in messages] == [1, 1, 0]
    assert (harness.stats.bad, harness.offsets.updates, harness.time.waits) == (2, [], [1.0])
    await harness.pulled(13)
    assert len(script.calls) == 1
    await harness.time.pass_by(1)
    assert script.calls == [[10, 11], [10, 11], [12, 13]]
    assert harness.offsets.last == 14


@pytest.mark.parametrize(("asked", "rests"), [(0, 0.01), (0.5, 0.5), (30, 30), (3600, 30)])
async def test_a_handler_may_choose_the_rest_within_10_ms_and_30_s(asked: float, rests: float) -> None:
    harness = OrderlyHarness(Script([Suspend(asked)]))
    await harness.pulled(10)
    assert harness.time.waits == [rests]


async def test_a_queue_that_is_not_locked_waits_for_its_lock() -> None:
    script = Script()
    harness = OrderlyHarness(script, locked=False)
    harness.locks.gives = False
    await harness.pulled(10)
    assert harness.time.waits == [0.1]
    await harness.time.pass_by(0.1)
    assert harness.locks.calls == ["lock 0"]
    assert harness.time.waits == [3.0]
    harness.locks.gives = True
    await harness.time.pass_by(3.1)
    assert harness.locks.calls == ["lock 0", "lock 0"]
    assert script.calls == []
    await harness.time.pass_by(0.01)
    assert script.calls == [[10]]


async def test_an_error_while_locking_is_tried_again_later() -> None:
    script = Script()
    harness = OrderlyHarness(script, locked=False)
    harness.locks.error = OSError("no network")
    await harness.pulled(10)
    await harness.time.pass_by(0.1)
    assert harness.time.waits == [3.0]
    harness.locks.error = None
    await harness.time.pass_by(4)
    assert script.calls == [[10]]


@pytest.mark.parametrize("lost", ["not ours", "expired"])
async def test_a_lock_lost_between_two_calls_is_asked_for_again_before_the_next(lost: str) -> None:
    script = Script()
    harness = OrderlyHarness(script, batch_size=1)

    async def lose() -> None:
        if lost == "expired":
            harness.time.advance((LOCK_LIFE_S + 1) * 1000)
        else:
            harness.table[QUEUE].locked = False

    script.answers = [lose()]
    await harness.pulled(10, 11)
    assert script.calls == [[10]]
    assert harness.time.waits == [0.01]
    await harness.time.pass_by(0.03)
    assert harness.locks.calls == ["lock 0"]
    assert script.calls == [[10], [11]]


async def test_broadcasting_needs_no_lock() -> None:
    script = Script()
    harness = OrderlyHarness(script, broadcasting=True, locked=False)
    await harness.service.start()
    await harness.pulled(10)
    assert script.calls == [[10]]
    assert harness.time.repeated == []
    await harness.service.stop(1)
    assert harness.locks.calls == []


async def test_locks_are_renewed_each_20_s_from_the_first_second_on_and_given_up_at_the_end() -> None:
    harness = OrderlyHarness(Script())
    await harness.service.start()
    ((seconds, work, first_s),) = harness.time.repeated
    assert (seconds, first_s) == (20, 1)
    await work()
    await harness.service.stop(1)
    assert harness.locks.calls == ["lock all", "unlock all"]


async def test_locks_are_given_up_after_the_handlers_ended() -> None:
    last: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    harness = OrderlyHarness(Script([last]), batch_size=1)
    await harness.pulled(10, 11)
    stopping = asyncio.create_task(harness.service.stop(30))
    await settled()
    assert harness.locks.calls == []
    last.set_result(None)
    await stopping
    assert harness.locks.calls == ["unlock all"]
    assert harness.offsets.updates == [(QUEUE, 11, False)]


async def test_a_queue_gives_others_their_turn_after_a_minute() -> None:
    script = Script()
    harness = OrderlyHarness(script, batch_size=1)

    async def take_a_minute() -> None:
        harness.time.advance(61_000)
        harness.table[QUEUE].last_lock_s = harness.time.now

    script.answers = [take_a_minute()]
    await harness.pulled(10, 11)
    assert script.calls == [[10]]
    assert harness.time.waits == [0.01]
    await harness.time.pass_by(0.01)
    assert script.calls == [[10], [11]]


async def test_a_queue_given_away_during_a_call_stores_nothing_and_stops() -> None:
    harness = OrderlyHarness(Script(), batch_size=1)

    async def give_away() -> bool:
        harness.table[QUEUE].dropped = True
        return False

    script = Script([give_away()])
    harness = OrderlyHarness(script, batch_size=1)
    await harness.pulled(10, 11)
    assert script.calls == [[10]]
    assert (harness.offsets.updates, harness.time.waits, harness.published.given) == ([], [], [])


async def test_giving_the_queue_away_waits_for_the_running_call() -> None:
    call: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    script = Script([call])
    harness = OrderlyHarness(script, batch_size=1)
    await harness.pulled(10, 11)
    lock = harness.table[QUEUE].consume_lock
    assert lock.locked()
    harness.table[QUEUE].dropped = True
    call.set_result(None)
    await settled()
    assert not lock.locked()
    assert script.calls == [[10]]


# ---- too many failures ----


async def test_a_message_that_failed_too_often_is_published_and_the_queue_goes_on() -> None:
    script = Script([False, False, False])
    harness = OrderlyHarness(script, batch_size=1, max_reconsume_times=2)
    await harness.pulled(10, 11)
    await harness.time.pass_by(3)
    assert script.calls == [[10], [10], [10], [11]]
    assert [offset for offset, _ in harness.published.given] == [10]
    assert harness.offsets.last == 12


async def test_a_publish_that_fails_suspends_once_more() -> None:
    harness = OrderlyHarness(
        Script([False, False]), batch_size=1, max_reconsume_times=0, takes=lambda message: False
    )
    (message,) = await harness.pulled(10)
    assert message.reconsume_times == 1
    assert harness.time.waits == [1.0]
    harness.published.takes = lambda message: True
    await harness.time.pass_by(1)
    assert len(harness.published.given) == 2
    assert harness.offsets.last == 11


async def test_if_one_of_a_batch_must_be_repeated_all_are() -> None:
    script = Script([False])
    harness = OrderlyHarness(script, max_reconsume_times=1)
    messages = received(QUEUE, [10, 11])
    messages[0].reconsume_times = 1
    await harness.submit(messages, QUEUE)
    assert [offset for offset, _ in harness.published.given] == [10]
    await harness.time.pass_by(1)
    assert script.calls == [[10, 11], [10, 11]]


# ---- manual commits ----


async def test_without_auto_commit_success_only_goes_on_until_a_commit() -> None:
    harness = OrderlyHarness(Script([None, None, COMMIT]), batch_size=1, auto_commit=False)
    await harness.pulled(10, 11, 12, 13)
    assert harness.offsets.updates == [(QUEUE, 13, False)]
    assert harness.table[QUEUE].message_count == 1


async def test_a_rollback_brings_back_all_since_the_last_commit() -> None:
    script = Script([COMMIT, None, ROLLBACK])
    harness = OrderlyHarness(script, batch_size=1, auto_commit=False)
    await harness.pulled(10, 11, 12)
    assert harness.time.waits == [1.0]
    await harness.time.pass_by(1)
    assert script.calls == [[10], [11], [12], [11], [12]]
    assert harness.offsets.last == 11


async def test_without_auto_commit_a_suspension_puts_back_only_its_messages() -> None:
    script = Script([None, False, COMMIT])
    harness = OrderlyHarness(script, batch_size=1, auto_commit=False)
    await harness.pulled(10, 11)
    await harness.time.pass_by(1)
    assert script.calls == [[10], [11], [11]]
    assert harness.offsets.last == 12


async def test_without_auto_commit_published_messages_wait_for_a_commit_as_others_do() -> None:
    script = Script([False, COMMIT])
    harness = OrderlyHarness(script, batch_size=1, auto_commit=False, max_reconsume_times=0)
    await harness.pulled(10, 11)
    assert script.calls == [[10], [11]]
    assert harness.offsets.updates == [(QUEUE, 12, False)]


@pytest.mark.parametrize("answer", [COMMIT, ROLLBACK])
async def test_with_auto_commit_commit_and_rollback_are_taken_as_success(answer: ConsumeResult) -> None:
    script = Script([answer])
    harness = OrderlyHarness(script)
    await harness.pulled(10)
    assert script.calls == [[10]]
    assert harness.offsets.last == 11
    assert harness.stats.good == 1


async def test_messages_of_several_topics_in_the_retry_queue_reach_each_their_handler_in_order() -> None:
    orders, refunds = Script(), Script()
    harness = OrderlyHarness({"orders": orders, "refunds": refunds}, batch_size=3)
    messages = [
        *received(RETRIES, [0, 1], RETRY_TOPIC="orders"),
        *received(RETRIES, [2], RETRY_TOPIC="refunds"),
        *received(RETRIES, [3], RETRY_TOPIC="orders"),
    ]
    await harness.submit(messages, RETRIES)
    assert (orders.calls, refunds.calls) == ([[0, 1], [3]], [[2]])
    assert [offset for _, offset, _ in harness.offsets.updates] == [2, 3, 4]
