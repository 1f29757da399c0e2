"""LMQs: a record that names them gets an entry in each, at the offset that it states, and after every crash."""

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.files.segment import fail_next, heal
from firearrow._native.store.log.dispatcher import multi_names
from firearrow._native.store.log.results import PutRefused, PutResult
from firearrow._native.store.message_store import InnerMessage, MessageStore
from tests.support.stores import HOST, bodies, item, open_store, properties_of, put


@pytest.fixture(autouse=True)
def healed() -> Iterator[None]:
    yield
    heal()


def put_to_lmqs(
    store: MessageStore, body: bytes, *names: str, topic: str = "T", queue_id: int = 1
) -> PutResult:
    """Put it with the next offset of each LMQ."""
    offsets = ",".join(str(max(store.next_offset(name, 0), 0)) for name in names)
    properties = properties_of(INNER_MULTI_DISPATCH=",".join(names), INNER_MULTI_QUEUE_OFFSET=offsets)
    return put(store, body, topic, queue_id, properties)


def test_one_record_is_in_every_queue(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        for n in range(40):
            put_to_lmqs(store, b"%d" % n, "%LMQ%all", f"%LMQ%{n % 2}")
            put(store, b"plain", queue_id=2)
            if n % 7 == 0:
                assert bodies(store, "%LMQ%all") == [
                    b"%d" % m for m in range(store.reader.max_offset("%LMQ%all", 0))
                ]
                store.write()
        store.write()
        assert bodies(store, "%LMQ%all") == bodies(store, "T", 1) == [b"%d" % n for n in range(40)]
        assert bodies(store, "%LMQ%1") == [b"%d" % n for n in range(1, 40, 2)]
        assert (store.lmq_count, store.next_offset("%LMQ%0", 0)) == (3, 20)
        assert store.next_offset("%LMQ%none", 0) == -1


@pytest.mark.parametrize("damage", ["none", "queues gone", "one queue gone"])
@pytest.mark.parametrize("clean", [False, True])
def test_lmqs_are_recovered(tmp_path: Path, damage: str, clean: bool) -> None:
    store = open_store(tmp_path, lmq=True)
    for n in range(60):
        put_to_lmqs(store, b"%d" % n, "%LMQ%all", f"%LMQ%{n % 3}")
        store.write()
    if clean:
        store.close()
    else:
        store.abandon()
    if damage == "queues gone":
        shutil.rmtree(tmp_path / "consumequeue")
    elif damage == "one queue gone":
        shutil.rmtree(tmp_path / "consumequeue" / "%LMQ%all")
    with open_store(tmp_path, lmq=True) as store:
        assert bodies(store, "%LMQ%all") == [b"%d" % n for n in range(60)]
        assert bodies(store, "%LMQ%2") == [b"%d" % n for n in range(2, 60, 3)]
        assert store.lmq_count == 4
        put_to_lmqs(store, b"more", "%LMQ%all")
        store.write()
        assert bodies(store, "%LMQ%all")[-1] == b"more"


def test_a_wrong_offset_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        wrong = properties_of(INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b", INNER_MULTI_QUEUE_OFFSET="0,5")
        with pytest.raises(PutRefused):
            put(store, b"x", properties=wrong)
        other = properties_of(INNER_MULTI_DISPATCH="T2", INNER_MULTI_QUEUE_OFFSET="0")
        with pytest.raises(PutRefused):
            put(store, b"x", properties=other)
        assert (store.staged_bytes, store.next_offset("T", 0), store.next_offset("%LMQ%a", 0)) == (0, 0, 0)
        assert put_to_lmqs(store, b"right", "%LMQ%a", "%LMQ%b", queue_id=0).queue_offset == 0
        store.write()
        assert bodies(store, "%LMQ%b") == [b"right"]


@pytest.mark.parametrize("call", ["reserve", "create", "pwrite"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_full_disk_adds_nothing_to_any_queue(tmp_path: Path, call: str, after: int) -> None:
    def fill() -> None:
        for n in range(60):
            put_to_lmqs(store, b"lost" * 30, f"%LMQ%new{n}", "%LMQ%a")
            store.write()

    with open_store(tmp_path, lmq=True) as store:
        put_to_lmqs(store, b"before", "%LMQ%a", "%LMQ%b")
        store.write()
        fail_next(call, errno.ENOSPC, after=after)
        with pytest.raises((PutRefused, OSError)):
            fill()
        heal()
        kept = len(bodies(store, "T", 1))
        assert len(bodies(store, "%LMQ%a")) == kept
        put_to_lmqs(store, b"again", "%LMQ%a", "%LMQ%b")
        store.write()
        assert bodies(store, "%LMQ%a")[-1] == bodies(store, "%LMQ%b")[-1] == b"again"
        assert bodies(store, "%LMQ%b") == [b"before", b"again"]


def test_lmq_entries_are_visible_after_the_sync(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True, sync_flush=True) as store:
        put_to_lmqs(store, b"x", "%LMQ%a")
        end = store.write()
        assert bodies(store, "%LMQ%a") == []
        store.sync()
        store.confirm(end)
        assert bodies(store, "%LMQ%a") == bodies(store, "T", 1) == [b"x"]


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_some_topics_are_never_dispatched(tmp_path: Path, topic: str) -> None:
    stale = properties_of(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="3")
    with open_store(tmp_path, lmq=True) as store:
        put(store, b"x", topic, properties=stale)
        store.write()
    with open_store(tmp_path, lmq=True) as store:
        assert store.reader.queues() == [(topic, 0)]


def test_without_lmqs_the_properties_are_ignored(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_to_lmqs(store, b"x", "%LMQ%a")
        store.write()
        assert store.reader.queues() == [("T", 1)]


def test_a_batch_must_not_state_offsets(tmp_path: Path) -> None:
    """Nor is it dispatched to LMQs."""
    named = properties_of(INNER_MULTI_DISPATCH="%LMQ%a")
    offsets = properties_of(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="0")

    def put_two(properties: bytes) -> None:
        items = item(b"1") + item(b"2", properties)
        store.put_batch(
            InnerMessage("T", 0, items, b"", born_timestamp=1, born_host=HOST, store_host=HOST), now_ms=1
        )

    with open_store(tmp_path, lmq=True) as store:
        put_two(named)
        with pytest.raises(PutRefused):
            put_two(offsets)
        store.write()
        assert bodies(store) == [b"1", b"2"]
        assert store.reader.queues() == [("T", 0)]


def test_a_dropped_lmq_is_no_longer_counted(tmp_path: Path) -> None:
    with open_store(tmp_path, lmq=True) as store:
        put_to_lmqs(store, b"x", "%LMQ%a", "%LMQ%b")
        store.write()
        store.drop_topic("%LMQ%a")
        assert store.lmq_count == 1


def test_what_the_properties_name() -> None:
    assert multi_names(b"%LMQ%a,b,c/d,,e,f", b"1,2,3,4,x,99999999999999") == [(b"%LMQ%a", 1), (b"b", 2)]
