"""Flushes look only at queues that have changed, of which there may be a million, and checkpoints know their number."""

from pathlib import Path

from firearrow._native.store.message_store import MessageStore
from tests.support.stores import open_store, put
from tests.unit.store.test_lmq import put_to_lmqs


def flushed(store: MessageStore) -> int:
    store.write()
    return store.flush_queues()


def test_a_flush_syncs_the_queues_with_new_entries(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        for n in range(5):
            put(store, b"x", f"T{n}")
        assert flushed(store) == 5
        assert flushed(store) == 0
        put(store, b"x", "T1")
        put(store, b"x", "T1")
        put_to_lmqs(store, b"x", "%LMQ%a", topic="T2")
        assert flushed(store) == 3
        put(store, b"x", "T3")
        store.write()
        store.drop_topic("T3")
        store.flush_queues()
        assert flushed(store) == 0


def test_the_number_of_queues_follows_what_is_created_and_deleted(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        for n in range(5):
            put(store, b"x", f"T{n}")
            flushed(store)
        store.drop_topic("T0")
        put_to_lmqs(store, b"x", "%LMQ%a", "%LMQ%$T1$l", topic="T1")
        flushed(store)
        store.abandon()
    with open_store(tmp_path, lmq=True) as store:
        assert not store.findings, "a wrong number would have asked for a rebuild"


def test_a_deleted_lite_topic_asks_for_no_rebuild_after_a_kill(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        for n in range(5):
            put_to_lmqs(store, b"x", f"%LMQ%$T$l{n}", topic="T")
        flushed(store)
        for topic, end in list(store.reader.last_ends("%LMQ%$")):
            assert store.drop_lmq(topic, end)
        assert store.lmq_count == 0
        store.abandon()
    with open_store(tmp_path, lmq=True) as store:
        assert not store.findings
