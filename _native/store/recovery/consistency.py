"""Checks at an open whether queues or index have changed since they were closed and must be rebuilt.

Cheap on purpose: counts, ends, samples. Changes no file. Thread: the appender's, at the open.
"""

import struct

from firearrow._native.base.hash import crc32
from firearrow._native.store.files.repair_log import RepairLog
from firearrow._native.store.log.checkpoint import Checkpoint, Seal
from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.dispatcher import Dispatch
from firearrow._native.store.log.queue_check import LITE_PREFIX
from firearrow._native.store.recovery.recovery import mismatched_queue

COUNTS = struct.Struct(">II")
FINGERPRINT = struct.Struct(">IIq")


def fingerprint(dispatch: Dispatch, *, shape: bool) -> bytes:
    """The number of queues and index files; with `shape` 16 bytes that also cover their names and ends, for a store
    that takes no messages. Without it any thread."""
    if shape:
        return _shape(dispatch)
    return COUNTS.pack(dispatch.filled, dispatch.index_files)


def _shape(dispatch: Dispatch) -> bytes:
    shapes = [
        (*name, queue.first_entry, queue.end_entry)
        for name, queue in dispatch.queues.items()
        if not queue.topic.startswith(LITE_PREFIX)
    ]
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
    """Request a rebuild in `repair_log` if something differs, and record why. Before the first checkpoint the
    rebuild is requested silently; without a log there is nothing to do."""
    if not log.bases or repair_log.rebuild:
        return
    reason = _reason(log, dispatch, checkpoint, seal, clean)
    if reason is None and checkpoint.physic_ms > 0 and clean:
        queue = mismatched_queue(log, dispatch)
        if queue is not None:
            reason = f"an entry of queue {queue.queue_id} of {queue.topic} does not point to its record"
    if reason is not None:
        repair_log.record(f"{reason}: queues and index are rebuilt from the log")
    repair_log.rebuild = reason is not None or checkpoint.physic_ms <= 0


def _reason(
    log: CommitLog, dispatch: Dispatch, checkpoint: Checkpoint, seal: Seal | None, clean: bool
) -> str | None:
    if clean and checkpoint.physic_ms <= 0:
        return "the checkpoint is missing or truncated"
    if not dispatch.queues and checkpoint.physic_ms > 0:
        return f"{dispatch.folder} contains no queue"
    if clean and seal is None and dispatch.newest_key == 0 and dispatch.is_indexed:
        return "the index is missing"
    if seal is None:
        return None
    if not seal.closed:
        queues, index_files = COUNTS.unpack(seal.fingerprint[: COUNTS.size])
        if clean:
            return "queue entries did not match the log in the last run, or the checkpoint is corrupt"
        if queues > sum(not queue.topic.startswith(LITE_PREFIX) for queue in dispatch.all_queues()):
            return "a queue is missing"
        return "an index file is missing" if index_files > dispatch.index_files else None
    if clean and seal.fingerprint != fingerprint(dispatch, shape=True):
        return "queues or index have changed since the last stop"
    return None
