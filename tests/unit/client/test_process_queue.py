"""ProcessQueue: counters, order, and which offset may be committed, against a plain model."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.process_queue import LOCK_LIFE_S, NONE, PULL_IDLE_S, ProcessQueue
from tests.client.records import received
from tests.support.clock import ManualClock
from tests.support.examples import examples

QUEUE = MessageQueue("orders", "broker-a", 0)


def filled(*offsets: int) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    queue, messages = ProcessQueue(), received(QUEUE, offsets)
    queue.put(messages)
    return queue, messages


def offsets_of(messages: Sequence[ReceivedMessage]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_the_commit_offset_is_the_lowest_unfinished_and_one_past_the_newest_when_all_are_finished() -> None:
    queue, messages = filled(10, 11, 12, 15)
    assert queue.remove([messages[3], messages[1]]) == 10
    assert queue.remove([messages[0]]) == 12
    assert queue.remove([messages[2]]) == 16
    assert (queue.message_count, queue.message_bytes) == (0, 0)


def test_nothing_comes_out_of_an_empty_queue() -> None:
    queue, messages = filled(1)
    queue.remove(messages)
    assert queue.remove(messages) == NONE
    assert ProcessQueue().remove(messages) == NONE


def test_removing_what_is_not_there_leaves_the_counters() -> None:
    queue, messages = filled(1, 2)
    assert queue.remove([messages[0], *received(QUEUE, [7])]) == 2
    assert queue.remove([messages[0]]) == 2
    assert (queue.message_count, queue.message_bytes) == (1, 4)


def test_an_offset_is_taken_in_once() -> None:
    queue, messages = filled(1, 2)
    queue.put(received(QUEUE, [2, 3], b"longer body"))
    assert queue.message_count == 3
    assert queue.message_bytes == 4 + 4 + 11
    assert queue.contains(messages[1]), "the first to come stays"


def test_the_span_counts_offsets_not_messages() -> None:
    queue, messages = filled(5, 900)
    assert queue.max_span() == 895
    queue.remove(messages[:1])
    assert queue.max_span() == 0
    assert ProcessQueue().max_span() == 0


def test_the_backlog_is_what_the_broker_has_beyond_the_newest() -> None:
    queue = ProcessQueue()
    queue.put(received(QUEUE, [5, 6]), broker_max=20)
    assert queue.backlog == 14
    queue.put(received(QUEUE, [19]), broker_max=19)
    assert queue.backlog == 14, "less than one is not stored"


def test_only_the_first_put_calls_for_work_until_nothing_is_left_to_take() -> None:
    queue = ProcessQueue()
    assert not queue.put([])
    assert queue.put(received(QUEUE, [1]))
    assert not queue.put(received(QUEUE, [2]))
    queue.take(5)
    assert not queue.put([])
    assert queue.take(5) == []
    assert queue.put(received(QUEUE, [3]))


def test_what_is_taken_comes_in_order_and_counts_until_it_is_committed() -> None:
    queue, _ = filled(3, 4, 5)
    assert offsets_of(queue.take(2)) == [3, 4]
    assert queue.message_count == 3
    assert queue.taken_range() == (3, 4)
    assert queue.waiting_range() == (5, 5)
    assert queue.commit() == 5
    assert (queue.message_count, queue.message_bytes) == (1, 4)
    assert queue.commit() == NONE


def test_what_is_put_back_comes_first_again() -> None:
    queue, messages = filled(3, 4, 5)
    queue.take(2)
    queue.rollback()
    assert offsets_of(queue.take(3)) == [3, 4, 5]
    queue.make_to_consume_again(messages[1:2])
    assert queue.commit() == 6
    assert offsets_of(queue.take(9)) == [4]


def test_contains_means_the_very_object_that_waits() -> None:
    queue, messages = filled(3, 4)
    assert queue.contains(messages[0])
    assert not queue.contains(received(QUEUE, [3])[0])
    queue.take(1)
    assert not queue.contains(messages[0])
    head = queue.head()
    assert head is messages[1]


def test_clear_forgets_everything() -> None:
    queue, messages = filled(3, 4)
    queue.take(1)
    queue.clear()
    assert (queue.message_count, queue.message_bytes, queue.has_messages, queue.head()) == (0, 0, False, None)
    assert queue.remove(messages) == NONE
    queue.put(messages)
    assert queue.remove(messages) == 5


@pytest.mark.parametrize(("after_s", "expired"), [(LOCK_LIFE_S, False), (LOCK_LIFE_S + 0.1, True)])
def test_a_lock_lives_thirty_seconds(after_s: float, expired: bool) -> None:
    clock = ManualClock(100_000)
    queue = ProcessQueue(clock)
    assert queue.lock_expired(clock.now + after_s) is expired


@pytest.mark.parametrize(("after_s", "expired"), [(PULL_IDLE_S, False), (PULL_IDLE_S + 0.1, True)])
def test_a_queue_that_is_not_pulled_for_two_minutes_has_lost_its_request(
    after_s: float, expired: bool
) -> None:
    clock = ManualClock(100_000)
    queue = ProcessQueue(clock)
    assert queue.pull_expired(clock.now + after_s) is expired


def test_finishing_and_taking_show_that_the_queue_is_alive() -> None:
    clock = ManualClock(100_000)
    queue = ProcessQueue(clock)
    clock.advance(5000)
    queue.remove([])
    assert queue.last_consume_s == clock.now
    clock.advance(5000)
    queue.take(1)
    assert queue.last_consume_s == clock.now


async def finishes(queue: ProcessQueue, finish: Callable[[], object]) -> bool:
    """Whether a wait for the half ends after this."""
    waiting = asyncio.create_task(queue.half_done(30))
    await asyncio.sleep(0)
    finish()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ended = waiting.done()
    waiting.cancel()
    return ended


@pytest.mark.parametrize(("finished", "ends"), [(1, False), (2, True), (3, True)])
async def test_a_waiter_for_capacity_is_notified_when_half_is_finished(finished: int, ends: bool) -> None:
    queue, messages = filled(1, 2, 3, 4)
    assert await finishes(queue, lambda: queue.remove(messages[:finished])) is ends


async def test_commits_and_clearing_free_capacity_and_taking_does_not() -> None:
    queue, _ = filled(1, 2)
    assert not await finishes(queue, lambda: queue.take(2))
    assert await finishes(queue, queue.commit)
    queue.put(received(QUEUE, [3]))
    assert await finishes(queue, queue.clear)


async def test_a_wait_for_capacity_is_limited() -> None:
    queue, _ = filled(1, 2)
    await asyncio.wait_for(queue.half_done(0.001), 5)
    assert queue.message_count == 2


def test_many_messages_leave_nothing() -> None:
    queue, batch = ProcessQueue(), 5000
    for start in range(0, 20 * batch, batch):
        messages = received(QUEUE, range(start, start + batch))
        queue.put(messages)
        queue.remove(messages[1:])
        assert queue.max_span() == 0
        assert queue.remove(messages[:1]) == start + batch
    assert len(queue._order) == 0


class Model(RuleBasedStateMachine):
    """Any sequence of operations, compared with two plain dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = ProcessQueue()
        self.waiting: dict[int, ReceivedMessage] = {}
        self.taken: dict[int, ReceivedMessage] = {}
        self.newest = 0

    @rule(offsets=st.lists(st.integers(0, 40), max_size=8))
    def put(self, offsets: list[int]) -> None:
        offsets = [offset for offset in offsets if offset not in self.taken]
        messages = received(QUEUE, offsets)
        self.queue.put(messages)
        for message in messages:
            if message.queue_offset not in self.waiting:
                self.waiting[message.queue_offset] = message
                self.newest = message.queue_offset

    @rule(offsets=st.lists(st.integers(0, 40), max_size=8))
    def remove(self, offsets: list[int]) -> None:
        was_empty = not self.waiting
        for offset in offsets:
            self.waiting.pop(offset, None)
        expected = NONE if was_empty else min(self.waiting) if self.waiting else self.newest + 1
        assert self.queue.remove(received(QUEUE, offsets)) == expected

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        lowest = sorted(self.waiting)[:count]
        self.taken.update({offset: self.waiting.pop(offset) for offset in lowest})
        assert offsets_of(self.queue.take(count)) == lowest

    @rule()
    def commit(self) -> None:
        assert self.queue.commit() == (max(self.taken) + 1 if self.taken else NONE)
        self.taken.clear()

    @rule()
    def rollback(self) -> None:
        self.queue.rollback()
        self.waiting |= self.taken
        self.taken.clear()

    @rule(offsets=st.lists(st.integers(0, 40), max_size=8))
    def again(self, offsets: list[int]) -> None:
        self.queue.make_to_consume_again(received(QUEUE, offsets))
        for offset in set(offsets) & self.taken.keys():
            self.waiting[offset] = self.taken.pop(offset)

    @invariant()
    def agrees(self) -> None:
        assert self.queue.message_count == len(self.waiting) + len(self.taken)
        assert self.queue.message_bytes == 4 * self.queue.message_count
        assert self.queue.max_span() == (max(self.waiting) - min(self.waiting) if self.waiting else 0)
        assert self.queue.has_messages == bool(self.waiting)


TestModel = Model.TestCase
TestModel.settings = examples(60, stateful_step_count=30)
