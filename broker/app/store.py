"""Opens store and journal from the options and closes the store; faults become errors that state what to do.

Loop thread.
"""

import logging
import sys
from pathlib import Path

from firearrow._native.store.confirm_offset import remove_confirm_offset
from firearrow._native.store.message_store import MessageStore, StoreConfig, StoreError
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.replication.log.epoch_file import EpochFile
from firearrow.broker.replication.log.pair_identity import ASYNC_MASTER

log = logging.getLogger("firearrow.store")


def open_store(options: Options, truncate_at: int | None = None) -> MessageStore:
    """`truncate_at`: a record's offset, where log and epochs are to end. StartError."""
    waits_for_copies = options.broker_role != ASYNC_MASTER or options.controller_mode
    try:
        store = MessageStore.open(
            options.store_root,
            StoreConfig(
                commitlog_path=options.commitlog_path or None,
                segment_bytes=options.segment_bytes,
                queue_file_bytes=options.queue_file_bytes,
                batch_queue_file_bytes=options.batch_queue_file_bytes,
                index_enabled=options.index_enabled,
                index_slots=options.index_slots,
                index_entries=options.index_entries,
                max_message_bytes=options.max_message_bytes,
                check_crc=options.check_crc,
                sync_flush=options.sync_flush,
                confirm_later=waits_for_copies,
                delay_levels_ms=options.delay_levels_ms,
                lmq=options.multi_dispatch,
                truncate_at=truncate_at,
            ),
            progress=lambda text: print(f"firearrow: {text}", file=sys.stderr, flush=True),
        )
    except StoreError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        raise _unusable(options.store_root, error) from None
    try:
        if truncate_at is not None:
            EpochFile(store.root).truncate(truncate_at)
        if not waits_for_copies:
            remove_confirm_offset(store.root)
    except (OSError, StartError) as error:
        store.abandon()
        if isinstance(error, OSError):
            raise _unusable(store.root, error) from None
        raise
    return store


def open_journal(store: MessageStore) -> Journal:
    try:
        return Journal(Path(store.root) / "journal", store.run, store.written)
    except OSError as error:
        raise _unusable(store.root, error) from None


def _unusable(root: str, error: OSError) -> StartError:
    if isinstance(error, IsADirectoryError):
        advice = "move this folder away, a file belongs there"
    else:
        advice = "free disk space, set its permissions, or choose another folder with --store"
    return StartError(
        f"cannot open the store {root} ({error.filename or root}: {error.strerror or error}): {advice}"
    )


def report_entry_repairs(store: MessageStore) -> None:
    """Log each queue entry that a reader found and that leads to no valid record, once."""
    for line in store.reader.drain_entry_repairs():
        log.error("%s", line)


def close_store(store: MessageStore, *, unsaved: OSError | None, keep_journal: bool = False) -> None:
    """StartError when the next start has to recover the store. `unsaved`: why files are unsaved, so the
    journal stays valid. `keep_journal`: it stays valid, as a slave's has to: no file has what its entries state."""
    failing = sys.exception()
    fault = unsaved
    report_entry_repairs(store)
    if not store.writable:
        fault = fault or OSError("it stopped accepting messages, see the log above")
    try:
        store.close(clean=unsaved is None and not keep_journal)
    except OSError as error:
        fault = error
    if fault is None:
        return
    if failing is not None:  # report the fault of the start instead
        return log.error("the store was not closed cleanly: %s", fault)
    raise StartError(f"the store was not closed cleanly and will be recovered: {fault}")
