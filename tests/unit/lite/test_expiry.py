"""Lite topics without new messages are deleted, with a manual clock: when, what goes with them, and what stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.tables.topics import TopicConfig
from tests.unit.lite.lite_harness import MINUTE_MS, G, LiteHarness, T


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[LiteHarness]:
    found = LiteHarness(tmp_path)
    yield found
    found.close()


def test_a_lite_topic_expires_after_its_last_message(harness: LiteHarness) -> None:
    harness.send("old")
    harness.clock.advance(5 * MINUTE_MS)
    harness.send("used")
    harness.send("young", queue_id=1)
    harness.clock.advance(14 * MINUTE_MS)
    harness.send("used")
    harness.look()
    assert harness.lite_topics() == {"old", "used", "young"}
    harness.clock.advance(2 * MINUTE_MS)
    harness.look()
    assert harness.lite_topics() == {"used", "young"}
    harness.clock.advance(30 * MINUTE_MS)
    harness.look()
    assert harness.lite_topics() == set()
    assert harness.store.lmq_count == 0
    assert harness.store.reader.max_offset(T, 0) == 3, "the messages stay in their topic"


def test_a_deleted_lite_topic_begins_again_without_old_offsets(harness: LiteHarness) -> None:
    queue = f"%LMQ%${T}$a"
    harness.send("a", b"0")
    harness.send("a", b"1")
    harness.lite_context.tables.offsets.commit(G, queue, 0, 2)
    harness.clock.advance(21 * MINUTE_MS)
    harness.look()
    assert harness.lite_context.tables.offsets.of(G, queue) is None
    harness.send("a", b"2")
    assert harness.bodies(queue) == [b"2"]


def test_nothing_expires_soon_after_a_start_nor_without_a_time(tmp_path: Path) -> None:
    harness = LiteHarness(tmp_path, lite_ttl_min_ms=30 * MINUTE_MS)
    harness.send("a")
    harness.clock.advance(29 * MINUTE_MS)
    harness.look()
    assert harness.lite_topics() == {"a"}
    harness.clock.advance(2 * MINUTE_MS)
    harness.look()
    assert harness.lite_topics() == set()
    harness.send("b")
    topics = harness.lite_context.tables.topics
    topics.update_all([TopicConfig(T, 2, 2, attributes={"+lite.topic.expiration": "-1"})])
    harness.clock.advance(500 * MINUTE_MS)
    harness.look()
    assert harness.lite_topics() == {"b"}
    harness.close()


def test_lite_topics_of_a_deleted_topic_are_deleted_with_it(harness: LiteHarness) -> None:
    for n in range(200):
        harness.send(f"t{n}")
    harness.lite_context.tables.offsets.commit("deleted group", f"%LMQ%${T}$t5", 0, 1)
    harness.lite_context.tables.topics.delete(T)
    harness.timers.run(1000)
    assert harness.lite_topics() == set()
    assert harness.lite_context.tables.offsets.groups_of(f"%LMQ%${T}$t5") == []


def test_a_slave_deletes_lite_topics_of_a_deleted_topic_at_the_second_look(tmp_path: Path) -> None:
    harness = LiteHarness(tmp_path, broker_role="SLAVE")
    harness.send("a")
    harness.clock.advance(16 * MINUTE_MS)
    harness.lite_context.tables.topics.delete(T)
    harness.look()
    assert harness.lite_topics() == {"a"}
    harness.look()
    assert harness.lite_topics() == set()
    harness.close()


def test_a_message_that_is_staged_keeps_its_lite_topic(harness: LiteHarness) -> None:
    harness.send("a")
    end = harness.store.records_end(f"%LMQ%${T}$a")
    harness.put(T, INNER_MULTI_DISPATCH=f"%LMQ%${T}$a")
    assert not harness.store.drop_lmq(f"%LMQ%${T}$a", end)
    harness.write_batch.commit()
    assert not harness.store.drop_lmq(f"%LMQ%${T}$a", end), "it has a later record"
    assert harness.store.reader.max_offset(f"%LMQ%${T}$a", 0) == 2


def test_many_expire_in_slices(harness: LiteHarness) -> None:
    for n in range(300):
        harness.send(f"t{n}")
    harness.clock.advance(21 * MINUTE_MS)
    harness.send("new")
    harness.look()
    assert harness.lite_topics() == {"new"}
    assert harness.lite._expiry.deleted == 300


def test_what_has_expired_stays_deleted_after_a_kill(tmp_path: Path) -> None:
    harness = LiteHarness(tmp_path)
    harness.send("a", b"0")
    harness.send("b", b"0")
    harness.store.flush_queues()
    harness.clock.advance(21 * MINUTE_MS)
    harness.send("b", b"1")
    harness.look()
    assert harness.lite_topics() == {"b"}
    text = harness.lite._expiry.to_json()
    harness.kill()
    again = LiteHarness(tmp_path)
    again.lite._expiry.load(text)
    assert again.lite_topics() == {"a", "b"}, "the walk of the log has brought it back"
    again.lite._expiry.resume()
    assert again.lite_topics() == {"b"}
    again.send("a", b"1")
    again.lite._expiry.resume()
    assert again.bodies(f"%LMQ%${T}$a") == [b"1"]
    assert again.bodies(f"%LMQ%${T}$b") == [b"0", b"1"]
    again.close()


def test_what_is_written_after_a_truncation_has_not_expired(harness: LiteHarness) -> None:
    harness.lite._expiry.load(b'{"expired":{"T":123456789}}')
    harness.lite._expiry.resume()
    harness.send("a")
    harness.lite._expiry.resume()
    assert harness.lite_topics() == {"a"}


@pytest.mark.parametrize("text", [b"[]", b'{"expired":5}', b'{"expired":{"T":-1}}', b'{"expired":{"T":"x"}}'])
def test_a_damaged_file_is_refused(harness: LiteHarness, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"liteExpiry|expired|T"):
        harness.lite._expiry.load(text)
