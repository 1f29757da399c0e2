"""ReviveService under a told clock: what comes back, when, where to, and that a kill repeats nothing."""

from pathlib import Path

import pytest

from firearrow._native.store.record import Record
from firearrow.broker.life.journal import Kind
from firearrow.broker.life.pop.checkpoints import Acks, CheckPoint, revive_topic
from firearrow.broker.life.pop.revive import GROUP, ReviveService
from firearrow.broker.options import Options
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicTable
from tests.life.room import Room

REVIVE = revive_topic("DefaultCluster")
RETRY = "%RETRY%G_T"
INVISIBLE_MS = 10_000


class Reviving(Room):
    """One revive queue; check points and acknowledgements are put into it by hand, as the timer would."""

    def __init__(self, folder: Path, offsets: bytes | None = None, now_ms: int = 1_700_000_000_000) -> None:
        super().__init__(folder, now_ms=now_ms)
        self.topics, self.groups = TopicTable(self.clock), GroupTable(self.clock)
        self.topics.create("T", 4)
        self.groups.find("G")
        self.offsets = ConsumerOffsets(
            self.clock, noted=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        if offsets is not None:
            self.offsets.load(offsets)
        self.behind = False
        parts = self.parts(
            Options(revive_queues=1), topics=self.topics, groups=self.groups, offsets=self.offsets
        )
        self.revive = ReviveService(parts, self.appender, lambda: self.behind)
        restorers = {Kind.OFFSET: self.offsets.restore, Kind.REVIVE: self.revive.restore}
        for entry in self.journal.take():
            restorers[Kind(entry.kind)](entry.name, entry.number, entry.value)
        self.revive.start()

    def take(self, *offsets: int, topic: str = "T", group: str = "G") -> CheckPoint:
        """As a pop at this moment."""
        point = CheckPoint(topic, group, 0, offsets[0], self.clock.now_ms(), INVISIBLE_MS, list(offsets), "b")
        self.appender.put(point.message(REVIVE, 0, self.clock.now_ms()), hooks=False)
        return point

    def acknowledge(self, point: CheckPoint, *offsets: int) -> None:
        acks = Acks(
            *point.key[:2], point.queue_id, point.start_offset, point.pop_ms, "b", offsets, len(offsets) == 1
        )
        message = acks.message(REVIVE, 0, point.revive_ms, self.clock.now_ms())
        self.appender.put(message, hooks=False)

    def revived(self) -> list[bytes]:
        return self.bodies(RETRY)


@pytest.fixture
def room(tmp_path: Path) -> Reviving:
    return Reviving(tmp_path)


def filled(room: Room, count: int) -> None:
    for number in range(count):
        room.put("T", b"%d" % number, KEYS=f"k{number}", TAGS="t")
    room.timers.run()


def test_what_is_not_acknowledged_comes_back(room: Reviving) -> None:
    filled(room, 3)
    pop_ms = room.clock.now_ms()
    point = room.take(0, 1, 2)
    room.acknowledge(point, 1)
    room.timers.run(INVISIBLE_MS)
    assert room.revived() == []
    room.timers.run(4000)
    assert room.revived() == [b"0", b"2"]
    record: Record = room.records(RETRY)[0]
    assert record.reconsume_times == 1
    assert record.properties == {
        "KEYS": "k0", "TAGS": "t", "1ST_POP_TIME": str(pop_ms), "ORIGIN_GROUP": "G",
    }  # fmt: skip
    assert room.offsets.committed("G", RETRY, 0) == 0
    assert room.offsets.committed(GROUP, REVIVE, 0) == 0


def test_all_acknowledged_at_once(room: Reviving) -> None:
    filled(room, 3)
    room.acknowledge(room.take(0, 1, 2), 0, 1, 2)
    room.timers.run(20_000)
    assert RETRY not in room.topics
    assert room.offsets.committed(GROUP, REVIVE, 0) == 0


def test_a_late_timer_is_waited_for(room: Reviving) -> None:
    filled(room, 1)
    room.behind = True
    room.take(0)
    room.timers.run(60_000)
    assert room.revived() == []
    room.behind = False
    room.timers.run(2000)
    assert room.revived() == [b"0"]


def test_a_newer_message_settles_it_without_a_pause(room: Reviving) -> None:
    filled(room, 2)
    room.behind = True
    room.take(0)
    room.clock.advance(4000)
    room.take(1)
    room.timers.run(1000)
    assert room.revived() == [b"0"]


def test_a_message_of_the_retry_topic_stays_there_and_counts(room: Reviving) -> None:
    filled(room, 1)
    room.take(0)
    room.timers.run(14_000)
    first_ms = room.records(RETRY)[0].properties["1ST_POP_TIME"]
    room.take(0, topic=RETRY)
    room.timers.run(14_000)
    _, again = room.records(RETRY)
    assert (again.reconsume_times, again.properties["1ST_POP_TIME"]) == (2, first_ms)


def test_suspended_messages_do_not_count(room: Reviving) -> None:
    filled(room, 1)
    point = CheckPoint("T", "G", 0, 0, room.clock.now_ms(), INVISIBLE_MS, [0], "b", suspend=True)
    room.appender.put(point.message(REVIVE, 0, room.clock.now_ms()), hooks=False)
    room.timers.run(14_000)
    assert room.records(RETRY)[0].reconsume_times == 0


@pytest.mark.parametrize(("topic", "group"), [("Gone", "G"), ("T", "no/such/group")])
def test_without_topic_or_group_nothing_comes_back(room: Reviving, topic: str, group: str) -> None:
    filled(room, 1)
    room.take(0, topic=topic, group=group)
    room.timers.run(20_000)
    assert [name for name in room.topics if name.startswith("%RETRY%")] == []
    assert room.offsets.committed(GROUP, REVIVE, 0) == 0


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"t":1}', b'{"t":"T","c":"G","d":["x"]}', b'{"t":"T","c":"G","n":9999999}']
)
def test_what_cannot_be_read_is_passed_over(room: Reviving, body: bytes) -> None:
    filled(room, 1)
    room.put(REVIVE, body or b" ", TAGS="ck")
    room.put(REVIVE, body or b" ", TAGS="ack")
    room.put(REVIVE, body or b" ", TAGS="bAck")
    room.take(0)
    room.timers.run(20_000)
    assert room.revived() == [b"0"]


@pytest.mark.parametrize("run_ms", range(10_000, 16_000, 500))
def test_a_kill_at_any_time_repeats_nothing(tmp_path: Path, run_ms: int) -> None:
    room = Reviving(tmp_path)
    filled(room, 40)
    old = room.offsets.to_json()
    points = [room.take(*range(at, at + 10)) for at in range(0, 40, 10)]
    for point in points[1:]:
        room.acknowledge(point, *point.offsets[:9])
    room.timers.run(run_ms)
    room.kill()
    room = Reviving(tmp_path, old, now_ms=room.clock.now_ms())
    room.timers.run(20_000)
    assert sorted(map(int, room.revived())) == [*range(10), 19, 29, 39]


def test_many_at_once_are_revived_in_slices(room: Reviving) -> None:
    filled(room, 600)
    for at in range(0, 600, 2):
        room.take(at, at + 1)
    room.timers.run(14_000)
    assert len(room.revived()) == 600
    assert room.revive.pending == 0
