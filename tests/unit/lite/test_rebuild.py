"""Queues of lite topics that expired and were created again, rebuilt from the log, and checked by `store verify`."""

import shutil
from pathlib import Path

import pytest

from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store_checks.audit import SerialExecutor, StoreAudit
from tests.support.stores import bodies, open_store, put
from tests.unit.store.test_lmq import put_to_lmqs

QUEUE = "%LMQ%$T$a"


@pytest.mark.parametrize("before", [1, 2, 5])
@pytest.mark.parametrize("after", [1, 2, 3])
@pytest.mark.parametrize("damage", ["none", "killed", "queues deleted", "flushed"])
def test_a_lite_topic_has_what_it_got_since_it_was_created_again(
    tmp_path: Path, before: int, after: int, damage: str
) -> None:
    store = open_store(tmp_path, lmq=True)
    put(store, b"other", "T", 1)
    for n in range(before):
        put_to_lmqs(store, b"old %d" % n, QUEUE, topic="T", queue_id=0)
    store.write()
    store.flush_queues()
    assert store.drop_lmq(QUEUE, dict(store.reader.last_ends("%LMQ%$"))[QUEUE])
    for n in range(after):
        put_to_lmqs(store, b"new %d" % n, QUEUE, topic="T", queue_id=0)
    store.write()
    if damage == "flushed":
        store.flush_queues()
    if damage == "none":
        store.close()
    else:
        store.abandon()
    if damage == "queues deleted":
        shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path, lmq=True) as store:
        assert bodies(store, QUEUE) == [b"new %d" % n for n in range(after)]
        assert len(bodies(store, "T", 0)) == before + after
        put_to_lmqs(store, b"next", QUEUE, topic="T", queue_id=0)
        store.write()
        assert bodies(store, QUEUE)[-1] == b"next"
    assert not StoreAudit(StoreFolder("store", str(tmp_path)), SerialExecutor()).run().findings
