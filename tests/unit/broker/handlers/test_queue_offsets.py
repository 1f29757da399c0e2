"""29 to 32: where queues begin and end, also for unknown queues."""

import pytest

from tests.support.handler_harness import HandlerHarness


@pytest.fixture
def harness() -> HandlerHarness:
    harness = HandlerHarness()
    harness.fake.times["T", 0] = [100, 200, 300]
    harness.fake.begins["T", 0] = 1
    return harness


@pytest.mark.parametrize(
    ("code", "more", "ext", "remark"),
    [
        (29, {"timestamp": 150}, {"offset": "1"}, None),
        (29, {"timestamp": 250, "boundaryType": "UPPER"}, {"offset": "1"}, None),
        (29, {"timestamp": 250, "boundaryType": "upper"}, {"offset": "1"}, None),
        (29, {"timestamp": 250, "boundaryType": "other"}, {"offset": "2"}, None),
        (30, {}, {"offset": "3"}, None),
        (31, {}, {"offset": "1"}, ""),
        (32, {}, {"timestamp": "200"}, None),
        (30, {"topic": "U"}, {"offset": "0"}, None),
        (31, {"topic": "U"}, {"offset": "0"}, ""),
        (32, {"topic": "U"}, {"timestamp": "-1"}, None),
    ],
)
def test_answers(
    harness: HandlerHarness, code: int, more: dict[str, object], ext: dict[str, str], remark: str | None
) -> None:
    answer = harness.ask(code, {"topic": "T", "queueId": 0} | more)
    assert (answer.code, answer.ext, answer.remark) == (0, ext, remark)


@pytest.mark.parametrize("code", [29, 30, 31, 32])
def test_wrong_queues_are_refused_by_the_field(harness: HandlerHarness, code: int) -> None:
    for queue_id, text in ((-1, "not -1"), (65536, "not 65536")):
        answer = harness.ask(code, {"topic": "T", "queueId": queue_id, "timestamp": 0})
        assert answer.code == 29
        assert answer.remark == f"queueId must be 0 to 65535, {text}"
    wrong: list[dict[str, object]] = [{"topic": "T"}, {"queueId": 0}, {"topic": "T", "queueId": "x"}]
    for ext in wrong:
        answer = harness.ask(code, {"timestamp": 0} | ext)
        assert answer.code == 1
        assert "queueId" in str(answer.remark) or "topic" in str(answer.remark)
