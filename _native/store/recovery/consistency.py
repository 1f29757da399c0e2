"""Doubt: what tells, at an open, that queues or index are not as they were left, so that they are built again.

Cheap on purpose: shapes, ends, samples. Changes nothing. Thread: the appender's, at the open.
"""

import struct

from firearrow._native.base.hash import crc32
from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.checkpoint import Checkpoint, Seal
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.dispatcher import Dispatch
from firearrow._native.store.recovery.recovery import disagreeing

COUNTS = struct.Struct(">II")
FINGERPRINT = struct.Struct(">IIq")


def fingerprint(dispatch: Dispatch, *, shape: bool) -> bytes:
    """How many queues and index files there are; with `shape` 16 bytes that change when one of them is another one."""
    if not shape:
        count = sum(queue.end_entry > 0 for queue in dispatch.queues.values())
        return COUNTS.pack(count, dispatch.index_files)
    shapes = [(*name, queue.first_entry, queue.end_entry) for name, queue in dispatch.queues.items()]
    queues = sorted(each for each in shapes if each[-1])
    whole = crc32(repr((queues, dispatch.index_files)).encode())
    return FINGERPRINT.pack(len(queues), whole, dispatch.newest_key)


def check_consistency(
    log: CommitLog,
    dispatch: Dispatch,
    checkpoint: Checkpoint,
    seal: Seal | None,
    repair_log: RepairLog,
    *,
    clean: bool,
) -> None:
    """Let `repair_log` rebuild if there is a reason, and tell it; a store that never came to its first checkpoint, or has
    no log, is nothing to tell of."""
    if not log.bases or repair_log.rebuild:
        return
    reason = _reason(log, dispatch, checkpoint, seal, clean)
    if reason is None and checkpoint.physic_ms > 0 and clean:
        queue = disagreeing(log, dispatch)
        if queue is not None:
            reason = f"an entry of queue {queue.queue_id} of {queue.topic} does not point to its record"
    if reason is not None:
        repair_log.record(f"{reason}: queues and index are built again from the log")
    repair_log.rebuild = reason is not None or checkpoint.physic_ms <= 0


def _reason(
    log: CommitLog, dispatch: Dispatch, checkpoint: Checkpoint, seal: Seal | None, clean: bool
) -> str | None:
    if clean and checkpoint.physic_ms <= 0:
        return "the checkpoint is missing or cut"
    if not dispatch.queues and checkpoint.physic_ms > 0:
        return f"{dispatch.folder} holds no queue"
    if clean and seal is None and dispatch.newest_key == 0 and dispatch.is_indexed:
        return "there is no index"
    if seal is None:
        return None
    if not seal.closed:
        queues, index_files = COUNTS.unpack(seal.fingerprint[: COUNTS.size])
        if clean:
            return "entries that do not agree with the log were met, or the checkpoint is garbled"
        if queues > len(dispatch.queues):
            return "a queue is missing"
        return "an index file is missing" if index_files > dispatch.index_files else None
    if clean and seal.fingerprint != fingerprint(dispatch, shape=True):
        return "queues or index are not as they were left"
    return None
