"""A stream whose topic is deleted and recreated, whose store is restored, or whose queues are taken away.

What is there is read, what is gone is lost by number, and nothing else is.
"""

import json
from dataclasses import dataclass, field

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import DataLoss
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.ranges import RangeStreamReader, planned_of, range_of
from firearrow.spark_tools.datasource.stream import StreamReader
from firearrow.spark_tools.jobs.copy_ import compare
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets
from firearrow.spark_tools.plan.stream_offsets import RELIST_S, StreamCursor
from tests.spark.fakes import FakeQueue, IdentifyingLog, queue_of
from tests.support.clock import ManualClock

Q0, Q1, Q2 = queue_of(0), queue_of(1), queue_of(2)
RETRY = queue_of(0, "%RETRY%workers")


@dataclass
class Stream:
    """A stream with its checkpoint. `ranges`: what its batches read; `lost`: what it reports, `notes`: of nothing
    lost."""

    log: IdentifyingLog
    options: dict[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    planned: tuple[str, str] | None = None
    """A batch that was planned, but not read."""
    clock: ManualClock = field(default_factory=lambda: ManualClock(0))

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **options: str) -> None:
        self.options |= options
        given = {"path": "/memory", "topicPattern": ".*%?.*", "startingOffsets": "earliest", **self.options}
        self.lost: list[tuple[str, str]] = []
        self.cursor = StreamCursor(
            self.log, SourceOptions.of(given, STREAM), clock=self.clock,
            lost=lambda part, why: self.lost.append((str(part), why)),
        )  # fmt: skip

    def batch(self, *, read: bool = True) -> list[str]:
        """What the next batch reads; none if there is nothing new. The checkpoint is JSON, as in Spark."""
        self.clock.advance(RELIST_S * 1000)
        if self.planned is not None:
            start, end = self.planned
        else:
            start = self.checkpoint or json.dumps(self.cursor.first().json())
            end = json.dumps(self.cursor.end(offsets(start), True).json())
        if start == end:
            return []
        self.planned = start, end
        if not read:
            return []
        parts = [str(piece) for part in self.cursor.parts(offsets(start), offsets(end)) for piece in part]
        self.checkpoint, self.planned = end, None
        return parts

    @property
    def losses(self) -> list[str]:
        return [part for part, _ in self.lost if not part.endswith(empty(part))]

    @property
    def notes(self) -> list[str]:
        return [why for part, why in self.lost if part.endswith(empty(part))]


def empty(part: str) -> str:
    """The text of an empty range that begins where `part` does."""
    begin = part.partition("[")[2].partition("..")[0]
    return f"[{begin}..{begin})"


def offsets(text: str) -> StreamOffsets:
    return StreamOffsets.of_json(json.loads(text))


def at(queue: MessageQueue, start: int, end: int) -> str:
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}[{start}..{end})"


@pytest.fixture
def log() -> IdentifyingLog:
    log = IdentifyingLog()
    log.add(Q0, 10)
    return log


@pytest.fixture
def drained(log: IdentifyingLog) -> Stream:
    """It has read all ten messages of Q0."""
    stream = Stream(log)
    assert stream.batch() == [at(Q0, 0, 10)]
    assert stream.batch() == []
    return stream


def recreate(log: IdentifyingLog, queue: MessageQueue, count: int) -> None:
    log.delete(queue)
    log.add(queue, count)


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("count", [1, 4, 9, 10, 11, 30])
def test_the_messages_of_a_topic_that_was_recreated_are_read_from_the_first(
    drained: Stream, count: int, restarted: bool
) -> None:
    recreate(drained.log, Q0, count)
    if restarted:
        drained.restart()
    assert drained.batch() == [at(Q0, 0, count)]
    assert drained.losses == []
    (note,) = drained.notes
    assert "deleted and recreated" in note
    drained.log.add(Q0, 5)
    assert drained.batch() == [at(Q0, count, count + 5)]
    assert drained.batch() == []
    assert len(drained.lost) == 1


