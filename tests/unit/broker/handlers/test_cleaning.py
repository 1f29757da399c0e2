"""The same handlers over the real store: stored messages are where the responses say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from firearrow.broker.handlers.offsets import OffsetsHandler, QueuesHandler
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, StoreConfig(segment_bytes=1 << 20, queue_file_bytes=2000)) as store:
        for now_ms in (1000, 2000, 3000):
            store.put(
                InnerMessage("T", 1, b"body", b"", born_timestamp=now_ms, born_host=HOST, store_host=HOST),
                now_ms=now_ms,
            )
        store.write()
        yield store


@pytest.fixture
def harness(store: MessageStore) -> HandlerHarness:
    harness = HandlerHarness()
    harness.topics.update(TopicConfig("T", 4, 4))
    harness.groups.find("G")
    harness.serve(
        OffsetsHandler(
            store,
            harness.topics,
            harness.groups,
            harness.offsets,
            harness.deleted,
            harness.config,
            make_durable=lambda: None,
        ),
        QueuesHandler(store),
    )
    return harness


@pytest.mark.parametrize(
    ("code", "queue_id", "more", "ext"),
    [
        (30, 1, {}, {"offset": "3"}),
        (31, 1, {}, {"offset": "0"}),
        (32, 1, {}, {"timestamp": "1000"}),
        (29, 1, {"timestamp": 1500}, {"offset": "1"}),
        (29, 1, {"timestamp": 9999}, {"offset": "3"}),
        (29, 1, {"timestamp": 9999, "boundaryType": "UPPER"}, {"offset": "2"}),
        (30, 0, {}, {"offset": "0"}),
        (32, 0, {}, {"timestamp": "-1"}),
        (30, 65535, {}, {"offset": "0"}),
    ],
)
def test_queues(
    harness: HandlerHarness, code: int, queue_id: int, more: dict[str, object], ext: dict[str, str]
) -> None:
    answer = harness.ask(code, {"topic": "T", "queueId": queue_id} | more)
    assert (answer.code, answer.ext) == (0, ext)


def test_a_new_group_starts_at_zero_only_in_queues_with_messages(harness: HandlerHarness) -> None:
    pair: dict[str, object] = {"consumerGroup": "G", "topic": "T"}
    assert harness.ask(14, pair | {"queueId": 1}).ext == {"offset": "0"}
    assert harness.ask(14, pair | {"queueId": 0}).code == 22
    assert harness.ask(14, pair | {"queueId": 1, "setZeroIfNotFound": "false"}).code == 22


def test_a_query_creates_no_queue(harness: HandlerHarness, store: MessageStore) -> None:
    before = sorted(store.reader.queues())
    for code in (14, 29, 30, 31, 32):
        harness.ask(code, {"consumerGroup": "G", "topic": "U", "queueId": 7, "timestamp": 0})
    assert sorted(store.reader.queues()) == before
