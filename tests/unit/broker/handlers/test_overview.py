"""Pages of LIST_TOPICS and LIST_GROUPS: joined, they are the whole, wherever a page ends."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.handlers import overview
from firearrow.broker.handlers.overview import EXPRESSION_CHARS_MAX, OverviewHandler
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness
from tests.support.peers import RecordedPeer
from tests.support.stores import open_store, put
from tests.unit.broker.handlers.test_clients import beat, consumer, subscription

TOPICS, GROUPS = ("A", "B", "C"), ("G1", "G2")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[HandlerHarness]:
    """With a real store: three messages in queue 0 of each topic, the first two of A deleted, and one in queue 3, which
    the topics do not have any more."""
    harness = HandlerHarness()
    with open_store(tmp_path, segment_bytes=1 << 16) as store:
        for topic in TOPICS:
            harness.topics.update(TopicConfig(topic, 2, 2, 6))
            for queue_id, now_ms in ((0, 100), (0, 200), (0, 300), (3, 400)):
                put(store, b"x", topic, queue_id, now_ms=now_ms)
        store.write()
        store.cleaner.trim_queue("A", 0, 2)
        for group in GROUPS:
            for topic in TOPICS:
                harness.offsets.commit(group, topic, 0, 1)
        handler = OverviewHandler(
            store, harness.topics, harness.groups, harness.offsets, harness.table, harness.clock
        )
        harness.serve(harness.clients, handler)
        yield harness


def page(harness: HandlerHarness, code: RequestCode, ext: dict[str, object]) -> dict[str, Any]:
    answer = harness.ask(code, ext)
    assert answer.code == 0, answer.remark
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


def topics(harness: HandlerHarness) -> tuple[dict[str, Any], int]:
    """By name, without those of the system, and the number of pages."""
    found, after, pages = dict[str, Any](), "", 0
    while True:
        answer = page(harness, RequestCode.LIST_TOPICS, {"after": after})
        pages += 1
        for row in answer["topics"]:
            assert row["topic"] not in found
            found[row["topic"]] = row["queues"]
            after = row["topic"]
        if not answer["more"]:
            return {name: found[name] for name in TOPICS}, pages


def groups(harness: HandlerHarness, details: bool) -> tuple[dict[str, Any], int]:
    found, at, pages = dict[str, Any](), ("", ""), 0
    while True:
        ext = {"details": details, "fromGroup": at[0], "fromTopic": at[1]}
        answer = page(harness, RequestCode.LIST_GROUPS, ext)
        pages += 1
        for row in answer["groups"]:
            if row["group"] in found:
                assert not found[row["group"]]["offsets"].keys() & row["offsets"].keys()
                found[row["group"]]["offsets"] |= row["offsets"]
            else:
                found[row["group"]] = row
        if not answer["more"]:
            return {name: found[name] for name in GROUPS}, pages
        assert (answer["nextGroup"], answer["nextTopic"]) > at
        at = answer["nextGroup"], answer["nextTopic"]


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 50_000])
def test_pages_of_any_size_are_the_whole(
    harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    whole = topics(harness)[0], groups(harness, False)[0], groups(harness, True)[0]
    assert whole[0]["A"] == [[0, 2, 3, 300], [1, 0, 0, 0], [3, 0, 1, 400]]
    assert whole[1]["G1"]["consumed"] == 3
    assert whole[1]["G1"]["lag"] == 6
    assert whole[1]["G1"]["topics"] == 3
    assert whole[2]["G2"]["offsets"] == {topic: {"0": 1} for topic in TOPICS}
    monkeypatch.setattr(overview, "PAGE_ROWS_MAX", rows)
    (listed, pages), (sums, _), (details, more_pages) = (
        topics(harness),
        groups(harness, False),
        groups(harness, True),
    )
    assert (listed, sums, details) == whole
    assert (pages > 1) == (more_pages > 1) == (rows < 50_000)


def test_a_group_of_any_size_fits_into_an_answer(
    harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many members and subscriptions, and long expressions, a part is listed; the number of members is exact."""
    for limit in ("MEMBERS_LISTED_MAX", "SUBSCRIPTIONS_LISTED_MAX"):
        monkeypatch.setattr(overview, limit, 2)
    subscribed = [subscription(topic, subString="x" * (EXPRESSION_CHARS_MAX + 1)) for topic in TOPICS]
    for number in range(3):
        body = beat(consumer("G1", *subscribed), client=f"c{number}")
        assert harness.ask(RequestCode.HEART_BEAT, body=body, peer=RecordedPeer()).code == 0
    row = groups(harness, True)[0]["G1"]
    assert (row["members"], len(row["connections"]), len(row["subscriptions"])) == (3, 2, 2)
    assert {len(text) for text in row["subscriptions"].values()} <= {1, EXPRESSION_CHARS_MAX}


def test_the_age_of_a_group_is_that_of_the_first_message_that_is_still_there(harness: HandlerHarness) -> None:
    harness.clock.advance_to(1000)
    found, _ = groups(harness, False)
    assert found["G1"]["lagMs"] == 1000 - 200  # B's message 1; A's was deleted up to 2


def test_a_queue_that_was_taken_away_counts_if_the_group_has_an_offset(harness: HandlerHarness) -> None:
    harness.offsets.commit("G1", "B", 3, 0)
    harness.offsets.commit("G2", "B", 3, 1)
    found, _ = groups(harness, False)
    assert (found["G1"]["lag"], found["G1"]["consumed"]) == (7, 3)
    assert (found["G2"]["lag"], found["G2"]["consumed"]) == (6, 3)
    harness.topics.delete("B")
    found, _ = groups(harness, False)
    assert (found["G1"]["topics"], found["G1"]["lag"]) == (2, 4)


def test_the_bytes_of_topics(harness: HandlerHarness) -> None:
    sizes = {
        row["topic"]: row["bytes"]
        for row in page(harness, RequestCode.LIST_TOPICS, {"sizes": True})["topics"]
        if row["topic"] in TOPICS
    }
    assert sizes["B"] == sizes["C"] > 4 * 91
    assert sizes["A"] == sizes["B"] // 2
    assert "bytes" not in page(harness, RequestCode.LIST_TOPICS, {})["topics"][0]