def test_a_topic_is_recreated_twice(drained: Stream) -> None:
    for count in (4, 4):
        recreate(drained.log, Q0, count)
        assert drained.batch() == [at(Q0, 0, count)]
    assert drained.losses == []


def test_a_retry_topic_is_recreated(log: IdentifyingLog) -> None:
    log.add(RETRY, 3)
    stream = Stream(log)
    assert stream.batch() == [at(RETRY, 0, 3), at(Q0, 0, 10)]
    recreate(log, RETRY, 2)
    assert stream.batch() == [at(RETRY, 0, 2)]


def test_a_topic_that_is_recreated_and_empty_loses_nothing(drained: Stream) -> None:
    drained.log.delete(Q0)
    drained.log.queues_there[Q0] = FakeQueue()
    assert drained.batch() == []
    drained.log.add(Q0, 2)
    assert drained.batch() == [at(Q0, 0, 2)]
    assert drained.losses == []


def test_what_was_not_read_before_the_topic_was_deleted_is_lost_by_number(log: IdentifyingLog) -> None:
    stream = Stream(log, {"maxOffsetsPerTrigger": "6", "failOnDataLoss": "false"})
    assert stream.batch() == [at(Q0, 0, 6)]
    stream.cursor.end(offsets(stream.checkpoint or ""), True)
    recreate(log, Q0, 8)
    assert stream.batch() == [at(Q0, 0, 6)]
    assert stream.batch() == [at(Q0, 6, 8)]
    assert stream.losses == [at(Q0, 6, 10)]


def test_a_batch_that_was_planned_before_is_lost_and_the_new_messages_are_read(drained: Stream) -> None:
    drained.log.add(Q0, 5)
    drained.batch(read=False)
    recreate(drained.log, Q0, 20)
    drained.restart()
    with pytest.raises(DataLoss, match=r"0\[10\.\.15\): not read before the topic was deleted"):
        drained.batch()
    drained.restart(failOnDataLoss="false")
    assert drained.batch() == []
    assert drained.losses == [at(Q0, 10, 15)]
    assert drained.batch() == [at(Q0, 0, 20)]
    drained.restart(failOnDataLoss="true")
    assert drained.batch() == []


def test_a_batch_of_the_new_topic_that_is_planned_again_is_the_same(drained: Stream) -> None:
    recreate(drained.log, Q0, 20)
    drained.batch(read=False)
    drained.log.add(Q0, 1)
    drained.restart()
    assert drained.batch() == [at(Q0, 0, 20)]
    assert drained.batch() == [at(Q0, 20, 21)]


@pytest.mark.parametrize("more", [1, 3, 4, 20])
def test_a_store_that_was_restored_is_read_from_where_it_differs(log: IdentifyingLog, more: int) -> None:
    backup = log.backup()
    log.add(Q0, 4)
    stream = Stream(log)
    assert stream.batch() == [at(Q0, 0, 14)]
    log.restore(backup)
    stream.restart()
    with pytest.raises(
        DataLoss, match=r"0\[10\.\.14\): the queue now ends at 10, before the stream's offset"
    ):
        stream.batch()  # perhaps there were more
    stream.restart(failOnDataLoss="false")
    assert stream.batch() == []
    stream.restart(failOnDataLoss="true")
    assert stream.batch() == []
    log.add(Q0, more)
    assert stream.batch() == [at(Q0, 10, 10 + more)]
    assert stream.losses == []
    log.add(Q0, 7)
    assert stream.batch() == [at(Q0, 10 + more, 17 + more)]


def test_a_new_store_with_an_earlier_clock_is_read_from_its_first_message(drained: Stream) -> None:
    drained.log.delete(Q0)
    drained.log.end, drained.log.now_ms = 0, drained.log.now_ms - 100_000
    drained.log.add(Q0, 4)
    assert drained.batch() == [at(Q0, 0, 4)]


