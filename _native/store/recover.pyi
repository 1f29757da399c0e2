from collections.abc import Callable

from firearrow._native.store.checkpoint import Checkpoint
from firearrow._native.store.commitlog import CommitLog
from firearrow._native.store.dispatch import Dispatch

def recover(
    log: CommitLog,
    dispatch: Dispatch,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    rebuild: bool,
    check_crc: bool,
    progress: Callable[[str], None] | None,
) -> int: ...
