"""Progress: config files and journal beside a store, written and read back as the broker does.

`ProgressWriter` runs in the recorded process and marks what is reported as synced; `offsets_of` runs in the checker.
"""

from pathlib import Path

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.offsets import ConsumerOffsets
from tests.crash.expected import ExpectedState, Queue
from tests.crash.marks import Marks

GROUP = "G"
OFFSETS = "config/consumerOffset.json"
TOPICS = "config/topics.json"


class ProgressWriter:
    """Offsets of one group, saved and journalled; `version` counts the saves of topics.json."""

    def __init__(self, root: Path, mark: Marks, store: MessageStore) -> None:
        self._mark = mark
        self._store = store
        self.journal = Journal(root / "journal", store.run, store.written)
        self.offsets = ConsumerOffsets(
            Clock(), on_commit=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        self._offsets_file = ConfigFile(root / OFFSETS)
        self._topics_file = ConfigFile(root / TOPICS)
        self._rotated = 0
        self._version = 0
        _load(self._offsets_file, self.journal, self.offsets)

    def commit(self, topic: str, queue_id: int, queue_offset: int, *, wait: bool) -> None:
        """`wait`: until it is on the disk, as for an acknowledged commit under SYNC_FLUSH."""
        values = {"topic": topic, "queue": queue_id, "offset": queue_offset}
        self._mark("committing", **values)
        self.offsets.commit(GROUP, topic, queue_id, queue_offset)
        self._mark("noted", **values)
        if wait:
            self.journal.sync()
            self._mark("committed", **values)

    def save_progress(self) -> None:
        """As MessageServices: the journal file that was full at the last save is deleted once all is saved."""
        before, self._rotated = self._rotated, self.journal.rotate()
        self._offsets_file.write(self.offsets.to_json())
        self.journal.drop_before(before)

    def save_topics(self) -> None:
        self._version += 1
        self._mark("saving", file=TOPICS, version=self._version)
        self._topics_file.write(b"%d " % self._version * (self._version % 5 * 60 + 1))
        self._mark("saved", file=TOPICS, version=self._version)


def _load(file: ConfigFile, journal: Journal, offsets: ConsumerOffsets) -> None:
    file.load(offsets.load)
    for entry in journal.recover_entries():
        if entry.kind == Kind.OFFSET:
            offsets.restore(entry.name, entry.number, entry.value)


def offsets_of(root: Path, store: MessageStore) -> dict[Queue, int]:
    """As a broker finds them that starts after a crash."""
    journal = Journal(root / "journal", store.run, store.written)
    offsets = ConsumerOffsets(Clock())
    try:
        _load(ConfigFile(root / OFFSETS), journal, offsets)
    finally:
        journal.close()
    offsets.bound(store.reader.max_offset)
    found = {}
    for topic in offsets.topics_of(GROUP):
        for queue_id, queue_offset in (offsets.of(GROUP, topic) or {}).items():
            found[topic, queue_id] = queue_offset
    return found


def progress_faults(root: Path, store: MessageStore, expected: ExpectedState, *, kill: bool) -> list[str]:
    faults = _saved_faults(root, expected)
    faults += _step_faults(root, store, expected)
    found = offsets_of(root, store)
    for queue, (synced, noted, may) in expected.commits.items():
        least = min(noted if kill else synced, store.reader.max_offset(*queue))
        if not least <= found.get(queue, 0) <= may:
            faults.append(f"the offset of {queue} is {found.get(queue)}, not {least} to {may}")
    for queue, queue_offset in found.items():
        if queue_offset > store.reader.max_offset(*queue):
            faults.append(
                f"the offset of {queue} is {queue_offset}, its end is {store.reader.max_offset(*queue)}"
            )
    return faults


def _step_faults(root: Path, store: MessageStore, expected: ExpectedState) -> list[str]:
    """A step whose records the log lacks does not count."""
    journal = Journal(root / "journal", store.run, store.written)
    try:
        steps = [entry.value for entry in journal.recover_entries() if entry.kind == Kind.DELAY]
    finally:
        journal.close()
    return [
        f"step {step} counts, whose records end at {expected.steps[step]}, but the log ends at {store.written}"
        for step in steps
        if expected.steps[step] > store.written
    ]


def _saved_faults(root: Path, expected: ExpectedState) -> list[str]:
    faults = []
    for name, (must, may) in expected.saved.items():
        texts: list[bytes] = []
        ConfigFile(root / name).load(texts.append)
        words = set(texts[-1].split()) if texts else {b"0"}
        if len(words) != 1 or not must <= int(min(words)) <= may:
            faults.append(f"{name} holds {sorted(words)[:3]}, not one of {must} to {may}")
    return faults