def test_what_has_expired_is_lost_and_the_rest_is_read(drained: Stream) -> None:
    drained.restart(failOnDataLoss="false")
    drained.log.add(Q0, 20)
    drained.log.expire(Q0, 15)
    assert drained.batch() == [at(Q0, 15, 30)]
    assert drained.losses == [at(Q0, 10, 15)]


def test_a_stream_from_the_latest_offset_whose_messages_had_expired(log: IdentifyingLog) -> None:
    log.expire(Q0, 10)
    stream = Stream(log, {"startingOffsets": "latest"})
    stream.checkpoint = json.dumps(stream.cursor.first().json())
    assert stream.batch() == []
    recreate(log, Q0, 4)
    assert stream.batch() == [at(Q0, 0, 4)]
    assert stream.losses == []


def test_a_stream_from_the_latest_offset_that_has_read_nothing(log: IdentifyingLog) -> None:
    stream = Stream(log, {"startingOffsets": "latest"})
    stream.checkpoint = json.dumps(stream.cursor.first().json())
    recreate(log, Q0, 14)
    assert stream.batch() == [at(Q0, 0, 14)]


def test_a_checkpoint_of_an_earlier_version_is_read_as_before_and_gets_records(log: IdentifyingLog) -> None:
    stream = Stream(log)
    stream.checkpoint = json.dumps({"Orders": {"broker-a": {"0": 4}}})
    assert stream.batch() == [at(Q0, 4, 10)]
    recreate(log, Q0, 3)
    assert stream.batch() == [at(Q0, 0, 3)]
    stream.checkpoint = json.dumps({"Orders": {"broker-a": {"0": 10}}})
    stream.restart()
    with pytest.raises(DataLoss, match=r"0\[3\.\.10\): the queue now ends at 3"):
        stream.batch()


def test_a_queue_that_was_drained_is_taken_away_and_brought_back(log: IdentifyingLog) -> None:
    log.add(Q1, 5)
    stream = Stream(log)
    assert stream.batch() == [at(Q0, 0, 10), at(Q1, 0, 5)]
    log.taken_away[Q1] = log.queues_there.pop(Q1)
    log.add(Q0, 1)
    assert stream.batch() == [at(Q0, 10, 11)]
    stream.restart()
    assert stream.batch() == []
    log.queues_there[Q1] = log.taken_away.pop(Q1)
    log.add(Q1, 2)
    assert stream.batch() == [at(Q1, 5, 7)]
    assert stream.lost == []


def test_a_queue_with_unread_messages_is_taken_away(log: IdentifyingLog) -> None:
    log.add(Q1, 5)
    stream = Stream(log)
    stream.batch()
    log.add(Q1, 3)
    log.taken_away[Q1] = log.queues_there.pop(Q1)
    with pytest.raises(
        DataLoss, match=r"1\[5\.\.8\): the topic has fewer queues now; increase its readQueueNums"
    ):
        stream.batch()
    stream.restart(failOnDataLoss="false")
    for _ in range(3):
        assert stream.batch() == []
    assert stream.losses == [at(Q1, 5, 8)]
    log.queues_there[Q1] = log.taken_away.pop(Q1)
    assert stream.batch() == [at(Q1, 5, 8)]


def test_a_topic_is_recreated_with_fewer_queues(log: IdentifyingLog) -> None:
    log.add(Q1, 5)
    stream = Stream(log)
    stream.batch()
    log.delete(Q0, Q1)
    log.taken_away[Q1] = FakeQueue()
    log.add(Q0, 2)
    assert stream.batch() == [at(Q0, 0, 2)]
    stream.restart()
    assert stream.batch() == []
    assert stream.lost == []


def test_assigned_queues_of_which_one_is_taken_away(log: IdentifyingLog) -> None:
    log.add(Q1, 5)
    stream = Stream(log)
    stream.options = {"assign": '{"Orders": [0, 1]}', "failOnDataLoss": "true"}
    given = {"path": "/memory", "startingOffsets": "earliest", **stream.options}
    stream.cursor = StreamCursor(log, SourceOptions.of(given, STREAM), clock=stream.clock)
    assert stream.batch() == [at(Q0, 0, 10), at(Q1, 0, 5)]
    log.taken_away[Q1] = log.queues_there.pop(Q1)
    log.add(Q0, 1)
    assert stream.batch() == [at(Q0, 10, 11)]


