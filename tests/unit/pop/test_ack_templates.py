"""AckTemplates: acknowledgements of one check point are stored as the complete path stores them, byte by byte; what
that would refuse is left to it."""

from pathlib import Path

import pytest

from firearrow._native.store.log.record import decode
from firearrow._native.store.message_store import PutRefused, WriteRefusal
from firearrow.broker.pop.checkpoints import AckDecoder, AckMessage
from firearrow.broker.pop.receipt_handles import ReceiptHandle, check_point_key
from tests.pop.revive_harness import INVISIBLE_MS, REVIVE, ReviveHarness

GROUP, TOPIC, QUEUE = "G\u00fc", "T", 2


class Acknowledging(ReviveHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for _ in range(20):
            self.put(TOPIC, b"x", queue_id=QUEUE)
        self.timers.run()
        self.pop_ms = self.clock.now_ms()
        self.handle = ReceiptHandle(3, self.pop_ms, INVISIBLE_MS, 0, "0", "b")
        self.key = check_point_key(GROUP, TOPIC, QUEUE, " ".join(map(str, (*self.handle, QUEUE, 5, 77))))

    def complete(self, offset: int, key: bytes | None = None) -> None:
        acks = AckMessage(TOPIC, GROUP, QUEUE, 3, self.pop_ms, "b", (offset,))
        self.acks.ack(acks, 0, INVISIBLE_MS, key)

    def stored(self) -> list[tuple[object, ...]]:
        """The acknowledgements, without where they are in the log."""
        self.timers.run()
        found = []
        for entry in self.store.reader.entries(REVIVE, 0, 0, 1000):
            record = decode(self.store.reader.record_at(entry.physical_offset))
            found.append((record.topic, record.queue_id, record.flag, record.sys_flag, record.born_timestamp))
            found[-1] += (record.store_timestamp, record.born_host, record.store_host, record.reconsume_times)
            found[-1] += (record.prepared_offset, record.body, record.properties_bytes)
        return found


@pytest.fixture
def acks(tmp_path: Path) -> Acknowledging:
    return Acknowledging(tmp_path)


def test_they_are_stored_as_by_the_complete_path(acks: Acknowledging) -> None:
    offsets = (3, 0, 19, 20)
    acks.complete(7, acks.key)
    for offset in offsets:
        assert acks.acks.templates.put(acks.key, offset) > 0
        acks.complete(offset)
    first, *found = acks.stored()
    assert [found[at] for at in range(0, 8, 2)] == [found[at] for at in range(1, 8, 2)]
    assert {acked[:8] for acked in found} == {first[:8]}
    decoder = AckDecoder()
    for _ in range(2):  # the second time from what it remembers
        decoded = [decoder.decode(row[10], "b") for row in found]  # type: ignore[arg-type]
        assert decoded == [AckMessage.of(row[10], "b") for row in found]  # type: ignore[arg-type]
    assert [message.offsets for message in decoded[::2]] == [(offset,) for offset in offsets]


def test_they_are_counted_before_they_are_written(acks: Acknowledging) -> None:
    events = acks.acks._events
    events.popped(GROUP, TOPIC, 5)
    acks.complete(3, acks.key)
    for offset in (4, 5):
        acks.acks.templates.put(acks.key, offset)
    acks.timers.run()
    assert events.in_flight(GROUP, TOPIC) == 2


def test_what_may_be_refused_is_left_to_the_complete_path(acks: Acknowledging) -> None:
    templates = acks.acks.templates
    assert templates.put(acks.key, 3) == -1, "nothing is known of the check point"
    acks.complete(3, acks.key)
    assert templates.put(acks.key.replace(b" b", b" c"), 3) == -1
    for offset in (-1, 21, 1 << 40):
        assert templates.put(acks.key, offset) == -1
    acks.store.write_refusal = WriteRefusal.HANDOVER
    assert templates.put(acks.key, 4) == -1
    with pytest.raises(PutRefused):
        acks.complete(4)
    acks.store.write_refusal = None
    assert templates.put(acks.key, 4) > 0
    acks.topics.create("another", 1)
    assert templates.put(acks.key, 5) == -1, "topics have changed"
    acks.complete(5, acks.key)
    assert templates.put(acks.key, 6) > 0
    acks.clock.advance(INVISIBLE_MS)
    assert templates.put(acks.key, 6) == -1, "the messages are visible again"
    assert len(acks.stored()) == 4


def test_a_limit_of_the_timer_is_asked_for_each(acks: Acknowledging) -> None:
    acks.acks._config.update({"timerCongestNumEachSlot": "5"})
    acks.complete(3, acks.key)
    assert acks.acks.templates.put(acks.key, 4) == -1


@pytest.mark.parametrize(
    "body",
    [
        b'{"ao":7,"bn":"b","c":"G","pt":1,"q":0,"so":3,"t":"T","ao":9}',
        b'{"ao":7,"aol":[8,9],"bn":"b","c":"G","pt":1,"q":0,"so":3,"t":"T"}',
        b'{"ao":"7","bn":"b","c":"G","pt":1,"q":0,"so":3,"t":"T"}',
        b'{"bn":"b","ao":7,"c":"G","pt":1,"q":0,"so":3,"t":"T"}',
    ],
)
def test_other_forms_of_an_acknowledgement_are_parsed_each_time(body: bytes) -> None:
    decoder = AckDecoder()
    for text in (body, body.replace(b"7", b"6"), body.replace(b"7", b"00000000000000000006")):
        try:
            expected: AckMessage | str = AckMessage.of(text, "b")
        except ValueError as error:
            expected = str(error)
        try:
            found: AckMessage | str = decoder.decode(text, "b")
        except ValueError as error:
            found = str(error)
        assert found == expected
