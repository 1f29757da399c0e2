"""Damage of a store folder: a small store is checked whole, of a larger one the end of the log and samples.

The checks are those of `firearrow store verify`. Reads only; one thread. Linux only.
"""

import os
import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from firearrow._native.offline.log_file import LogFiles
from firearrow._native.offline.mapped_files import MappedFiles
from firearrow._native.offline.queue_reader import ENTRY, Entry, QueueReader, is_batch_folder, reader_of
from firearrow._native.offline.segment_files import SegmentFile, missing
from firearrow._native.offline.store_folder import StoreFolder
from firearrow._native.protocol.name_rules import LMQ_PREFIX
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow._native.store.log.record import RecordError, decode
from firearrow._native.store_checks.audit import SerialExecutor, StoreAudit
from firearrow._native.store_checks.compaction_files import check_compaction_files
from firearrow._native.store_checks.findings import Extent, Findings, Kind
from firearrow._native.store_checks.log_part import LogPart, PartSettings, gap_finding
from firearrow._native.store_checks.log_ranges import LogRange
from firearrow._native.store_checks.small_files import check_checkpoint, check_config_files, check_journal
from firearrow._native.store_checks.timer_files import check_timer_files
from firearrow.client.cli.doctor.facts import StoreDamage
from firearrow.client.cli.output import bytes_text

WHOLE_BYTES = 64 << 20
"""A store with less on the disk is checked whole."""
TAIL_BYTES, SAMPLE_BYTES, SAMPLES = 16 << 20, 1 << 20, 16
LOOK_BACK_BYTES = (0, 8 << 20, 144 << 20)
"""How far before a sample its first record may begin: the last one is more than the largest message of brokers."""
QUEUES_MAX, ENTRIES = 500, 16


def damages(store: StoreFolder) -> tuple[list[StoreDamage], str]:
    """One for each kind of damage, and what was not looked at. StoreUnreadable."""
    findings = Findings()
    stored = _stored_bytes(store)
    if stored <= WHOLE_BYTES:
        seen = StoreAudit(store, SerialExecutor(1)).run()
        findings.merge(seen.findings)
        newest_ms = max((last for _, last in seen.counts.times.values()), default=0)
        left_out = ""
    else:
        read = _sample_log(store, findings)
        queues, of = _sample_queues(store, findings)
        newest_ms = 0
        left_out = (
            f"{bytes_text(read)} of {bytes_text(stored)} of the log, and at most {ENTRIES} entries of {queues} of {of} "
            "queues were looked at, and no index"
        )
    _check_small_files(store, 0 if store.is_running() else newest_ms, findings)
    return list(_by_kind(store, findings)), left_out


def _stored_bytes(store: StoreFolder) -> int:
    """What the log takes on the disk: its files are sparse, or made in advance."""
    return sum(os.stat(each.path).st_blocks * 512 for each in store.segments())


def _by_kind(store: StoreFolder, findings: Findings) -> Iterable[StoreDamage]:
    first: dict[str, str] = {}
    for each in findings.ordered():
        where = os.path.relpath(each.where.file, store.root)
        first.setdefault(str(each.kind), f"{where} at byte {each.where.position}: {each.text}")
    for kind, text in first.items():
        more = findings.totals[kind] - 1
        yield StoreDamage(kind, f"{text} (and {more:,} more)" if more > 0 else text)


def _check_small_files(store: StoreFolder, newest_ms: int, findings: Findings) -> None:
    """`newest_ms`: store time of the newest record; 0: not known."""
    root, add, notes = Path(store.root), partial(findings.add_in, store.name), list[str]()
    for check in (
        partial(check_checkpoint, root, newest_ms, add),
        partial(check_config_files, root, add, notes),
        partial(check_journal, root, add, notes),
        partial(check_timer_files, root, add, notes),
        partial(check_compaction_files, store, add, notes),
    ):
        try:
            check()
        except OSError as error:
            add(Kind.UNREADABLE, Path(error.filename or root), 0, f"it cannot be read: {error.strerror}")


# ---- samples of a large store ----


