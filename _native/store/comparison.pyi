from firearrow._native.store.commitlog import CommitLog
from firearrow._native.store.consumequeue import ConsumeQueue
from firearrow._native.store.mending import Mending

class Comparison:
    """Queues against the whole log; used by recovery."""

    lost_bytes: int
    def __init__(self, log: CommitLog, mending: Mending) -> None: ...
    def finish(self, queues: list[ConsumeQueue]) -> None: ...
