"""Expiry: only the head, only what a handler has had for too long, and what is sent back leaves the queue."""

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.message import MessageQueue
from firearrow.client.consume.concurrent_service import ExpiredMessageCleaner
from firearrow.client.rebalance.process_queue import ProcessQueue
from tests.client.concurrent_harness import ConcurrentHarness, Gate
from tests.client.records import received
from tests.client.services import Back, ManualScheduler, settled

QUEUE = MessageQueue("orders", "broker-a", 0)


class ExpiryHarness:
    """An Expiry over one queue whose messages began at `began`."""

    def __init__(self, *offsets: int) -> None:
        self.time, self.back = ManualScheduler(), Back()
        self.process_queue = ProcessQueue(self.time)
        self.process_queue.put(received(QUEUE, offsets))
        self.began: dict[int, float] = {}
        self.expiry = ExpiredMessageCleaner(
            queues=lambda: [self.process_queue],
            began=lambda process_queue, message: self.began.get(message.queue_offset),
            send_back=self.back,
            timeout_s=900,
            clock=self.time,
        )


async def test_only_the_head_is_looked_at() -> None:
    harness = ExpiryHarness(10, 11)
    harness.began = {10: harness.time.now, 11: harness.time.now - 5000}
    harness.time.advance(900_000)
    await harness.expiry.sweep()
    assert harness.back.given == []
    harness.time.advance(100)
    await harness.expiry.sweep()
    assert harness.back.given == [(10, 3), (11, 3)]
    assert harness.process_queue.message_count == 0


async def test_a_message_without_a_handler_stays() -> None:
    harness = ExpiryHarness(10)
    harness.time.advance(10_000_000)
    await harness.expiry.sweep()
    assert harness.back.given == []


async def test_a_send_back_that_fails_is_tried_again_with_the_same_head_and_stays() -> None:
    harness = ExpiryHarness(10, 11)
    harness.began = {10: 0, 11: 0}
    harness.back.takes = lambda message: len(harness.back.given) > 1
    await harness.expiry.sweep()
    assert harness.back.given == [(10, 3), (10, 3)]
    assert harness.process_queue.message_count == 1


async def test_at_most_16_messages_of_a_queue_go_back_in_one_sweep() -> None:
    harness = ExpiryHarness(*range(20))
    harness.began = dict.fromkeys(range(20), 0.0)
    await harness.expiry.sweep()
    assert len(harness.back.given) == 16


async def test_a_head_finished_during_the_send_back_is_not_removed_twice() -> None:
    harness = ExpiryHarness(10, 11)
    harness.began = {10: 0}

    def finish(message: ReceivedMessage) -> bool:
        harness.process_queue.remove([message])
        return True

    harness.back.takes = finish
    await harness.expiry.sweep()
    assert harness.process_queue.message_count == 1


async def test_a_queue_given_away_is_left_alone() -> None:
    harness = ExpiryHarness(10)
    harness.began = {10: 0}
    harness.process_queue.dropped = True
    await harness.expiry.sweep()
    assert harness.back.given == []


async def test_the_service_sweeps_each_time_out_and_a_late_result_counts_no_more() -> None:
    gate = Gate()
    harness = ConcurrentHarness(gate, batch_size=2)
    await harness.service.start()
    ((seconds, sweep, first_s),) = harness.time.repeated
    assert (seconds, first_s) == (900, 900)
    await harness.pulled(10, 11, 12)
    await gate.answer(1)
    assert harness.offsets.last == 10
    harness.time.advance(901_000)
    await sweep()
    assert harness.back.given == [(10, 3), (11, 3)]
    assert len(harness.offsets.updates) == 1
    await gate.answer(0, False)
    assert harness.back.given == [(10, 3), (11, 3)]
    await harness.pulled(13)
    await gate.answer(2)
    assert harness.offsets.last == 14


async def test_broadcasting_knows_no_expiry() -> None:
    harness = ConcurrentHarness(Gate(), broadcasting=True)
    await harness.service.start()
    assert harness.time.repeated == []
    await settled()
