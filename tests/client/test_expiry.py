"""Expiry: only the head, only what a handler has for too long, and what is sent back leaves the queue."""

from firearrow._native.store.received import ReceivedMessage
from firearrow.client.group.process_queue import ProcessQueue
from firearrow.client.handling.expiry import Expiry
from firearrow.client.message import MessageQueue
from tests.client.records import received
from tests.client.services import Back, Timeline, settled
from tests.client.test_concurrently import Gate, Room

QUEUE = MessageQueue("orders", "broker-a", 0)


class Watch:
    """An Expiry over one queue whose messages began when `began` says."""

    def __init__(self, *offsets: int) -> None:
        self.time, self.back = Timeline(), Back()
        self.process_queue = ProcessQueue(self.time)
        self.process_queue.put(received(QUEUE, offsets))
        self.began: dict[int, float] = {}
        self.expiry = Expiry(
            queues=lambda: [self.process_queue],
            began=lambda process_queue, message: self.began.get(message.queue_offset),
            send_back=self.back,
            timeout_s=900,
            clock=self.time,
        )


async def test_only_the_head_is_looked_at() -> None:
    watch = Watch(10, 11)
    watch.began = {10: watch.time.now, 11: watch.time.now - 5000}
    watch.time.now += 900
    await watch.expiry.sweep()
    assert watch.back.given == []
    watch.time.now += 0.1
    await watch.expiry.sweep()
    assert watch.back.given == [(10, 3), (11, 3)]
    assert watch.process_queue.message_count == 0


async def test_a_message_that_nobody_began_stays() -> None:
    watch = Watch(10)
    watch.time.now += 10000
    await watch.expiry.sweep()
    assert watch.back.given == []


async def test_a_send_back_that_fails_is_tried_again_with_the_same_head_and_stays() -> None:
    watch = Watch(10, 11)
    watch.began = {10: 0, 11: 0}
    watch.back.takes = lambda message: len(watch.back.given) > 1
    await watch.expiry.sweep()
    assert watch.back.given == [(10, 3), (10, 3)]
    assert watch.process_queue.message_count == 1


async def test_at_most_16_messages_of_a_queue_go_back_in_one_sweep() -> None:
    watch = Watch(*range(20))
    watch.began = dict.fromkeys(range(20), 0.0)
    await watch.expiry.sweep()
    assert len(watch.back.given) == 16


async def test_a_head_finished_during_the_send_back_is_not_removed_twice() -> None:
    watch = Watch(10, 11)
    watch.began = {10: 0}

    def finish(message: ReceivedMessage) -> bool:
        watch.process_queue.remove([message])
        return True

    watch.back.takes = finish
    await watch.expiry.sweep()
    assert watch.process_queue.message_count == 1


async def test_a_queue_given_away_is_left_alone() -> None:
    watch = Watch(10)
    watch.began = {10: 0}
    watch.process_queue.dropped = True
    await watch.expiry.sweep()
    assert watch.back.given == []


async def test_the_service_sweeps_each_time_out_and_a_late_result_counts_no_more() -> None:
    gate = Gate()
    room = Room(gate, batch_size=2)
    await room.service.start()
    ((seconds, sweep, first_s),) = room.time.repeated
    assert (seconds, first_s) == (900, 900)
    await room.pulled(10, 11, 12)
    await gate.answer(1)
    assert room.offsets.last == 10
    room.time.now += 901
    await sweep()
    assert room.back.given == [(10, 3), (11, 3)]
    assert len(room.offsets.updates) == 1
    await gate.answer(0, False)
    assert room.back.given == [(10, 3), (11, 3)]
    await room.pulled(13)
    await gate.answer(2)
    assert room.offsets.last == 14


async def test_broadcasting_knows_no_expiry() -> None:
    room = Room(Gate(), broadcasting=True)
    await room.service.start()
    assert room.time.repeated == []
    await settled()
