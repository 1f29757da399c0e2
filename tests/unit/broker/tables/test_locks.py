"""RebalanceLocks: one owner for each queue of a group, until it unlocks or goes silent."""

import pytest

from firearrow._native.protocol.message_queue import MessageQueue
from firearrow.broker.tables.locks import LOCK_LIFE_MS, REMEMBERED_MS, LocksFull, RebalanceLocks
from tests.support.clock import ManualClock

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_one_client_of_a_group_owns_a_queue() -> None:
    locks = RebalanceLocks(ManualClock())
    assert locks.lock("G", "a", [Q0, Q1, Q0]) == [Q0, Q1]
    assert locks.lock("G", "b", [Q0]) == []
    assert locks.lock("H", "b", [Q0]) == [Q0]
    locks.unlock("G", "b", [Q0])
    assert locks.lock("G", "b", [Q0]) == []
    locks.unlock("G", "a", [Q0])
    assert locks.lock("G", "b", [Q0, Q1]) == [Q0]
    assert (locks.is_locked("G", Q0, "b"), locks.is_locked("G", Q1, "b"), len(locks)) == (True, False, 3)


def test_a_lock_expires_exactly_after_its_last_renewal() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock)
    locks.lock("G", "a", [Q0])
    clock.advance(LOCK_LIFE_MS - 1)
    locks.lock("G", "a", [Q0])
    clock.advance(LOCK_LIFE_MS)
    assert locks.lock("G", "b", [Q0]) == []
    assert locks.any_locked("G")
    clock.advance(1)
    assert not locks.any_locked("G")
    assert not locks.is_locked("G", Q0, "a")
    assert locks.lock("G", "b", [Q0]) == [Q0]


def test_locks_are_bounded_and_expired_ones_are_replaced() -> None:
    clock = ManualClock()
    locks = RebalanceLocks(clock, locks_max=1)
    locks.lock("G", "a", [Q0])
    with pytest.raises(LocksFull):
        locks.lock("H", "a", [Q1])
    clock.advance(LOCK_LIFE_MS + 1)
    assert locks.lock("H", "a", [Q1]) == [Q1]
    assert len(locks) == 1
    locks.unlock("H", "a", [Q1])
    locks.unlock("H", "a", [Q1])
    assert len(locks) == 0


def restarted(locks: RebalanceLocks, clock: ManualClock) -> RebalanceLocks:
    after = RebalanceLocks(clock)
    after.load(locks.to_json())
    return after


def test_a_restart_keeps_the_locks_as_long_as_their_owners_trust_them() -> None:
    clock = ManualClock()
    before = RebalanceLocks(clock)
    before.lock("G", "a", [Q0])
    clock.advance(30_000)
    before.lock("G", "a", [Q1])
    after = restarted(before, clock)
    assert after.lock("G", "b", [Q0, Q1]) == []
    assert after.lock("H", "b", [Q0]) == [Q0]
    clock.advance(REMEMBERED_MS - 30_000 + 1)
    assert after.lock("G", "b", [Q0, Q1]) == [Q0]
    assert after.lock("G", "a", [Q0, Q1]) == [Q1]
    clock.advance(LOCK_LIFE_MS)
    assert after.lock("G", "b", [Q1]) == [], "renewed, it lasts as long as any other"


def test_locks_of_a_long_stop_are_forgotten_and_damaged_files_are_refused() -> None:
    clock = ManualClock()
    before = RebalanceLocks(clock)
    before.lock("G", "a", [Q0])
    text = before.to_json()
    clock.advance(REMEMBERED_MS + 1)
    after = restarted(before, clock)
    assert len(after) == 0
    for damaged in (b"", b"[]", b'{"lockTable":[]}', b'{"lockTable":{"G":[{}]}}', text.replace(b'"a"', b"7")):
        with pytest.raises(ValueError):  # noqa: PT011
            after.load(damaged)
