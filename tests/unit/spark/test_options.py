"""Options of a read: understood in any case, checked against each other, and each refusal names its option."""

import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.plan.offsets import AtTime, AtTimes, OffsetEdge, PerQueue
from firearrow.spark_tools.plan.option_parsing import VALUE_CHARS_MAX
from firearrow.spark_tools.plan.options import BATCH, STREAM, SourceOptions
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.plan.topics import AssignedQueues

Q0 = MessageQueue("T", "a", 0)
OFFSETS = '{"T": {"a": {"0": 5}}}'


def options(use: str = BATCH, **given: str) -> SourceOptions:
    return SourceOptions.of({"path": "/s", **given}, use)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"topic": "A, B,A"}, "topic", ("A", "B")),
        ({"topicPattern": "Or.*"}, "pattern", "Or.*"),
        ({"assign": '{"T": [1, 0]}'}, "assign", (AssignedQueues("T", None, frozenset({0, 1})),)),
        ({"assign": '{"T": {"a": [2]}}'}, "assign", (AssignedQueues("T", "a", frozenset({2})),)),
        ({"waitForTopic": "5m"}, "wait_s", 300.0),
        ({"pollTimeout": "1500ms"}, "timeout_s", 1.5),
        ({"endingOffsets": OFFSETS}, "end", PerQueue({Q0: 5})),
        ({"startingOffsets": " EARLIEST "}, "start", OffsetEdge.EARLIEST),
        ({"startingTimestamp": "1970-01-01T00:00:02"}, "start_ms", 2000),
        ({"endingTimestamp": "2000"}, "end_ms", 2000),
        ({"startingOffsetsByTimestamp": OFFSETS}, "start_times", AtTimes({Q0: 5})),
        ({"startingOffsetsByTimestampStrategy": "Latest"}, "strategy", "latest"),
        ({"failOnDataLoss": "FALSE"}, "fail_on_loss", False),
        ({"tags": "A || B"}, "tags", frozenset({"A", "B"})),
        ({"tags": "*"}, "tags", frozenset()),
        ({"keys": "k1,k2"}, "keys", frozenset({"k1", "k2"})),
        ({"keysByIndex": "true", "keys": "k"}, "by_index", True),
        ({"keysByIndex": "true", "pushedFilters": '{"keys": ["k"]}'}, "by_index", True),
        ({"pushedFilters": '{"stored": [null, 5]}'}, "pushdown", Pushdown(stored=(None, 5))),
        ({"sql": "price > 10"}, "sql", "price > 10"),
        ({"columns": "topic,body"}, "columns", ("topic", "body")),
        ({"includeProperties": "false"}, "properties", False),
        ({"minPartitions": "12"}, "parts_min", 12),
        ({"maxRecordsPerPartition": "100"}, "part_records", 100),
        ({"maxBytesPerPartition": "64m"}, "part_bytes", 64 << 20),
        ({"maxBytesPerPartition": "1 GiB"}, "part_bytes", 1 << 30),
        ({"paths": '["/s1", "b=/s2"]', "path": "/s"}, "paths", ("/s1", "b=/s2")),
    ],
)
def test_each_option_is_understood(given: dict[str, str], field: str, value: object) -> None:
    assert getattr(options(**given), field) == value


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"maxOffsetsPerTrigger": "10"}, "trigger_messages", 10),
        ({"minOffsetsPerTrigger": "10"}, "trigger_messages_min", 10),
        ({"maxTriggerDelay": "1h"}, "trigger_delay_s", 3600.0),
        ({"maxBytesPerTrigger": "1m"}, "trigger_bytes", 1 << 20),
    ],
)
def test_streams_have_separate_options(given: dict[str, str], field: str, value: object) -> None:
    assert getattr(options(STREAM, **given), field) == value
    with pytest.raises(InvalidOption, match=f"{next(iter(given))}: this option is only for stream"):
        options(BATCH, **given)


