from collections.abc import Callable

from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.checkpoint import Checkpoint
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.consume_queue import ConsumeQueue
from firearrow._native.store.log.dispatcher import Dispatch

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
    truncate_at: int = -1,
) -> tuple[int, int]:
    """See recovery.pyx."""

def mismatched_queue(log: CommitLog, dispatch: Dispatch) -> ConsumeQueue | None:
    """A queue whose last or middle entry does not point to its record; None if there is none."""
