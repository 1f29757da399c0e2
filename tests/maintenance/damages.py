"""What can happen to a store's files: each damage takes the store and the offsets of its records, and returns which
file it changed; DAMAGES has the findings that a verification may report."""

import os
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store_checks.findings import Kind
from firearrow.broker.append.progress_journal import FILE_BYTES, Journal
from firearrow.broker.append.progress_journal import Kind as Note
from tests.maintenance.damaged import LOG_0, cut, flip, index_file, overwrite, queue_file, write_config

Damage = Callable[[Path, list[int]], Path]


def bad_body(root: Path, offsets: list[int]) -> Path:
    flip(root / LOG_0, offsets[3] + 90)
    return root / LOG_0


def torn_inside(root: Path, offsets: list[int]) -> Path:
    overwrite(root / LOG_0, offsets[4] + 4, b"\xee" * 4)
    return root / LOG_0


def hole(root: Path, offsets: list[int]) -> Path:
    overwrite(root / LOG_0, offsets[4], bytes(offsets[6] - offsets[4]))
    return root / LOG_0


def missing_segment(root: Path, offsets: list[int]) -> Path:
    path = sorted((root / "commitlog").iterdir())[1]
    path.unlink()
    return path


def cut_segment(root: Path, offsets: list[int]) -> Path:
    cut(root / LOG_0, 3000)
    return root / LOG_0


def wrong_entry(root: Path, offsets: list[int]) -> Path:
    overwrite(queue_file(root), 40, offsets[0].to_bytes(8, "big"))
    return queue_file(root)


def wrong_tags(root: Path, offsets: list[int]) -> Path:
    flip(queue_file(root), 20 + 19)
    return queue_file(root)


def entry_beyond(root: Path, offsets: list[int]) -> Path:
    last = queue_file(root, number=-1)
    overwrite(last, 40, (1 << 40).to_bytes(8, "big") + b"\0\0\0\x70" + bytes(8))
    return last


def queue_gap(root: Path, offsets: list[int]) -> Path:
    overwrite(queue_file(root), 60, bytes(20))
    return queue_file(root)


def lost_queue_file(root: Path, offsets: list[int]) -> Path:
    queue_file(root, number=1).unlink()
    return root / "consumequeue/Orders/0/00000000000000000200"


def wrong_key(root: Path, offsets: list[int]) -> Path:
    path = index_file(root)
    flip(path, 40 + 10 * 4 + 20 * 2 + 3)
    return path


def wrong_slot(root: Path, offsets: list[int]) -> Path:
    path = index_file(root)
    slots = path.read_bytes()[40:80]
    slot = next(n for n in range(10) if slots[4 * n : 4 * n + 4] != bytes(4))
    overwrite(path, 40 + 4 * slot, bytes(4))
    return path


def early_checkpoint(root: Path, offsets: list[int]) -> Path:
    overwrite(root / "checkpoint", 0, (1_800_000_000_000).to_bytes(8, "big"))
    return root / "checkpoint"


def cut_checkpoint(root: Path, offsets: list[int]) -> Path:
    cut(root / "checkpoint", 7)
    return root / "checkpoint"


def bad_config(root: Path, offsets: list[int]) -> Path:
    (root / "config/topics.json").write_bytes(b'{"topicConfigTable":{')
    return root / "config/topics.json"


def bad_backup(root: Path, offsets: list[int]) -> Path:
    (root / "config/topics.json.bak").write_bytes(b"\0\0\0\0")
    return root / "config/topics.json.bak"


def other_config(root: Path, offsets: list[int]) -> Path:
    write_config(root, "consumerOffset.json", b'{"offsetTable":[1,2]}')
    return root / "config/consumerOffset.json"


def offset_beyond(root: Path, offsets: list[int]) -> Path:
    write_config(root, "consumerOffset.json", b'{"offsetTable":{"Orders@G":{0:5000}}}')
    return root / "config/consumerOffset.json"


def torn_journal(root: Path, offsets: list[int]) -> Path:
    journal = Journal(root / "journal", "firearrow-0123456789abcdef", 0)
    journal.note(Note.OFFSET, "Orders@Größe", 0, 3)
    journal.close()
    [path] = (root / "journal").glob("firearrow-*")
    overwrite(path, FILE_BYTES // 2, b"torn")
    return path


def bad_wheel(root: Path, offsets: list[int]) -> Path:
    (root / "timerwheel").write_bytes(bytes(100))
    return root / "timerwheel"


def lost_unit(root: Path, offsets: list[int]) -> Path:
    slot = (1_700_000_100).to_bytes(8, "big") + bytes(16) + b"\0\0\0\1\0\0\0\0"
    path = root / "timerwheel"
    path.touch()
    os.truncate(path, 2 * 604_800 * 32)
    overwrite(path, 1_700_000_100 % (2 * 604_800) * 32, slot)
    (root / "timerlog").mkdir()
    (root / "timerlog" / f"{0:020d}").write_bytes(bytes(4096))
    return path


DAMAGES: list[tuple[Damage, set[Kind]]] = [
    (bad_body, {Kind.BAD_CRC}),
    (torn_inside, {Kind.TORN, Kind.LOST_RECORD}),
    (hole, {Kind.HOLE, Kind.LOST_RECORD}),
    (missing_segment, {Kind.MISSING_SEGMENT, Kind.LOST_RECORD}),
    (cut_segment, {Kind.CUT_FILE, Kind.MISSING_SEGMENT, Kind.LOST_RECORD}),
    (wrong_entry, {Kind.WRONG_ENTRY, Kind.QUEUE_ORDER, Kind.LOST_RECORD}),
    (wrong_tags, {Kind.WRONG_TAGS}),
    (entry_beyond, {Kind.LOST_RECORD}),
    (queue_gap, {Kind.NO_ENTRY, Kind.QUEUE_GAP}),
    (lost_queue_file, {Kind.NO_ENTRY, Kind.QUEUE_GAP}),
    (wrong_key, {Kind.NO_KEY, Kind.WRONG_KEY, Kind.INDEX_CHAIN, Kind.INDEX_SLOT}),
    (wrong_slot, {Kind.INDEX_SLOT}),
    (early_checkpoint, {Kind.CHECKPOINT}),
    (cut_checkpoint, {Kind.CHECKPOINT}),
    (bad_config, {Kind.CONFIG}),
    (bad_backup, {Kind.CONFIG}),
    (other_config, {Kind.CONFIG}),
    (offset_beyond, {Kind.OFFSET_BEYOND}),
    (torn_journal, {Kind.JOURNAL}),
    (bad_wheel, {Kind.TIMER}),
    (lost_unit, {Kind.TIMER}),
]
