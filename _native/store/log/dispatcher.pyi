from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.consume_queue import ConsumeQueue
from firearrow._native.store.log.key_index import KeyIndex

def is_file_name(name: bytes) -> bool: ...
def multi_names(names: bytes, entries: bytes) -> list[tuple[bytes, int]]: ...

class Dispatch:
    """Queue entries and index keys of records, staged and recovered."""

    folder: str
    queue_file_bytes: int
    lmq_count: int
    queues: dict[tuple[bytes, int], ConsumeQueue]
    def __init__(
        self,
        folder: str,
        queue_file_bytes: int,
        index: KeyIndex | None,
        delay_levels_ms: tuple[int, ...],
        lmq: bool,
    ) -> None: ...
    is_indexed: bool
    index_files: int
    newest_key: int
    """Physical offset of the newest record with a key; 0 if there is none, -1 without an index."""
    def all_queues(self) -> list[ConsumeQueue]:
        """The queues of now; any thread. `queues` is the appender's."""
    def load(self, repair_log: RepairLog) -> None: ...
    def forget(self, topic: bytes, queue_id: int = -1) -> int: ...
