"""Ordered queues: begun under a lock, released when no handler works on them. Rules, with fakes."""

import logging
from collections.abc import Callable

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import RequestTimeout
from firearrow.client.base.message import MessageQueue
from tests.client.rebalancing import FOUR, LOCK, MEMBERS, UNLOCK, Round, locking, of_members
from tests.client.rounds import FakeInstance


def in_order(*refused: MessageQueue, **more: object) -> Round:
    says = {MEMBERS: of_members("me"), LOCK: locking(*refused)}
    return Round(FakeInstance(says), orderly=True, **more)  # type: ignore[arg-type]


async def test_in_order_only_locked_queues_are_begun() -> None:
    one = in_order(FOUR[1], FOUR[2])
    assert not await one.rebalancer.run()
    assert one.mine == [0, 3]
    assert all(held.locked for held in one.table.values())
    assert one.instance.rebalances_soon == [0.5]
    assert fastjson.loads(one.instance.asked_for(LOCK)[0].body) == {
        "clientId": "me",
        "consumerGroup": "group",
        "onlyThisBroker": False,
        "mqSet": [{"brokerName": "broker-a", "queueId": number, "topic": "T"} for number in range(4)],
    }
    one.instance.says[LOCK] = locking()
    assert await one.rebalancer.run()
    assert one.mine == [0, 1, 2, 3]


async def test_in_order_a_queue_is_unlocked_after_its_offset_was_persisted() -> None:
    one = in_order()
    await one.rebalancer.run()
    one.offsets.update(FOUR[3], 30)
    held = one.table[FOUR[3]]
    one.instance.says[MEMBERS] = of_members("me", "you")
    one.instance.asked.clear()
    assert await one.rebalancer.run()
    assert one.mine == [0, 1]
    assert not held.locked
    unlocks = one.instance.asked_for(UNLOCK)
    assert [fastjson.loads(request.body)["mqSet"][0]["queueId"] for request in unlocks] == [2, 3]
    assert all(request.is_oneway for request in unlocks)
    assert one.of("persist").count(("persist", 3, 30)) == 2
    assert not held.consume_lock.locked()


async def test_in_order_a_busy_queue_waits_for_a_later_round_but_not_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firearrow.client.rebalance.owned_queues.BUSY_S", 0.01)
    one = in_order()
    await one.rebalancer.run()
    held = one.table[FOUR[3]]
    held.last_lock_s = one.time.now
    one.instance.says[MEMBERS] = of_members("me", "you")
    async with held.consume_lock:
        for times in (1, 2):
            assert not await one.rebalancer.run()
            assert held.try_unlock_times == times
        assert one.table[FOUR[3]] is held
        assert held.dropped
        assert not any(b'"queueId":3' in request.body for request in one.instance.asked_for(UNLOCK))
        one.time.advance(21_000)
        assert await one.rebalancer.run()
    assert FOUR[3] not in one.table
    assert b'"queueId":3' in one.instance.asked_for(UNLOCK)[-1].body


async def test_a_renewal_returns_what_is_still_locked() -> None:
    one = in_order()
    await one.rebalancer.run()
    locks = one.rebalancer._context.locks
    assert locks is not None
    one.time.advance(20_000)
    one.table[FOUR[3]].dropped = True
    one.instance.says[LOCK] = locking(FOUR[1])
    await locks.lock_all()
    assert [one.table[queue].locked for queue in FOUR] == [True, False, True, True]
    assert [one.table[queue].last_lock_s == one.time.now for queue in FOUR] == [True, False, True, False]
    assert not await locks.lock(FOUR[1])
    one.instance.says[LOCK] = locking()
    assert await locks.lock(FOUR[1])
    assert one.table[FOUR[1]].locked


@pytest.mark.parametrize(
    "says",
    [
        RequestTimeout("no answer"),
        lambda request: request.answer(body=b"{}"),
        lambda request: request.answer(1),
    ],
)
async def test_a_renewal_that_fails_leaves_the_locks_to_expire(
    says: Callable[..., RemotingCommand] | Exception,
) -> None:
    one = in_order()
    await one.rebalancer.run()
    locks, before = one.rebalancer._context.locks, one.time.now
    assert locks is not None
    one.instance.says[LOCK] = says
    one.time.advance(20_000)
    await locks.lock_all()
    assert all(held.locked for held in one.table.values())
    assert not any(held.lock_expired(before + 30) for held in one.table.values())
    assert all(held.lock_expired(before + 30.1) for held in one.table.values())
    assert not await locks.lock(FOUR[0])


async def test_what_a_broker_locks_beyond_the_question_is_not_ours() -> None:
    one = in_order()
    locks = one.rebalancer._context.locks
    assert locks is not None
    one.instance.says[LOCK] = lambda request: request.answer(body=fastjson.dumps({"lockOKMQSet": FOUR}))
    assert await locks.lock_queues(FOUR[:1]) == {FOUR[0]}


async def test_unlocking_all_sends_each_broker_one_request_for_the_remaining_queues() -> None:
    one = in_order()
    await one.rebalancer.run()
    locks = one.rebalancer._context.locks
    assert locks is not None
    one.table[FOUR[3]].dropped = True
    await locks.unlock_all()
    [unlock] = one.instance.asked_for(UNLOCK)
    assert [queue["queueId"] for queue in fastjson.loads(unlock.body)["mqSet"]] == [0, 1, 2, 3]
    assert not any(held.locked for held in one.table.values())


async def test_a_stop_during_a_round_unlocks_what_it_has_just_locked() -> None:
    one = in_order()

    async def stop_meanwhile(queue: MessageQueue) -> int:
        one.rebalancer.stop()
        return 0

    one.rebalancer._owned_queues._context.start_offset = stop_meanwhile
    await one.rebalancer.run()
    assert one.table == {}
    assert len(fastjson.loads(one.instance.asked_for(UNLOCK)[0].body)["mqSet"]) == 4
    one.instance.asked.clear()
    assert await one.rebalancer.run()
    assert one.instance.asked == []


async def test_queues_that_a_slow_member_holds_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """However often a member asks for them."""
    one = in_order(FOUR[1])
    with caplog.at_level(logging.INFO, "firearrow.client"):
        for _ in range(50):
            await one.rebalancer.run()
            await one.time.pass_by(1)
    lines = [text for text in caplog.messages if "still locked" in text]
    assert lines == ["1 of 4 queues of topic T are still locked by other members"]
