"""Which messages the timer accepts, when they are due, and what identifies them for a recall."""

import dataclasses
import random

import pytest

from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message
from firearrow.broker.base.options import Options, options_by_key, value_of
from firearrow.broker.timers import metrics as timer_metrics
from firearrow.broker.timers import rules
from firearrow.broker.timers.metrics import TimerMetrics
from firearrow.broker.timers.recall_handle import InvalidRecallHandle, RecallHandle, recall_handle
from tests.support.clock import ManualClock

NOW = 1_700_000_000_250
OPTIONS = Options()


def scheduled(count: int = 0, options: Options = OPTIONS, **properties: str) -> Message:
    message = Message("T", 3, b"", dict(properties))
    rules.schedule(message, NOW, options, lambda time_ms: count)
    return message


@pytest.mark.parametrize(
    ("properties", "out_ms"),
    [
        ({"TIMER_DELAY_SEC": "2"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "1750"}, 1_700_000_001_000),  # due at a whole second: the slot before
        ({"TIMER_DELAY_MS": "1751"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "+1751"}, 1_700_000_002_000),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, 1_700_000_000_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_700_259_200_000),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "x", "TIMER_DELIVER_MS": "1"}, 1_700_000_002_000),
        ({"TIMER_DELAY_MS": "1751", "TIMER_DELIVER_MS": "1"}, 1_700_000_002_000),
    ],
)
def test_the_slot_of_a_message(properties: dict[str, str], out_ms: int) -> None:
    message = scheduled(**properties)
    assert (message.topic, message.queue_id) == ("rmq_sys_wheel_timer", 0)
    marks = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert message.properties == properties | marks


@pytest.mark.parametrize(
    "properties", [{"TIMER_DELAY_SEC": "0"}, {"TIMER_DELAY_MS": "-5"}, {"TIMER_DELIVER_MS": "1"}]
)
def test_due_messages_go_directly_to_their_topic(properties: dict[str, str]) -> None:
    message = scheduled(**properties)
    assert (message.topic, message.queue_id, message.properties) == ("T", 3, properties)


@pytest.mark.parametrize("text", ["", "x", "1.5", " 1", "1 ", "1e3", "٣", "--1", "9" * 19])
@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_invalid_times_are_refused(name: str, text: str) -> None:
    with pytest.raises(Refusal, match="timer message illegal"):
        scheduled(**{name: text})


def test_the_longest_delay() -> None:
    options = dataclasses.replace(OPTIONS, timer_max_delay_s=10)
    assert scheduled(options=options, TIMER_DELAY_MS="10000").topic != "T"
    with pytest.raises(Refusal, match="max delay 10000ms"):
        scheduled(options=options, TIMER_DELAY_MS="10001")


def test_a_crowded_slot_refuses_more_the_fuller_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "random", random.Random(3))
    refused = [
        sum(rules.is_crowded(count, 100) for _ in range(1000)) for count in (100, 110, 150, 190, 200, 300)
    ]
    assert refused[0] == 0
    assert refused == sorted(refused)
    assert 50 < refused[1] < 150
    assert refused[-2:] == [1000, 1000]


@pytest.mark.parametrize(
    ("text", "step_ms"), [("1", 100), ("199", 100), ("200", 200), ("999", 500), ("5000", 1000)]
)
def test_precisions_are_rounded_as_apache_does(text: str, step_ms: int) -> None:
    assert value_of(options_by_key()["timerPrecisionMs"], text) == step_ms


def test_a_handle_equals_apaches() -> None:
    """From the recorded session `producer-timer`."""
    properties = {
        "TIMER_OUT_MS": "1795229115000",
        "REAL_TOPIC": "GoldenTimer",
        "UNIQ_KEY": "C00002025FFF4E0E2F2A67965C560033",
    }
    text = recall_handle(Message("rmq_sys_wheel_timer", 0, b"", properties), "broker-a")
    assert text == (
        "djEgR29sZGVuVGltZXIgYnJva2VyLWEgMTc5NTIyOTExNTAwMSBDMDAwMDIwMjVGRkY0RTBFMkYyQTY3OTY1QzU2MDAzMw=="
    )
    expected = RecallHandle("GoldenTimer", "broker-a", "1795229115001", "C00002025FFF4E0E2F2A67965C560033")
    assert RecallHandle.parse(text) == RecallHandle.parse(text.rstrip("=")) == expected


def test_a_retried_message_has_no_handle() -> None:
    properties = {"TIMER_OUT_MS": "1000", "REAL_TOPIC": "%RETRY%G", "UNIQ_KEY": "K"}
    assert recall_handle(Message("rmq_sys_wheel_timer", 0, b"", properties), "b") is None


@pytest.mark.parametrize("text", ["", "!", "djE", "djEgYSBiIGM", "djIgYSBiIDEgaw==", "/w==", "é", "a"])
def test_invalid_handles(text: str) -> None:
    with pytest.raises(InvalidRecallHandle, match="recall handle is invalid"):
        RecallHandle.parse(text)


def test_the_metrics_file_has_apaches_format() -> None:
    metrics = TimerMetrics(ManualClock(5), lambda: None)
    metrics.load(
        b'{"dataVersion":{"counter":56,"stateVersion":0,"timestamp":1},"timingCount":{"A":{"count":2,"timeStamp":3}}}'
    )
    metrics.add("A", 1)
    metrics.add("B", -1)
    assert metrics.to_json() == (
        b'{"dataVersion":{"counter":58,"stateVersion":0,"timestamp":5},'
        b'"timingCount":{"A":{"count":3,"timeStamp":5},"B":{"count":-1,"timeStamp":5}}}'
    )


@pytest.mark.parametrize(
    "text",
    [b"[]", b"{", b'{"timingCount":{"A":{"count":"x"}}}', b'{"timingCount":7}', b'{"timingCount":{"A":1}}'],
)
def test_damaged_metrics_are_refused(text: bytes) -> None:
    metrics = TimerMetrics(ManualClock(5), lambda: None)
    metrics.add("A", 1)
    with pytest.raises(ValueError, match=r"timermetrics|timingCount|count|JSON|end|text"):
        metrics.load(text)
    assert metrics.count("A") == 1


def test_the_topics_of_metrics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_metrics, "TOPICS_MAX", 3)
    metrics = TimerMetrics(ManualClock(5), lambda: None)
    for number in range(4):
        metrics.add(f"T{number}", 1)
    assert [metrics.count(f"T{number}") for number in range(4)] == [1, 1, 1, 0]
    metrics.add("T1", -1)
    metrics.add("T3", 1)
    assert [metrics.count(f"T{number}") for number in range(4)] == [1, 0, 1, 1]
