"""Automatic batches: what is collected, when it is sent, and which result belongs to which message."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from firearrow.client.base.errors import BrokerError, MessageRefused, NotRunning, RocketMQError
from firearrow.client.base.message import Message, MessageQueue, Property, SendResult, SendStatus
from firearrow.client.base.options import ProducerOptions
from firearrow.client.send.batch import Accumulator, encoded_bytes
from tests.support.eventually import eventually_async

QUEUE = MessageQueue("t", "b", 1)
LONG_S = 30.0


@dataclass
class Sender:
    """Takes batches; the test decides their results."""

    options: ProducerOptions = field(default_factory=lambda: ProducerOptions(batch_delay_s=LONG_S))
    batches: list[tuple[list[Message], MessageQueue | None]] = field(default_factory=list)
    futures: list[asyncio.Future[SendResult]] = field(default_factory=list)
    fault: RocketMQError | None = None
    released: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accumulator = Accumulator(self.options, self.send, self.released.append)

    def send(self, messages: Sequence[Message], queue: MessageQueue | None) -> asyncio.Future[SendResult]:
        if any(message.body == b"bad" for message in messages):
            raise MessageRefused("bad")
        if self.fault is not None:
            raise self.fault
        for number, message in enumerate(messages):
            message.unique_id = message.unique_id or f"{len(self.batches)}-{number}"
        self.batches.append((list(messages), queue))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]

    def add(self, body: bytes, **more: object) -> asyncio.Future[SendResult]:
        return self.accumulator.add(Message("t", body, **more), None)  # type: ignore[arg-type]

    def stored(self, number: int, count: int) -> None:
        """Batch `number` is stored from offset 100 on."""
        offset_ids = ",".join(f"P{n}" for n in range(count))
        self.futures[number].set_result(SendResult(SendStatus.SEND_OK, "ids", offset_ids, QUEUE, 100))

    @property
    def bodies(self) -> list[list[bytes]]:
        return [[message.body for message in messages] for messages, _ in self.batches]


async def test_each_gets_its_own_result() -> None:
    sender = Sender()
    futures = [sender.add(body) for body in (b"a", b"b", b"c")]
    assert not sender.batches
    sender.accumulator.flush()
    assert sender.bodies == [[b"a", b"b", b"c"]]
    sender.stored(0, 3)
    results = await asyncio.gather(*futures)
    assert [result.message_id for result in results] == ["0-0", "0-1", "0-2"]
    assert [result.offset_message_id for result in results] == ["P0", "P1", "P2"]
    assert [result.queue_offset for result in results] == [100, 101, 102]
    assert sender.accumulator.bytes == 0


@pytest.mark.parametrize("error", [NotRunning("closed"), None])
async def test_capacity_is_released_after_the_results(error: RocketMQError | None) -> None:
    """A close waits for the capacity, and then reports the failures."""
    sender = Sender()
    futures: list[asyncio.Future[SendResult]] = []
    done: list[list[bool]] = []
    sender.accumulator = Accumulator(
        sender.options, sender.send, lambda _: done.append([future.done() for future in futures])
    )
    futures[:] = [sender.add(b"a"), sender.add(b"b")]
    sender.accumulator.flush()
    if error is None:
        sender.stored(0, 2)
    else:
        sender.futures[0].set_exception(error)
    await eventually_async(lambda: len(done) == 2, 1)
    assert done == [[True, True], [True, True]]
    assert [future.exception() for future in futures] == [error, error]


async def test_a_batch_with_one_offset_id_has_none_for_its_items() -> None:
    sender = Sender()
    futures = [sender.add(b"a"), sender.add(b"b")]
    sender.accumulator.flush()
    sender.stored(0, 1)
    assert [(await way).offset_message_id for way in futures] == ["", ""]


async def test_only_similar_messages_are_batched() -> None:
    sender = Sender()
    sender.add(b"1")
    sender.add(b"2", tags="x")
    sender.add(b"3", wait_store=False)
    sender.accumulator.add(Message("u", b"4"), None)
    sender.accumulator.add(Message("t", b"5"), QUEUE)
    sender.add(b"6", tags="x")
    sender.add(b"7", keys=["any"], properties={"any": "thing"})
    sender.accumulator.flush()
    assert sorted(sender.bodies) == [[b"1", b"7"], [b"2", b"6"], [b"3"], [b"4"], [b"5"]]
    assert [queue for messages, queue in sender.batches if messages[0].body == b"5"] == [QUEUE]


async def test_it_leaves_when_it_is_large() -> None:
    each = encoded_bytes(Message("t", b"x" * 100))
    sender = Sender(ProducerOptions(batch_delay_s=LONG_S, batch_bytes=3 * each))
    for _ in range(2):
        sender.add(b"x" * 100)
    assert not sender.batches
    sender.add(b"x" * 100)
    assert [len(bodies) for bodies in sender.bodies] == [3]


async def test_it_leaves_when_it_is_old() -> None:
    sender = Sender(ProducerOptions(batch_delay_s=0.005))
    way = sender.add(b"x")
    await eventually_async(lambda: sender.batches, 5)
    sender.stored(0, 1)
    assert (await way).queue_offset == 100


@pytest.mark.parametrize(
    "message",
    [
        Message("%RETRY%g", b"x"), Message("t", b"x", delay_level=1), Message("t", b"x", delay_s=0),
        Message("t", b"x", deliver_at_ms=1), Message("t", b"x", sharding_key="k"), Message("t", b"x", priority=0),
        Message("t", b"x", properties={Property.PRODUCER_GROUP: "g"}),
        Message("t", b"x", properties={Property.CORRELATION_ID: "c"}),
        Message("t", b"x" * 32768),
    ],
)  # fmt: skip
async def test_what_must_go_by_itself(message: Message) -> None:
    accumulator = Sender().accumulator
    assert not accumulator.accepts(message)
    assert accumulator.accepts(Message("t", b"x" * 32767))


async def test_when_all_hold_too_much_messages_go_by_themselves() -> None:
    sender = Sender(ProducerOptions(batch_delay_s=LONG_S, batch_total_bytes=1000))
    way = sender.add(b"x" * 500)
    held = sender.accumulator.bytes
    assert sender.accumulator.accepts(Message("t", b"x" * (1000 - held)))
    assert not sender.accumulator.accepts(Message("t", b"x" * (1001 - held)))
    sender.accumulator.flush()
    assert not sender.accumulator.accepts(Message("t", b"x" * 1000)), "in flight counts, too"
    sender.stored(0, 1)
    await way
    assert sender.accumulator.accepts(Message("t", b"x" * 1000))


async def test_one_that_may_not_be_sent_fails_alone() -> None:
    sender = Sender()
    futures = [sender.add(body) for body in (b"good", b"bad", b"fine")]
    sender.accumulator.flush()
    with pytest.raises(MessageRefused):
        await futures[1]
    assert sender.bodies == [[b"good"], [b"fine"]]
    for number in range(2):
        sender.stored(number, 1)
    await asyncio.gather(futures[0], futures[2])
    assert sender.accumulator.bytes == 0


async def test_a_failure_is_reported_to_each() -> None:
    sender = Sender()
    futures = [sender.add(b"a"), sender.add(b"b")]
    sender.accumulator.flush()
    sender.futures[0].set_exception(BrokerError(2, "busy", "b"))
    ended = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(error) for error in ended] == [BrokerError] * 2
    sender.fault = NotRunning("closed")
    futures = [sender.add(b"a"), sender.add(b"b")]
    sender.accumulator.flush()
    ended = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(error) for error in ended] == [NotRunning] * 2
    assert sender.accumulator.bytes == 0
    assert sender.released == [1] * 4


async def test_a_message_cancelled_before_the_batch_is_sent_is_dropped() -> None:
    sender = Sender()
    futures = [sender.add(body) for body in (b"a", b"b", b"c")]
    futures[1].cancel()
    sender.accumulator.flush()
    assert sender.bodies == [[b"a", b"c"]]
    futures[0].cancel()
    sender.stored(0, 2)
    assert (await futures[2]).offset_message_id == "P1"
    gone = sender.add(b"alone")
    gone.cancel()
    sender.accumulator.flush()
    assert len(sender.batches) == 1
    assert sender.accumulator.bytes == 0
    assert sender.released == [1, 1, 1, 5]
