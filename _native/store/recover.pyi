from collections.abc import Callable

from firearrow._native.store.checkpoint import Checkpoint
from firearrow._native.store.commitlog import CommitLog
from firearrow._native.store.consumequeue import ConsumeQueue
from firearrow._native.store.dispatch import Dispatch
from firearrow._native.store.files.repair_log import RepairLog

def recover(
    log: CommitLog,
    dispatch: Dispatch,
    checkpoint: Checkpoint,
    repair_log: RepairLog,
    *,
    clean: bool,
    sealed: bool,
    on_unclean: Callable[[], None],
    check_crc: bool,
    progress: Callable[[str], None] | None,
) -> tuple[int, int]: ...
def disagreeing(log: CommitLog, dispatch: Dispatch) -> ConsumeQueue | None: ...
