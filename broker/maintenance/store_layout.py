"""Shape: how large the files of a store are, told from the files. What opens a store has to say it. Reads only."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from firearrow._native.audit.index import ENTRY_BYTES, HEAD_BYTES, SLOT_BYTES, index_files
from firearrow._native.audit.store_files import AuditedStore
from firearrow._native.offline.segment_files import SegmentFile, rolled_files
from firearrow._native.store.message_store import StoreConfig

SEGMENT_BYTES = 1 << 30
QUEUE_FILE_BYTES = 6_000_000
INDEX_SLOTS, INDEX_ENTRIES = 5_000_000, 20_000_000
QUEUES_LOOKED_AT = 256
LIGHT = "%LMQ%"


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Both brokers' own sizes where no file tells. `index_known`: its slots could be told, or there is none."""

    segment_bytes: int = SEGMENT_BYTES
    queue_file_bytes: int = QUEUE_FILE_BYTES
    index_slots: int = INDEX_SLOTS
    index_entries: int = INDEX_ENTRIES
    index_known: bool = True
    is_lmq: bool = False

    @staticmethod
    def of(root: str, index_slots: int = 0) -> "StoreLayout":
        """Most files decide, damaged ones are few. `index_slots` 0: told from the index files. StoreUnreadable."""
        store = AuditedStore(os.path.basename(root), root)
        names = list(store.queues())
        some = names[:: max(1, len(names) // QUEUES_LOOKED_AT)]
        queues = (rolled_files(store.path("consumequeue", topic, str(number))) for topic, number in some)
        slots, entries, known = _index(store, index_slots)
        return StoreLayout(
            _usual(store.segments(), SEGMENT_BYTES),
            _usual((file for files in queues for file in files), QUEUE_FILE_BYTES),
            slots, entries, known, any(topic.startswith(LIGHT) for topic, _ in names),
        )  # fmt: skip

    def config(self) -> StoreConfig:
        """To open the store with."""
        return StoreConfig(
            segment_bytes=self.segment_bytes,
            queue_file_bytes=self.queue_file_bytes,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            index_enabled=self.index_known,
            lmq=self.is_lmq,
        )


def _usual(files: Iterable[SegmentFile], otherwise: int) -> int:
    counted = Counter(file.length for file in files)
    return max(counted, key=lambda length: (counted[length], length)) if counted else otherwise


def _index(store: AuditedStore, slots: int) -> tuple[int, int, bool]:
    files = index_files(store, slots)
    told = Counter((file.segment.length, file.slots) for file in files if file.slots)
    if not told:
        return INDEX_SLOTS, INDEX_ENTRIES, not files
    [((length, count), _)] = told.most_common(1)
    return count, (length - HEAD_BYTES - count * SLOT_BYTES) // ENTRY_BYTES, True
