"""Measures how fast a store opens: `python -m bench.opening [--gib N] [--queues N] [--scan-mib N]`.

Two stores: one of many GiB and queues that was closed cleanly, most of whose segments are sparse and contain
a blank record (a clean open reads no more of real segments, and the disk can be smaller); and one of real
records whose process was killed, so that recovery reads the log from its checkpoint and rebuilds queue
entries and keys.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
BODY_BYTES = 1024
TURN = 256
START_MS = 1_700_000_000_000
MIB = 1 << 20
BLANK_MAGIC = bytes.fromhex("cbd43194")


class Opened(NamedTuple):
    """`wall_s` and `cpu_s` of one open; `scanned` bytes of log were read."""

    wall_s: float
    cpu_s: float
    scanned: int
    written: int
    queues: int

    @property
    def scanned_gb_s(self) -> float:
        return self.scanned / self.cpu_s / 1e9


def put(store: MessageStore, number: int, queues: int, body: bytes) -> None:
    name = number % queues
    properties = b"UNIQ_KEY\x017F0000010000%020d\x02TAGS\x01red\x02" % number
    store.put(
        InnerMessage(
            f"Topic{name // 8}",
            name % 8,
            body,
            properties,
            born_timestamp=START_MS + number,
            born_host=HOST,
            store_host=HOST,
        ),
        now_ms=START_MS + number,
    )


def fill(root: Path, count: int, queues: int, segment_bytes: int, *, killed: bool = False) -> int:
    """Put `count` messages; the end of the log.

    `killed`: it is left as it is, checkpointed near its beginning.
    """
    store = MessageStore.open(root, StoreConfig(segment_bytes=segment_bytes))
    body = os.urandom(BODY_BYTES)
    for number in range(count):
        put(store, number, queues, body)
        if number % TURN == 0:
            store.write()
        if number == TURN:
            store.flush_queues()
    store.write()
    written = store.written
    store.abandon() if killed else store.close()
    return written


def stretch(root: Path, written: int, size: int, segment_bytes: int) -> None:
    """Close the last segment; append sparse segments with one blank record, up to `size` bytes of log."""
    base = written - written % segment_bytes
    places = [written, *range(base + segment_bytes, size - size % segment_bytes, segment_bytes)]
    for at in places:
        number = os.open(
            root / "commitlog" / f"{at - at % segment_bytes:020d}", os.O_RDWR | os.O_CREAT, 0o644
        )
        os.ftruncate(number, segment_bytes)
        left = segment_bytes - at % segment_bytes
        os.pwrite(number, left.to_bytes(4, "big") + BLANK_MAGIC, at % segment_bytes)
        os.close(number)


def opened(root: Path, segment_bytes: int, *, killed: bool) -> Opened:
    wall, cpu = time.perf_counter(), time.process_time()
    store = MessageStore.open(root, StoreConfig(segment_bytes=segment_bytes))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = Opened(wall, cpu, store.written if killed else 0, store.written, len(store.reader.queues()))
    if store.findings:
        raise RuntimeError(f"this store is not damaged, but: {store.findings[0]}")
    store.abandon() if killed else store.close()
    return found


def stopped(root: Path, size: int, queues: int, segment_bytes: int) -> Opened:
    """A clean open of a store of `size` bytes."""
    written = fill(root, 2 * queues, queues, segment_bytes)
    stretch(root, written, size, segment_bytes)
    fill(root, queues, queues, segment_bytes)
    return opened(root, segment_bytes, killed=False)


def killed(root: Path, scanned: int, queues: int, segment_bytes: int) -> Opened:
    """An open that reads `scanned` bytes of log."""
    fill(root, scanned // (BODY_BYTES + 180), queues, segment_bytes, killed=True)
    return opened(root, segment_bytes, killed=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.opening", description=__doc__)
    parser.add_argument("--gib", type=float, default=20)
    parser.add_argument("--queues", type=int, default=2000)
    parser.add_argument("--scan-mib", type=int, default=512)
    parser.add_argument("--segment-mib", type=int, default=1024)
    given = parser.parse_args()
    segment_bytes = given.segment_mib * MIB
    with tempfile.TemporaryDirectory(prefix="firearrow-opening-") as folder:
        clean = stopped(Path(folder) / "stopped", int(given.gib * 1024 * MIB), given.queues, segment_bytes)
        print(
            f"stopped cleanly: {clean.written / 1024 / MIB:.1f} GiB (sparse), {clean.queues} queues: "
            f"{clean.wall_s:.2f} s, {clean.cpu_s:.2f} s of CPU"
        )
        crashed = killed(Path(folder) / "killed", given.scan_mib * MIB, 20, segment_bytes)
        print(
            f"killed: {crashed.scanned / MIB:.0f} MiB of {BODY_BYTES} B messages scanned, with keys and entries: "
            f"{crashed.wall_s:.2f} s, {crashed.cpu_s:.2f} s of CPU, {crashed.scanned_gb_s:.2f} GB/s a core"
        )


if __name__ == "__main__":
    main()
