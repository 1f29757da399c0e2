"""Readers of a store's files: segments, queues, index, checkpoint, journal, timer.

Each input gets a new folder.
"""

import contextlib
import functools
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.files.errors import StoreError
from firearrow._native.store.log.checkpoint import Checkpoint
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.consume_queue import ConsumeQueue
from firearrow._native.store.log.record import decode
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.timers.checkpoint import TimerCheckpoint
from firearrow.broker.timers.log import TimerLog, TimerLogDamaged
from tests.hostile.fuzz import Target
from tests.support.stores import QUEUE_FILE_BYTES, SEGMENT_BYTES, open_store, properties_of, put

COUNT = 20
MEMORY = "/dev/shm"
FIRST = "00000000000000000000"


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Syncs cost nothing there, so a second is enough for a hundred times as many inputs."""
    return tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None)


@functools.cache
def files() -> dict[str, bytes]:
    """Files of a cleanly stopped store, by relative path."""
    with in_memory() as folder:
        root = Path(folder) / "s"
        with open_store(root) as store:
            for number in range(COUNT):
                put(store, b"%d " % number * number, properties=properties_of(KEYS=f"k{number}", TAGS="t"))
            store.write()
        found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    index = next(name for name in found if name.startswith("index/"))
    return found | {"index": found[index], "index name": index.encode()}


def file(name: str) -> Callable[[], list[bytes]]:
    return lambda: [files()[name]]


def read_log(data: bytes) -> None:
    """As a segment, read-only: every record that it returns is one, at its own offset."""
    with in_memory() as folder:
        (Path(folder) / FIRST).write_bytes(data)
        with CommitLog.open_readonly(folder, SEGMENT_BYTES) as log:
            for record in log.records():
                assert record.physical_offset < len(data)
            for at in range(0, SEGMENT_BYTES, 97):
                with contextlib.suppress(ValueError):
                    log.record(at)


def read_queue(data: bytes) -> None:
    with in_memory() as folder:
        path = Path(folder) / "T" / "0"
        path.mkdir(parents=True)
        (path / FIRST).write_bytes(data)
        with ConsumeQueue.open_readonly(path, QUEUE_FILE_BYTES) as queue:
            assert len(list(queue)) <= len(data) // 20
            queue.entries(-1, 1 << 30)
            queue.entries(1 << 62, 1 << 62)
            queue.arrays()


def opened_with(name: str) -> Callable[[bytes], None]:
    """A whole store with this file replaced: it opens and serves every queue, or says why not."""

    def read(data: bytes) -> None:
        with in_memory() as folder:
            root = Path(folder) / "s"
            for path, whole in files().items():
                if "/" in path or path == "checkpoint":
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    (root / path).write_bytes(whole)
            path = files()["index name"].decode() if name == "index" else name
            (root / path).write_bytes(data)
            with open_store(root) as store:
                low, high = store.reader.min_offset("T", 0), store.reader.max_offset("T", 0)
                assert 0 <= low <= high <= low + COUNT + len(data) // 20
                for at in (-1, *range(low, min(high, low + 200) + 1)):
                    store.reader.get("T", 0, at, 32)
                store.reader.query("T", "k3", 32, 0, 1 << 62)
                put(store, b"one more")
                store.write()

    return read


def noted() -> list[bytes]:
    with in_memory() as folder:
        journal = Journal(folder, "run", 1000)
        for number in range(20):
            journal.note(Kind.OFFSET, "T@G", number % 4, number, 500)
            journal.note(Kind.DELAY, "", 3, number, 900)
        journal.close()
        return [path.read_bytes()[:4096] for path in Path(folder).iterdir()]


def read_journal(data: bytes) -> None:
    with in_memory() as folder:
        (Path(folder) / "run.0000000001").write_bytes(data)
        journal = Journal(folder, "run", 1000)
        journal.recover_entries()
        journal.note(Kind.OFFSET, "T@G", 0, 1)
        journal.close()


def units() -> list[bytes]:
    chain = b"".join(
        struct.pack(">iqiqiqiiq", 52, n * 52 - 52, 1, 1_700_000_000_000, n, n * 100, 100, 7, 0)
        for n in range(20)
    )
    return [chain.ljust(10_400, b"\0")]


def read_timer_log(data: bytes) -> None:
    with in_memory() as folder:
        (Path(folder) / FIRST).write_bytes(data)
        log = TimerLog(Path(folder), 10_400)
        try:
            found = list(log.records(0))
            assert len(found) <= len(data) // 52
            survey = log.survey(1000, 1_700_000_000_000)
            assert survey.end <= len(data)
            assert all(position < survey.end for position in survey.heads.values())
            for position, _ in found:
                log.read(position)
            log.truncate(found[-1][0] + 52 if found else 0)
            log.last()
        finally:
            log.close()


def read_check(data: bytes) -> None:
    with in_memory() as folder:
        path = Path(folder) / "timercheck"
        path.write_bytes(data)
        check = TimerCheckpoint(path)
        check.close()


def read_checkpoint(data: bytes) -> None:
    with in_memory() as folder:
        path = Path(folder) / "checkpoint"
        path.write_bytes(data)
        found = Checkpoint.load(str(path))
        found.seal(str(path))
        assert found.safe_ms >= 0


LOG, QUEUE = f"commitlog/{FIRST}", f"consumequeue/T/0/{FIRST}"
STORE = (
    Target("record", lambda: [files()[LOG][:400]], decode),
    Target("log", file(LOG), read_log, (ValueError, OSError, StoreError)),
    Target("queue", file(QUEUE), read_queue, (ValueError, OSError, StoreError)),
    Target("store: log", file(LOG), opened_with(LOG), (StoreError,)),
    Target("store: queue", file(QUEUE), opened_with(QUEUE), (StoreError,)),
    Target("store: index", file("index"), opened_with("index"), (StoreError,)),
    Target("store: checkpoint", file("checkpoint"), opened_with("checkpoint"), (StoreError,)),
    Target("checkpoint", file("checkpoint"), read_checkpoint),
    Target("journal", noted, read_journal),
    Target("timer log", units, read_timer_log, (TimerLogDamaged,)),
    Target("timer check", lambda: [bytes(4096)], read_check),
)
