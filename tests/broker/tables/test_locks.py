"""RebalanceLocks: one owner for each queue of a group, until it unlocks or goes silent."""

import pytest

from firearrow.broker.base.fastjson import MessageQueue
from firearrow.broker.tables.locks import LOCK_LIFE_MS, LocksFull, RebalanceLocks
from tests.support.clock import ManualClock

Q0, Q1 = MessageQueue("b", 0, "T"), MessageQueue("b", 1, "T")


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
