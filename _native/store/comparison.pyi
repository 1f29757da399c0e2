from firearrow._native.store.commitlog import CommitLog
from firearrow._native.store.consumequeue import ConsumeQueue
from firearrow._native.store.files.repair_log import RepairLog

class QueueRebuild:
    """Queues against the whole log; used by recovery."""

    lost_bytes: int
    def __init__(self, log: CommitLog, repair_log: RepairLog) -> None: ...
    def finish(self, queues: list[ConsumeQueue]) -> None: ...
