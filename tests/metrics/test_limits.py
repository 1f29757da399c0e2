"""Bounds of what is counted and answered."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firearrow._native.fastpath.request_times import ANSWERS_MAX, RequestTimes
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.metrics_services import VALUES_MAX
from firearrow.broker.base.event_counts import RETRIED, EventCounts
from firearrow.broker.metrics.exposition import OVERFLOW, Exposition, limited
from firearrow.broker.metrics.history import ROWS, STEP_MS, History
from tests.metrics.scrapes import value, watched
from tests.support.requests import send


def test_values_of_an_answer_with_history(tmp_path: Path) -> None:
    """A day of few series is answered, one series more is refused."""
    count = VALUES_MAX // ROWS
    with watched(tmp_path / "store"):
        pass
    history = History(tmp_path / "store" / "history")
    history.write(0, {f"few:{number}": 1.0 for number in range(count)} | {"fe": 1.0})
    history.close()
    with watched(tmp_path / "store") as broker, broker.connect() as connection:
        assert connection.ask(RequestCode.GET_HISTORY, {"from": "0", "series": "few:"}).code == 0
        refused = connection.ask(RequestCode.GET_HISTORY, {"from": "0", "series": "fe"})
        assert (refused.code, f"{(count + 1) * ROWS} values" in (refused.remark or "")) == (
            ResponseCode.INVALID_PARAMETER,
            True,
        )
        near = {"from": str(9 * STEP_MS), "to": str(10 * STEP_MS), "series": "fe"}
        assert connection.ask(RequestCode.GET_HISTORY, near).code == 0


def test_series_of_a_metric(tmp_path: Path) -> None:
    """With a limit of 4 there are three topics and the sum of the others."""
    with watched(tmp_path / "store", "--set", "metricsOtelCardinalityLimit=4") as broker:
        with broker.connect() as connection:
            for number in range(9):
                for topic in range(number):
                    assert send(connection, f"Topic{topic}", b"x").code == 0
        families = broker.scrape()
        for name in (
            "rocketmq_messages_in_total",
            "rocketmq_throughput_in_total",
            "rocketmq_message_size_count",
        ):
            series = families[name][1]
            assert len(series) == 4, name
        assert sum(families["rocketmq_messages_in_total"][1].values()) == 36
        assert value(families, "rocketmq_messages_in_total", otel_metric_overflow="true") > 0


def test_combinations_of_request_and_answer() -> None:
    times = RequestTimes()
    for code in range(ANSWERS_MAX + 5):
        request = RemotingCommand(code)
        request.since_ns = 1
        times.answer(request.answer(1), False)
    handled = [row for row in times.all() if sum(row[4].read()[0])]
    assert len(handled) == ANSWERS_MAX + 1
    [rest] = [row for row in handled if row[0] == -1]
    assert sum(rest[4].read()[0]) == 5


def test_events_beyond_the_limit_share_one_series() -> None:
    events = EventCounts()
    events.series_max = 3
    for number in range(5):
        events.add(RETRIED, (f"g{number}",), number + 1)
    assert events.counted(RETRIED) == {("g0",): 1, ("g1",): 2, (): 12}
    events.forget("consumer_group", "g1")
    assert events.counted(RETRIED) == {("g0",): 1, (): 12}


def test_limited_keeps_the_sum_and_adds_nothing() -> None:
    samples = [(f'a="{number}"', number) for number in range(4)]
    assert list(limited(samples, 5)) == samples
    assert list(limited(samples, 3)) == [*samples[:2], (OVERFLOW, 5)]
    assert list(limited(samples, 3, max)) == [*samples[:2], (OVERFLOW, 3)]


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "umläut"])
def test_label_values_are_escaped(name: str) -> None:
    """Names of topics have no such characters, but labels of the options may."""
    to = Exposition({"zone": name}, is_open_metrics=False)
    text = b"".join(to.family("m", "gauge", "help", [("", 1)])).decode()
    families = {own for _, series in _plain(text).values() for own in series}
    assert families == {frozenset({("zone", name)})}


def _plain(text: str) -> dict[str, tuple[str, dict[frozenset[tuple[str, str]], float]]]:
    return {
        sample.name: (family.type, {frozenset(sample.labels.items()): sample.value})
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
