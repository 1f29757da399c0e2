"""The short form of `python -m bench.lite_topics`: what a thousand times as many need is the bench's to show."""

from pathlib import Path

from bench.lite_topics import counts, measure, running

COUNT = 4000
EACH_MAX = 2000
"""Bytes of memory a lite topic with a message and a subscription; a million take 0.9 KB each."""


def test_many_lite_topics_come_back_and_take_little_memory(tmp_path: Path) -> None:
    with running(tmp_path / "store", COUNT) as broker:
        result = measure(broker, tmp_path, COUNT)
        assert (result.lite_topics, result.subscriptions) == (COUNT, COUNT)
        assert result.anonymous_each < EACH_MAX
    with running(tmp_path / "store", COUNT) as broker:
        assert counts(broker.port) == (COUNT, 0)
