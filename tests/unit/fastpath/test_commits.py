"""Offsets that come with pulls: journalled natively, and counted as those of the complete path are."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow._native.fastpath.fast_dispatch import FastDispatch, RequestCounters
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.pull_message import Puller
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.progress_journal import FILE_BYTES, Journal, Kind
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.support.fast_path_harness import FastPathConnection, FastPathHarness
from tests.support.send_frames import plain

KEY = "T@G"
ENTRY_BYTES = 27 + len(KEY)


class PullHarness(FastPathHarness):
    """One message in queue 0 of T, and one in queue 1; `changed` are the groups whose offsets were to be saved."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder / "progress"
        self.changed: list[str] = []
        self.journal = Journal(self.folder, self.store.run, 0)
        self.offsets = ConsumerOffsets(
            self.clock,
            version_step=3,
            changed=self.changed.extend,
            on_commit=partial(self.journal.note, Kind.OFFSET),
        )
        hold_service = PullHoldService(self.loop, self.clock, 10)
        puller = Puller(
            self.store,
            hold_service,
            lambda *_: (2, (), 0, 0, 60_000, False, 0, 1),
            cast(Any, None),
            self.offsets,
            self.journal.journal_page,
            self.stats,
            self.clock,
        )
        self.fast_handler = FastDispatch(self.sender, puller, RequestCounters())
        self.connection = FastPathConnection(self)
        self.connection.feed(plain(1), plain(2, queue_id=1))
        self.write_batch.commit()

    def pull(self, *commits: int, queue_id: int = 0) -> None:
        self.connection.output.writes.clear()
        self.connection.feed(*(committing(queue_id, commit) for commit in commits))
        self.connection.flush()
        assert [code for _, code in self.connection.answers()] == [0] * len(commits)
        assert self.connection.slow == []

    def on_commit(self) -> list[tuple[str, int, int]]:
        """What a start after a kill finds, compacted."""
        again = Journal(self.folder, self.store.run, 0)
        entries = again.recover_entries()
        again.close()
        return [(entry.name, entry.number, entry.value) for entry in entries if entry.kind == Kind.OFFSET]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[PullHarness]:
    made = PullHarness(tmp_path)
    yield made
    made.journal.close()
    made.store.close()


def committing(queue_id: int, commit_offset: int) -> bytes:
    ext = {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": str(queue_id),
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "5",
        "commitOffset": str(commit_offset),
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=1).encode()


def test_a_commit_is_in_the_table_and_in_the_journal(harness: PullHarness) -> None:
    harness.pull(5, 9, 7)
    harness.pull(1, 2, queue_id=1)
    assert harness.offsets.of("G", "T") == {0: 7, 1: 2}
    assert harness.on_commit() == [(KEY, 0, 7), (KEY, 1, 2)]


def test_each_is_counted_and_only_a_new_offset_is_journalled(harness: PullHarness) -> None:
    before = harness.journal.journal_page.at
    harness.pull(5, 5, 6, 6, 6, 5, 5)
    assert harness.journal.journal_page.at == before + 3 * ENTRY_BYTES
    assert harness.changed == ["G"] * 3  # no file is written for what was committed before
    assert harness.offsets.version.counter == 2


def test_a_full_file_of_the_journal_is_followed_by_another(harness: PullHarness) -> None:
    harness.pull(0)
    count = FILE_BYTES // ENTRY_BYTES + 10
    for first in range(1, count, 100):
        harness.pull(*range(first, min(first + 100, count)))
    assert harness.journal.journal_page.at < FILE_BYTES // 2
    assert len(list(harness.folder.iterdir())) >= 2
    assert harness.on_commit() == [(KEY, 0, count - 1)]


def test_after_a_groups_offsets_were_deleted_they_start_again(harness: PullHarness) -> None:
    harness.pull(5, 6)
    harness.offsets.remove_group("G")
    harness.pull(3)
    assert len(harness.offsets) == 1
    assert harness.offsets.topics_of("G") == ["T"]
    assert harness.on_commit() == [(KEY, -1, -1), (KEY, 0, 3)]


def test_loaded_offsets_continue(harness: PullHarness) -> None:
    harness.pull(5)
    harness.offsets.load(b'{"offsetTable":{"T@G":{"0":40}}}')
    harness.pull(41)
    assert harness.offsets.of("G", "T") == {0: 41}
    assert len(harness.offsets) == 1
    assert harness.on_commit() == [(KEY, 0, 41)]


def test_a_group_at_its_queue_limit_takes_the_complete_path(tmp_path: Path) -> None:
    harness = PullHarness(tmp_path)
    harness.offsets._queues_max = 1
    harness.pull(5, 6)
    harness.connection.feed(committing(1, 1))
    assert [one.code for one in harness.connection.slow] == [RequestCode.PULL_MESSAGE]
    assert harness.on_commit() == [(KEY, 0, 6)]
    harness.journal.close()
    harness.store.close()


def test_a_reset_leaves_only_its_own_pulls_to_the_complete_path(harness: PullHarness) -> None:
    """A group that never pulls keeps its reset; the pulls of others, and of its other queues, stay fast."""
    for group, topic, queue_id in (("absent", "T", 0), ("G", "other", 0), ("G", "T", 1)):
        harness.offsets.reset(group, topic, queue_id, 0)
    harness.pull(5, 6)
    harness.connection.feed(committing(1, 7))
    assert len(harness.connection.slow) == 1
    assert harness.offsets.of("G", "T") == {0: 6, 1: 0}