def test_a_topic_that_was_read_to_its_end_and_deleted_ends_no_stream(log: IdentifyingLog) -> None:
    other = queue_of(0, "Other")
    log.add(other, 3)
    stream = Stream(log)
    stream.batch()
    assert stream.batch() == []
    log.delete(other)
    assert stream.batch() == []
    stream.restart()
    assert stream.batch() == []
    log.add(other, 2)
    log.add(Q0, 1)
    assert stream.batch() == [at(Q0, 10, 11), at(other, 0, 2)]
    assert stream.losses == []


def test_a_topic_that_was_deleted_while_the_stream_was_ended_is_reported_once(log: IdentifyingLog) -> None:
    other = queue_of(0, "Other")
    log.add(other, 3)
    stream = Stream(log)
    stream.batch()
    log.delete(other)
    stream.restart()
    with pytest.raises(DataLoss, match="the queue no longer exists"):
        stream.batch()
    stream.restart(failOnDataLoss="false")
    assert stream.batch() == []
    stream.restart(failOnDataLoss="true")
    log.add(Q0, 1)
    assert stream.batch() == [at(Q0, 10, 11)]


@pytest.mark.parametrize("restored", [False, True])
def test_a_topic_that_is_recreated_while_it_is_read_is_lost(log: IdentifyingLog, restored: bool) -> None:
    """The log has as many messages again, so that the range is there."""
    backup = log.backup()
    given = {"path": "/memory", "topic": "Orders", "startingOffsets": "earliest"}
    reader = StreamReader(log, SourceOptions.of(given, STREAM), ("queueOffset",))
    log.add(Q0, 5)
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    pickle = CloudPickleSerializer()
    (part,) = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    assert sum(batch.num_rows for batch in reader.read(part)) == 15
    if restored:
        log.restore(backup)
        log.add(Q0, 5)
    else:
        recreate(log, Q0, 15)
    with pytest.raises(
        DataLoss, match=r"0\[0\.\.15\): the topic was deleted and recreated.* while they were read"
    ):
        list(reader.read(part))


def test_a_copy_counts_what_was_recreated_while_it_was_copied(log: IdentifyingLog) -> None:
    log.add(Q1, 5)
    given = {"path": "/memory", "topic": "Orders", "startingOffsets": "earliest"}
    reader = RangeStreamReader(log, SourceOptions.of(given, STREAM), ())
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
    parts, planned = [range_of(row) for row in rows], planned_of(rows)
    assert planned == {Q0: 10, Q1: 5}
    lost: list[str] = []

    def count(part: QueueRange, why: str) -> None:
        lost.append(str(part))

    compare(log, True, parts, planned, count)
    recreate(log, Q1, 7)
    with pytest.raises(DataLoss, match=r"1\[0\.\.5\)"):
        compare(log, True, parts, planned, count)
    assert lost == []
    compare(log, False, parts, planned, count)
    assert lost == [at(Q1, 0, 5)]
    log.delete(Q0, Q1)
    log.strict = True
    compare(log, True, parts, planned, count)


def test_the_json_of_a_checkpoint_can_be_given_as_an_option(drained: Stream) -> None:
    assert drained.checkpoint is not None
    text = drained.checkpoint
    assert json.loads(text)["@records"]["Orders"]["broker-a"]["0"]["last"][0] == 9
    drained.log.add(Q0, 2)
    drained.checkpoint = None
    drained.restart(startingOffsets=text)
    assert drained.batch() == [at(Q0, 10, 12)]


@pytest.mark.parametrize(
    "records", [7, {"Orders": 7}, {"Orders": {"b": {"0": 7}}}, {"Orders": {"b": {"0": {"last": [1]}}}}]
)
def test_records_that_are_not_of_this_form_are_refused(records: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        StreamOffsets.of_json({"@records": records})
