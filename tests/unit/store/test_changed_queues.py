"""Flushes look only at queues that have changed, of which there may be a million, and checkpoints know their number."""

import shutil
import struct
from contextlib import suppress
from pathlib import Path

from firearrow._native.replication.follower import Follower, RecordDoubted
from firearrow._native.store.message_store import MessageStore
from tests.support.stores import bodies, open_store, put
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


def contents(root: Path) -> dict[Path, bytes]:
    """Of all files of queues."""
    folders = (root / "consumequeue", root / "batchconsumequeue")
    return {path: path.read_bytes() for folder in folders for path in folder.glob("*/*/*")}


class Walk:
    """Compares what a flush syncs with a walk over all queues."""

    def __init__(self, store: MessageStore, root: Path) -> None:
        self._store, self._root = store, root
        store.flush_queues()
        self._before = contents(root)

    def check(self, *, deleted: int = 0) -> None:
        """`deleted`: how many queues that a flush also counts do not exist any more."""
        self._store.write()
        flushed, now = self._store.flush_queues(), contents(self._root)
        changed = {path.parent for path, data in now.items() if self._before.get(path) != data}
        assert changed or deleted
        assert len(changed) <= flushed <= len(changed) + deleted
        assert self._store.flush_queues() == 0
        self._before = contents(self._root)


def receive(store: MessageStore, at: int, data: bytes) -> None:
    """A piece of a master's log; a record that does not continue its queue has to come twice."""
    follower, piece = Follower(store), struct.pack(">qi", at, len(data)) + data
    for _ in range(2):
        follower.begin(0, 0)
        follower.wire[: len(piece)] = piece
        follower.received(len(piece))
        with suppress(RecordDoubted):
            while follower.append():
                pass
            break
    store.write()


def test_every_change_of_a_queue_is_flushed(tmp_path: Path) -> None:
    """Topics that become batch topics, deleted and trimmed ones, repairs of readers: as if each flush walked all
    queues."""
    with open_store(tmp_path, lmq=True, batch_queue_file_bytes=460) as store:
        walk = Walk(store, tmp_path)
        for n in range(30):  # over the ends of files
            put(store, b"%d" % n, f"T{n % 3}")
            put_to_lmqs(store, b"x", f"%LMQ%{n % 4}", f"%LMQ%$T$l{n}", topic="L")
            if n % 5 == 0:
                walk.check()
        walk.check()
        store.set_batch_topic("T1", True)
        assert store.flush_queues() == 0  # before the plain queue is deleted
        walk = Walk(store, tmp_path)
        put(store, b"y", "T1")
        walk.check()
        store.set_batch_topic("B", True)
        put(store, b"y", "B")
        store.drop_topic("T2")
        walk.check()
        put(store, b"y", "T2")
        put(store, b"y", "T0")
        assert store.drop_lmq("%LMQ%$T$l1", dict(store.reader.last_ends("%LMQ%$"))["%LMQ%$T$l1"])
        walk.check()
        damage_entry(tmp_path, "T0")
        walk = Walk(store, tmp_path)
        assert bodies(store, "T0")
        walk.check()


def test_every_change_of_a_recovery_is_flushed(tmp_path: Path) -> None:
    store = open_store(tmp_path, lmq=True)
    for n in range(60):
        put_to_lmqs(store, b"%d" % n, f"%LMQ%{n % 4}", topic=f"T{n % 7}")
    store.write()
    store.abandon()
    shutil.rmtree(tmp_path / "consumequeue" / "%LMQ%1")
    before = contents(tmp_path)
    with open_store(tmp_path, lmq=True) as store:
        now = contents(tmp_path)
        changed = {path.parent for path, data in now.items() if before.get(path) != data}
        assert tmp_path / "consumequeue" / "%LMQ%1" / "0" in changed
        assert store.flush_queues() >= len(changed)
        Walk(store, tmp_path)


def test_every_change_of_a_slaves_queue_is_flushed(tmp_path: Path) -> None:
    """Queues that begin later, go on after lost messages, and begin again."""
    with open_store(tmp_path / "master", lmq=True) as master:
        ends = []
        for n in range(6):
            put_to_lmqs(master, b"%d" % n, "%LMQ%$T$l", topic="T", queue_id=0)
            master.write()
            ends.append(master.written)
            if n == 3:
                assert master.drop_lmq("%LMQ%$T$l", ends[-1])
        log = master.log_bytes(0, master.written) or b""
    with open_store(tmp_path / "slave", lmq=True) as slave:
        walk = Walk(slave, tmp_path / "slave")
        start = 0
        for end in ends:
            receive(slave, start, log[start:end])
            walk.check(deleted=1)
            start = end
        assert bodies(slave, "%LMQ%$T$l") == [b"4", b"5"]
        assert bodies(slave, "T", 0) == [b"%d" % n for n in range(6)]


def damage_entry(root: Path, topic: str) -> None:
    """The second entry of a queue points to no record."""
    path = root / "consumequeue" / topic / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(20)
        file.write((1).to_bytes(8, "big"))