def _sample_log(store: StoreFolder, findings: Findings) -> int:
    """Bytes of the log that were read: its end, and some from anywhere, with their queue entries."""
    segments, growing = store.segments(), store.is_running()
    for start, stop in missing(segments):
        where = Extent(store.name, store.path("commitlog", f"{start:020d}"), 0, start, bytes=stop - start)
        findings.add(Kind.MISSING_SEGMENT.finding(where, f"{stop - start} bytes of the log are missing"))
    length = max(each.length for each in segments)
    for each in segments[:-1]:
        if each.length < length:
            where = Extent(store.name, each.path, each.length, bytes=length - each.length)
            findings.add(
                Kind.CUT_FILE.finding(where, f"it has {each.length} bytes, but other files have {length}")
            )
    settings = PartSettings(
        growing=growing,
        with_index=False,
        trims=store.trims(),
        deletions=store.deletions(),
        topics=store.topics(),
    )
    newest = LogFiles(store.path("commitlog"), MappedFiles(1)).newest()
    last = next(each for each in segments if each.base == newest)
    end = store.log_end() if growing else _data_end(last)
    tail = LogRange(last, max(last.base, end - TAIL_BYTES), min(end, last.end) if growing else last.end)
    _check_range(store, tail, settings, findings, is_tail=True)
    before = [each for each in segments if each.base < tail.start]
    read = end - tail.start
    for _ in range(SAMPLES if before else 0):
        segment = random.choice(before)
        stop = min(segment.end, tail.start)
        start = random.randrange(segment.base, max(stop - SAMPLE_BYTES, segment.base + 1))
        sample = LogRange(segment, start, min(start + SAMPLE_BYTES, stop))
        _check_range(store, sample, settings, findings, is_tail=False)
        read += len(sample)
    return read


def _data_end(segment: SegmentFile) -> int:
    """After the last byte that is not 0: blocks are reserved by writing zeros."""
    mapping = MappedFiles(1).get(segment)
    end = 0 if mapping is None else mapping.data_end
    while mapping is not None and end > 0:
        start = max(end - SAMPLE_BYTES, 0)
        written = len(bytes(mapping.window[start:end]).rstrip(b"\0"))
        if written:
            return segment.base + start + written
        end = start
    return segment.base


def _check_range(
    store: StoreFolder, part: LogRange, settings: PartSettings, findings: Findings, *, is_tail: bool
) -> None:
    for back in LOOK_BACK_BYTES:  # it may be inside a record, or in the blank at the end of its file
        part = replace(part, start=max(part.segment.base, part.start - back))
        seen = LogPart(store, [part], (), settings, exact=False).run()
        if seen.records is not None or part.start == part.segment.base:
            break
    findings.merge(seen.findings)
    rest = seen.rest
    if rest is None or (is_tail and (settings.growing or not rest.is_torn)):
        return
    kind = Kind.TORN_TAIL if is_tail else Kind.TORN if rest.is_torn else Kind.HOLE
    findings.add(gap_finding(store, part.segment, kind, rest.start, part.stop, rest.why))


def _sample_queues(store: StoreFolder, findings: Findings) -> tuple[int, int]:
    """How many queues were looked at, and how many there are."""
    names = list(store.queues())
    chosen = names if len(names) <= QUEUES_MAX else random.sample(names, QUEUES_MAX)
    log = LogFiles(store.path("commitlog"), MappedFiles(1))
    for topic, number in chosen:
        folder = store.folder_of(topic, number)
        reader = reader_of(folder)
        try:
            reader.refresh()
            end = reader.end() - (ENTRIES if store.is_running() else 0)  # the last ones may be on their way
            between = range(reader.first, end)
            wanted = {*between[-1:], *random.sample(between, min(ENTRIES, len(between)))}
            for at in sorted(wanted):
                fault = _entry_fault(log, reader, topic, number, at)
                if fault is not None:
                    byte = 0 if is_batch_folder(folder) else at * ENTRY.size
                    where = Extent(store.name, folder, byte, None, topic, number, at)
                    findings.add(fault[0].finding(where, fault[1]))
        except StoreUnreadable as error:
            findings.add(Kind.UNREADABLE.finding(Extent(store.name, folder, 0), str(error)))
        finally:
            reader.close()
    return len(chosen), len(names)


def _entry_fault(
    log: LogFiles, reader: QueueReader, topic: str, number: int, at: int
) -> tuple[Kind, str] | None:
    rows = reader.read(at, at + 1)  # of a batch only the first message has an entry
    entry = Entry(*ENTRY.unpack(rows)) if rows else None
    if entry is None or entry.is_blank or (entry.is_written and entry.physical < log.first):
        return None
    if not entry.is_written:
        return Kind.QUEUE_GAP, f"nothing is written for offset {at}, though later entries are there"
    try:
        record = decode(log.record(entry.physical, entry.size), check_crc=False)
    except RecordError:
        return Kind.LOST_RECORD, f"entry {at} points to {entry.physical}, where no record of its size begins"
    if topic.startswith(LMQ_PREFIX) or (record.topic, record.queue_id, record.queue_offset) == (
        topic,
        number,
        at,
    ):
        return None
    there = f"offset {record.queue_offset} of {record.topic} queue {record.queue_id}"
    return Kind.WRONG_ENTRY, f"entry {at} points to {entry.physical}, which is {there}"
