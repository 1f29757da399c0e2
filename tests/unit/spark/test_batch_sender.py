"""The batch sender: which requests it makes of Arrow batches, and its errors. With a fake sender."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from firearrow._native.store.log.batch import items_of
from firearrow.client.base.compression import FLAGS, open_body
from firearrow.client.base.message import MessageQueue, decode_properties
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.arrow import batch_sender
from firearrow.spark_tools.arrow.batch_sender import BatchSender, SinkSettings, first_id, unique_ids
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse
from firearrow.spark_tools.base.errors import InvalidOption, SendFailed, TopicNotFound

IDS = (unique_ids("a test"), 0)


@dataclass
class Request:
    queue: MessageQueue
    messages: list[tuple[int, bytes, dict[str, str]]]
    alone: bool
    sys_flag: int
    sender: "FakeSender"

    def wait(self) -> Sequence[int]:
        if self.sender.fails_at is not None and self.sender.waited >= self.sender.fails_at:
            raise SendFailed("broker-a: gone")
        self.sender.waited += 1
        first = self.sender.ends.get(self.queue, 0)
        self.sender.ends[self.queue] = first + len(self.messages)
        return range(first, first + len(self.messages))


@dataclass
class FakeSender:
    count: int = 4
    fails_at: int | None = None
    requests: list[Request] = field(default_factory=list)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    waited: int = 0

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker-a", number) for number in range(self.count)]

    def send_batch(
        self, queue: MessageQueue, body: bytes, count: int, *, sys_flag: int = 0, born_ms: int = 0
    ) -> Request:
        items = [(flag, text, decode_properties(properties)) for flag, text, properties in items_of(body)]
        assert len(items) == count
        assert born_ms > 0
        return self._sent(Request(queue, items, False, sys_flag, self))

    def send_one(
        self,
        queue: MessageQueue,
        flag: int,
        body: bytes,
        properties: bytes,
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        born_ms: int = 0,
    ) -> Request:
        return self._sent(Request(queue, [(flag, body, decode_properties(properties))], True, sys_flag, self))

    def _sent(self, request: Request) -> Request:
        self.requests.append(request)
        return request


def sent(batch: pa.RecordBatch, sink_settings: SinkSettings, count: int = 4) -> list[Request]:
    sender = FakeSender(count)
    out = BatchSender(sender, sink_settings, IDS)
    out.send(batch)
    assert out.finish().messages == batch.num_rows
    return sender.requests


def test_rows_of_no_queue_go_round_all_of_them_batch_by_batch() -> None:
    batch = pa.record_batch({"body": ["x" * 1000] * 40})
    requests = sent(batch, SinkSettings(topic="T", batch_bytes=10_000))
    assert len(requests) == 5
    assert len({request.queue for request in requests}) == 4
    assert all(not request.alone for request in requests)


def test_ids_go_on_from_batch_to_batch_and_are_the_same_when_sent_again() -> None:
    def ids() -> list[str]:
        sender = FakeSender()
        out = BatchSender(sender, SinkSettings(topic="T"), IDS)
        for _ in range(3):
            out.send(pa.record_batch({"body": ["a", "b"]}))
        return [item[2]["UNIQ_KEY"] for request in sender.requests for item in request.messages]

    assert ids() == [f"{IDS[0]}{number:012X}" for number in range(6)] == ids()
    assert unique_ids("a", 1) != unique_ids("a", 2)


def test_the_number_of_an_id_is_the_time_of_the_month_where_javas_ids_have_it() -> None:
    now = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    assert first_id(now) >> 16 == (30 * 86400 - 1) * 1000
    assert first_id(now + timedelta(seconds=1)) == 0


def test_messages_with_a_delay_go_alone_and_the_others_together() -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "body": ["a", "b", "c", "d"],
            "delayLevel": pa.array([None, 3, 0, None], pa.int32()),
            "deliverTime": pa.array([None, None, None, when], pa.timestamp("us", tz="UTC")),
        }
    )
    together, level, time = sent(batch, SinkSettings(topic="T", queues=QueueIdUse.ANY))
    assert [item[1] for item in together.messages] == [b"a", b"c"]
    assert level.alone
    assert level.messages[0][2]["DELAY"] == "3"
    assert time.messages[0][2]["TIMER_DELIVER_MS"] == str(int(when.timestamp() * 1000))


def test_a_time_can_be_given_in_milliseconds_and_not_with_a_level() -> None:
    batch = pa.record_batch({"body": ["a"], "deliverTime": [1234]})
    assert sent(batch, SinkSettings(topic="T"))[0].messages[0][2]["TIMER_DELIVER_MS"] == "1234"
    for level, time, sentence in (
        (1, 1, "a row has both"),
        (-1, None, "negative in a row"),
        (None, -5, "negative in a row"),
    ):
        wrong = pa.record_batch(
            {
                "body": ["a"],
                "delayLevel": pa.array([level], pa.int32()),
                "deliverTime": pa.array([time], pa.int64()),
            }
        )
        with pytest.raises(InvalidOption, match=sentence):
            sent(wrong, SinkSettings(topic="T"))


def test_messages_of_retry_topics_go_alone() -> None:
    requests = sent(pa.record_batch({"body": ["a", "b"]}), SinkSettings(topic="%RETRY%group"))
    assert [(request.alone, len(request.messages)) for request in requests] == [(True, 1), (True, 1)]


def test_compressed_bodies_are_recognised_by_their_flag_and_keep_their_order() -> None:
    flags = pa.array([0x301, 0x30, None, 0x301], pa.int32())
    batch = pa.record_batch({"body": [b"a", b"b", b"c", b"d"], "sysFlag": flags})
    requests = sent(batch, SinkSettings(topic="T", packed_bodies=True))
    assert [(request.sys_flag, [item[1] for item in request.messages]) for request in requests] == [
        (0x301, [b"a"]),
        (0, [b"b", b"c"]),
        (0x301, [b"d"]),
    ]
    assert [request.sys_flag for request in sent(batch, SinkSettings(topic="T"))] == [0]


@pytest.mark.parametrize("kind", list(CompressionKind))
def test_each_body_is_compressed_by_itself(kind: CompressionKind) -> None:
    bodies = [b"a" * 5000, b"", b"b"]
    for column in (pa.array(bodies), pa.array([body.decode() for body in bodies])):
        batch = pa.record_batch({"body": column})
        (request,) = sent(batch, SinkSettings(topic="T", compression=kind))
        assert request.sys_flag == FLAGS[kind]
        assert [open_body(request.sys_flag, item[1]) for item in request.messages] == bodies
        assert len(request.messages[0][1]) < 200


def test_provenance_says_where_a_row_was_read_and_replaces_an_older_one() -> None:
    older = [("REPLAY_JOB", "older"), ("REPLAY_OFFSET", "1"), ("x", "y")]
    batch = pa.record_batch(
        {
            "body": ["a"],
            "topic": ["T"],
            "brokerName": ["src"],
            "queueId": pa.array([2], pa.int32()),
            "queueOffset": [77],
            "properties": pa.array([older], pa.map_(pa.string(), pa.string())),
        }
    )
    (request,) = sent(batch, SinkSettings(job="nightly"))
    assert request.queue == MessageQueue("T", "broker-a", 2)
    assert request.messages[0][2] == {
        "x": "y",
        "REPLAY_JOB": "nightly",
        "REPLAY_BROKER": "src",
        "REPLAY_TOPIC": "T",
        "REPLAY_QUEUE": "2",
        "REPLAY_OFFSET": "77",
        "UNIQ_KEY": f"{IDS[0]}{0:012X}",
    }


def test_what_brokers_set_themselves_or_what_would_act_again_is_left_out() -> None:
    held = [("DELAY", "3"), ("CLUSTER", "c"), ("TRAN_MSG", "true"), ("colour", "red")]
    batch = pa.record_batch(
        {"body": ["a"], "properties": pa.array([held], pa.map_(pa.string(), pa.string()))}
    )
    (request,) = sent(batch, SinkSettings(topic="T"))
    assert request.messages[0][2].keys() == {"colour", "UNIQ_KEY"}


def test_a_failure_says_how_much_the_target_has_already() -> None:
    sender = FakeSender(fails_at=2)
    out = BatchSender(sender, SinkSettings(topic="T", batch_bytes=1024), IDS)
    out.send(pa.record_batch({"body": ["x" * 900] * 5}))
    with pytest.raises(
        SendFailed, match="broker-a: gone; 2 messages in 2 queues were sent before and remain"
    ):
        out.finish()


def test_never_more_than_a_window_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "WINDOW_BYTES", 2500)
    sender = FakeSender()
    out = BatchSender(sender, SinkSettings(topic="T", batch_bytes=1024), IDS)
    out.send(pa.record_batch({"body": ["x" * 900] * 10}))
    assert len(sender.requests) == 10
    assert sender.waited == 8
    assert out.finish().messages == 10


def test_nothing_of_a_batch_is_sent_when_a_row_has_no_queue() -> None:
    sender = FakeSender()
    out = BatchSender(sender, SinkSettings(), IDS)
    with pytest.raises(InvalidOption, match="queueId"):
        out.send(pa.record_batch({"body": ["a", "b"], "topic": ["A", "B"], "queueId": [0, 9]}))
    assert not sender.requests


def test_a_topic_that_takes_nothing_is_refused() -> None:
    with pytest.raises(
        TopicNotFound, match="topic T has no writable queue at the target; change its permissions"
    ):
        sent(pa.record_batch({"body": ["a"]}), SinkSettings(topic="T"), count=0)


def test_what_is_sent_is_counted_by_queue() -> None:
    sender = FakeSender(count=2)
    out = BatchSender(sender, SinkSettings(topic="T"), IDS)
    for _ in range(2):
        out.send(pa.record_batch({"body": ["a", "b", "c"], "queueId": [0, 1, 1]}))
    done = out.finish()
    assert {queue.queue_id: span for queue, span in done.queues.items()} == {0: (0, 1), 1: (0, 3)}
    assert str(done) == "6 messages in 2 queues"
