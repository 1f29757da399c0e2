"""Workloads to record: scripts that use a store as a broker does, step by step.

`python -m tests.crash.workload NAME ROOT SEED` runs one; tests.crash.recording does so under the recorder.
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path

from tests.crash.expiry import expired_files
from tests.crash.followed import followed_log, slave_broker
from tests.crash.marks import Marks
from tests.crash.pending import pending_work
from tests.crash.progress import GROUP, ProgressWriter
from tests.crash.whole import whole_broker
from tests.crash.writer import Options, Writer

SMALL: Options = {
    "segment_bytes": 8192,
    "queue_file_bytes": 1200,
    "index_slots": 40,
    "index_entries": 64,
    "max_message_bytes": 4096,
}
PAGES: Options = {
    **SMALL,
    "segment_bytes": 32768,
    "queue_file_bytes": 8000,
    "index_slots": 500,
    "index_entries": 700,
}
"""Files of several pages."""
QUEUES = [("T", 0), ("T", 1), ("U", 0)]


def group_commit(root: Path, mark: Marks, draw: random.Random) -> None:
    """SYNC_FLUSH: several write batches collect while one sync runs; queues and checkpoint follow sometimes."""
    writer = Writer(root, mark, draw, {**SMALL, "sync_flush": True})
    for number in range(60):
        writer.put_and_write(QUEUES, draw.randint(1, 4))
        if draw.random() < 0.6:
            writer.sync()
            writer.store.prepare()
        if number % 7 == 6:
            writer.flush()
    writer.close()


def async_flush(root: Path, mark: Marks, draw: random.Random) -> None:
    """ASYNC_FLUSH: many write batches between two syncs, over several segments and queue files."""
    writer = Writer(root, mark, draw, SMALL)
    for number in range(50):
        writer.put_and_write(QUEUES, draw.randint(1, 8))
        if number % 12 == 11:
            writer.flush()
    writer.close()


def pages(root: Path, mark: Marks, draw: random.Random) -> None:
    """Queue and index files of several pages, for long without a sync."""
    writer = Writer(root, mark, draw, PAGES)
    for number in range(90):
        writer.put_and_write([("T", 0)], draw.randint(5, 12))
        if number % 30 == 29:
            writer.flush()
    writer.close()


def retention(root: Path, mark: Marks, draw: random.Random) -> None:
    """Old segments are deleted while new ones are created; queues, index and a whole topic are deleted, too."""
    writer = Writer(root, mark, draw, {**SMALL, "sync_flush": draw.random() < 0.5})
    for number in range(60):
        writer.put_and_write([*QUEUES, ("Gone", 0)] if number < 30 else QUEUES, draw.randint(1, 6))
        writer.sync()
        if number % 5 == 4:
            writer.flush()
        if number == 32:
            writer.drop_topic("Gone")
        if number % 11 == 10:
            writer.drop_segments(draw.randint(1, 3))
    writer.close()


def batch_queues(root: Path, mark: Marks, draw: random.Random) -> None:
    """A topic with batch queues beside others: inner batches, messages alone, kills, retention. No file states the
    topic's kind: the folder of its queues and its records do."""
    options = {**SMALL, "batch_queue_file_bytes": 10 * 46, "sync_flush": draw.random() < 0.5}
    writer = Writer(root, mark, draw, options)
    for number in range(50):
        writer.store.set_batch_topic("B", True)
        for _ in range(draw.randint(0, 3)):
            writer.put_inner_batch("B", draw.randint(0, 1), draw.randint(1, 5))
        writer.put_and_write([*QUEUES, ("B", 0)], draw.randint(1, 3))
        if draw.random() < 0.5:
            writer.sync()
        if number % 7 == 6:
            writer.flush()
        if number % 15 == 14:
            writer.drop_segments(draw.randint(1, 3))
        if number % 20 == 19:
            writer.reopen(kill=number < 30)
    writer.close()


def restarts(root: Path, mark: Marks, draw: random.Random) -> None:
    """Clean stops, kills and what the next start does."""
    writer = Writer(root, mark, draw, SMALL)
    for number in range(8):
        for _ in range(draw.randint(1, 8)):
            writer.put_and_write(QUEUES, draw.randint(1, 5))
            if draw.random() < 0.4:
                writer.flush()
        writer.reopen(kill=number % 3 != 0)
    writer.close()


def config_files(root: Path, mark: Marks, draw: random.Random) -> None:
    """topics.json is saved repeatedly, with its .bak."""
    writer = Writer(root, mark, draw, SMALL)
    progress_writer = ProgressWriter(root, mark, writer.store)
    for number in range(20):
        progress_writer.save_topics()
        if number % 7 == 0:
            writer.put_and_write(QUEUES, 2)
    progress_writer.journal.close()
    writer.close()


def progress(root: Path, mark: Marks, draw: random.Random) -> None:
    """Messages are consumed: offsets in the journal, and sometimes in consumerOffset.json; either flush mode."""
    is_synced = draw.random() < 0.6
    writer = Writer(root, mark, draw, {**SMALL, "sync_flush": is_synced})
    progress_writer = ProgressWriter(root, mark, writer.store)
    for number in range(60):
        writer.put_and_write(QUEUES, draw.randint(1, 4))
        if is_synced or number % 9 == 8:
            writer.sync()
        for topic, queue_id in QUEUES:
            end = writer.store.reader.max_offset(topic, queue_id)
            if (
                end > max(progress_writer.offsets.committed(GROUP, topic, queue_id), 0)
                and draw.random() < 0.5
            ):
                progress_writer.commit(topic, queue_id, end, wait=is_synced)
        if number % 8 == 7:
            writer.flush()
            progress_writer.save_progress()
        if number % 25 == 24:
            progress_writer.journal.close()
            writer.reopen(kill=True)
            progress_writer = ProgressWriter(root, mark, writer.store)
    progress_writer.journal.close()
    writer.store.abandon()


Script = Callable[[Path, Marks, random.Random], None]
WORKLOADS: dict[str, Script] = {
    script.__name__: script
    for script in (
        group_commit,
        async_flush,
        pages,
        retention,
        restarts,
        batch_queues,
        config_files,
        progress,
        whole_broker,
        pending_work,
        expired_files,
        followed_log,
        slave_broker,
    )
}


def main() -> None:
    name, root, seed = sys.argv[1:]
    WORKLOADS[name](Path(root), Marks(), random.Random(int(seed)))


if __name__ == "__main__":
    main()
