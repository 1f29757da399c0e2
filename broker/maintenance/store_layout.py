"""Derives the file sizes of a store from its files, because opening a store needs them. Reads only."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from firearrow._native.offline.queue_reader import is_batch_folder
from firearrow._native.offline.segment_files import SegmentFile, rolled_files
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.store.message_store import StoreConfig
from firearrow._native.store_checks.index_files import ENTRY_BYTES, HEAD_BYTES, SLOT_BYTES, index_files

SEGMENT_BYTES = 1 << 30
QUEUE_FILE_BYTES = 6_000_000
BATCH_QUEUE_FILE_BYTES = 13_800_000
INDEX_SLOTS, INDEX_ENTRIES = 5_000_000, 20_000_000
SAMPLED_QUEUES_MAX = 256
LMQ_PREFIX = "%LMQ%"


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Default: the sizes of both brokers.

    `index_known`: the slot count could be derived, or there is no index file.
    """

    segment_bytes: int = SEGMENT_BYTES
    queue_file_bytes: int = QUEUE_FILE_BYTES
    batch_queue_file_bytes: int = BATCH_QUEUE_FILE_BYTES
    index_slots: int = INDEX_SLOTS
    index_entries: int = INDEX_ENTRIES
    index_known: bool = True
    is_lmq: bool = False

    @staticmethod
    def of(root: str, index_slots: int = 0) -> "StoreLayout":
        """The majority of files decides, because few are damaged. `index_slots` 0: derived.

        Raises StoreUnreadable.
        """
        store = StoreFolder(os.path.basename(root), root)
        names = list(store.queues())
        sample = names[:: max(1, len(names) // SAMPLED_QUEUES_MAX)]
        folders = [store.folder_of(*name) for name in sample]
        plain = (rolled_files(folder) for folder in folders if not is_batch_folder(folder))
        batches = (rolled_files(folder) for folder in folders if is_batch_folder(folder))
        slots, entries, known = _index(store, index_slots)
        return StoreLayout(
            _most_frequent(store.segments(), SEGMENT_BYTES),
            _most_frequent((file for files in plain for file in files), QUEUE_FILE_BYTES),
            _most_frequent((file for files in batches for file in files), BATCH_QUEUE_FILE_BYTES),
            slots,
            entries,
            known,
            any(topic.startswith(LMQ_PREFIX) for topic, _ in names),
        )

    def config(self) -> StoreConfig:
        """The configuration to open the store with."""
        return StoreConfig(
            segment_bytes=self.segment_bytes,
            queue_file_bytes=self.queue_file_bytes,
            batch_queue_file_bytes=self.batch_queue_file_bytes,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            index_enabled=self.index_known,
            lmq=self.is_lmq,
        )


def _most_frequent(files: Iterable[SegmentFile], otherwise: int) -> int:
    counted = Counter(file.length for file in files)
    return max(counted, key=lambda length: (counted[length], length)) if counted else otherwise


def _index(store: StoreFolder, slots: int) -> tuple[int, int, bool]:
    files = index_files(store, slots)
    shapes = Counter((file.segment.length, file.slots) for file in files if file.slots)
    if not shapes:
        return INDEX_SLOTS, INDEX_ENTRIES, not files
    [((length, count), _)] = shapes.most_common(1)
    return count, (length - HEAD_BYTES - count * SLOT_BYTES) // ENTRY_BYTES, True
