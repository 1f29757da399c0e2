from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.consume_queue import ConsumeQueue

class QueueRebuild:
    """Compares queues with the whole log; used by recovery."""

    lost_bytes: int
    def __init__(self, log: CommitLog, repair_log: RepairLog) -> None: ...
    def finish(self, queues: list[ConsumeQueue]) -> None: ...
