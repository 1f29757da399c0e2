from firearrow._native.store.consumequeue import ConsumeQueue
from firearrow._native.store.keyindex import KeyIndex

def is_file_name(name: bytes) -> bool: ...
def multi_names(names: bytes, entries: bytes) -> list[tuple[bytes, int]]: ...

class Dispatch:
    """Queue entries and keys of records, staged and recovered."""

    folder: str
    queue_file_bytes: int
    lights: int
    queues: dict[tuple[bytes, int], ConsumeQueue]
    def __init__(
        self,
        folder: str,
        queue_file_bytes: int,
        index: KeyIndex | None,
        delay_levels_ms: tuple[int, ...],
        lmq: bool,
    ) -> None: ...
    def load(self) -> None: ...
    def forget(self, topic: bytes) -> int: ...
    def restore(
        self, topic: bytes, queue_id: int, entry: int, physical_offset: int, size: int, tags_code: int
    ) -> None: ...