def test_names_are_read_in_any_case_as_spark_lowers_them() -> None:
    assert SourceOptions.of({"PATH": "/s", "maxbytesperpartition": "1m"}, BATCH).part_bytes == 1 << 20


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingOfsets": "latest"}, "startingOfsets: unknown option; did you mean startingOffsets?"),
        ({"zzz": "1"}, "zzz: unknown option; options are, for example, path, paths, nameServer, "),
        ({"topic": "A,,B"}, "topic='A,,B': expected names separated by commas"),
        ({"topicPattern": "("}, "topicPattern='(': not a valid regular expression"),
        ({"assign": "{}"}, "assign"),
        ({"assign": '{"T": []}'}, "assign"),
        ({"assign": '{"T": [-1]}'}, "assign"),
        ({"assign": '{"T": {"a": [0]}, "T": {"a": [1]}}'}, "'T' is named twice"),
        ({"startingOffsets": "first"}, "startingOffsets='first': expected earliest, latest or JSON"),
        ({"startingOffsets": '{"T": {"a": {"0": -3}}}'}, "startingOffsets"),
        ({"startingOffsets": '{"T": {"a": {"0": 1.5}}}'}, "startingOffsets"),
        ({"startingOffsets": '{"T": {"a": {"0": true}}}'}, "startingOffsets"),
        ({"startingOffsets": '{"T": {"a": {"x": 1}}}'}, "startingOffsets"),
        ({"startingOffsets": '{"T": {"a": 1}}'}, "queues of T at a"),
        ({"startingOffsets": '{"T": {"a": {"0": NaN}}}'}, "NaN is not valid JSON"),
        ({"startingOffsets": '{"T": {"a": {"0": ' + "9" * 30 + "}}}"}, "30 digits"),
        ({"startingOffsets": "{" * 5000}, "startingOffsets"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch that starts at the latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets='earliest': reading cannot end"),
        ({"endingOffsets": '{"T": {"a": {"0": -2}}}'}, "reading cannot end"),
        ({"startingTimestamp": "soon"}, "startingTimestamp='soon'"),
        ({"startingTimestamp": "10", "endingTimestamp": "9"}, "endingTimestamp: is before startingTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "expected error or latest"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss='no': expected true or false"),
        ({"tags": "A || *"}, "tags"),
        ({"minPartitions": "0"}, "minPartitions='0': expected a whole number from 1"),
        ({"minPartitions": "100001"}, "minPartitions"),
        ({"maxBytesPerPartition": "1"}, "maxBytesPerPartition='1': expected 65536 to"),
        ({"batchRows": "8193"}, "batchRows"),
        ({"nameServer": "x:1"}, "path or nameServer: set one"),
        ({"topic": "A", "topics": "B"}, "topic and topics"),
        ({"topic": "A", "topicPattern": "B"}, "topic, topicPattern and assign exclude"),
        ({"columns": "properties", "includeProperties": "false"}, "includeProperties"),
        ({"paths": "[1]"}, "paths"),
        ({"keysByIndex": "true"}, "keysByIndex: no keys to look up; set keys"),
    ],
)
def test_a_refusal_is_one_sentence_that_names_the_option(given: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        options(**given)
    assert expected in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


def test_a_value_is_text_of_a_bounded_length() -> None:
    at_most = '{"T": {"a": {"0": 5}}}'.ljust(VALUE_CHARS_MAX)
    assert options(startingOffsets=at_most).start == PerQueue({Q0: 5})
    with pytest.raises(InvalidOption, match=f"startingOffsets: {VALUE_CHARS_MAX + 1} characters"):
        options(startingOffsets=at_most + " ")
    with pytest.raises(InvalidOption, match="topic: expected a string, not None"):
        SourceOptions.of({"path": "/s", "topic": None}, BATCH)  # type: ignore[dict-item]


def test_somewhere_must_be_read_from() -> None:
    with pytest.raises(InvalidOption, match="path or nameServer"):
        SourceOptions.of({"topic": "A"}, BATCH)
    with pytest.raises(InvalidOption, match="topic: set topic, topicPattern or assign"):
        SourceOptions.of({"nameServer": "x:1"}, BATCH)
    with pytest.raises(InvalidOption, match=r"keysByIndex: .* only with path"):
        SourceOptions.of({"nameServer": "x:1", "topic": "A", "keys": "k", "keysByIndex": "true"}, BATCH)
    with pytest.raises(InvalidOption, match=r"commitGroup: .* only with nameServer"):
        options(STREAM, commitGroup="g")


def test_options_of_the_client_are_let_through() -> None:
    given = {"nameServer": "x:1", "topic": "A", "rocketmq.anything": "1"}
    assert SourceOptions.of(given, BATCH).name_server == "x:1"


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    every = {
        "startingOffsets": OFFSETS,
        "startingOffsetsByTimestamp": OFFSETS,
        "startingTimestamp": "7",
        "endingOffsets": OFFSETS,
        "endingOffsetsByTimestamp": OFFSETS,
        "endingTimestamp": "8",
    }
    seen = []
    for name in (
        None,
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
    ):
        every.pop(name or "", None)
        found = options(**every)
        seen.append((found.start_point(BATCH), found.end_point()))
    assert seen == [
        (AtTime(7), AtTime(8)),
        (AtTimes({Q0: 5}), AtTime(8)),
        (AtTimes({Q0: 5}), AtTimes({Q0: 5})),
        (PerQueue({Q0: 5}), AtTimes({Q0: 5})),
        (PerQueue({Q0: 5}), PerQueue({Q0: 5})),
    ]


def test_a_batch_begins_at_the_earliest_and_a_stream_at_the_latest() -> None:
    assert options().start_point(BATCH) is OffsetEdge.EARLIEST
    assert options(STREAM).start_point(STREAM) is OffsetEdge.LATEST
    assert options().end_point() is OffsetEdge.LATEST


def test_where_the_use_is_not_known_options_of_all_uses_are_read() -> None:
    given = {"path": "/s", "endingOffsets": "latest", "maxOffsetsPerTrigger": "1"}
    assert SourceOptions.of(given, None).trigger_messages == 1
