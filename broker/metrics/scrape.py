"""Scrape: the text of all metrics, made in slices so that the loop serves other requests in between.

Python makes the text of most families in the loop, for at most a millisecond at a time. The families of the groups,
which may have 50,000 series each, are made of a LagTable in another thread without the GIL. Loop thread.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from firearrow._native.metrics.lag_table import LagTable
from firearrow.broker.base.disk_space import DiskSpace, space_of
from firearrow.broker.metrics.apache_families import GAUGES, LAG_FAMILIES, OUT_FAMILIES, ApacheFamilies
from firearrow.broker.metrics.exposition import COUNTER, GAUGE, OVERFLOW, Exposition
from firearrow.broker.metrics.lags import LagSnapshots
from firearrow.broker.metrics.own_families import (
    LAG_AGE_HELP,
    LAG_HELP,
    LAG_MESSAGES,
    LAG_SECONDS,
    OwnFamilies,
)
from firearrow.broker.metrics.sources import Sources

SLICE_S = 0.001
PIECE_BYTES = 1 << 16
ROWS_IN_PIECE = 4000
"""Rows of a LagTable in one piece: some 800 KB of text."""
SCOPE = "broker-meter"
Render = Callable[[], bytes]


class Scrape:
    """`seconds_left(free_bytes)`: until the disk is full. `thread` renders what is large."""

    def __init__(
        self,
        sources: Sources,
        lags: LagSnapshots,
        seconds_left: Callable[[int], float],
        thread: ThreadPoolExecutor,
    ) -> None:
        self._sources = sources
        self._lags = lags
        self._seconds_left = seconds_left
        self._thread = thread
        self._apache = ApacheFamilies(sources, sources.transactions.open_topics())
        self._own = OwnFamilies(sources)

    async def pieces(self, *, is_open_metrics: bool) -> AsyncIterator[bytes]:
        """The text, in pieces of some 64 KB or more."""
        loop = asyncio.get_running_loop()
        options = self._sources.context.config.options
        common = {
            "cluster": options.cluster_name,
            "node_type": "broker",
            "node_id": options.broker_name,
            "otel_scope_name": SCOPE,
        }
        to = Exposition(common | options.metrics_labels, is_open_metrics=is_open_metrics)
        folder = options.commitlog_path or os.path.join(options.store_root, "commitlog")
        disk = await loop.run_in_executor(self._thread, space_of, folder)
        table = await self._lags.take()
        parts: list[bytes] = []
        size, slice_end = 0, time.monotonic() + SLICE_S
        for piece in self._all(to, table, disk):
            made = await loop.run_in_executor(self._thread, piece) if callable(piece) else piece
            parts.append(made)
            size += len(made)
            if size >= PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
            if callable(piece):
                slice_end = time.monotonic() + SLICE_S
            elif time.monotonic() >= slice_end:
                await asyncio.sleep(0)
                slice_end = time.monotonic() + SLICE_S
        yield b"".join(parts)

    def _all(self, to: Exposition, table: LagTable, disk: DiskSpace) -> Iterator[bytes | Render]:
        self._sources.context.stats.gather()
        yield from self._apache.pieces(to, disk.used)
        yield from self._own.pieces(to, disk, self._seconds_left(disk.free))
        yield from _lag_pieces(to, table)
        yield to.target()
        yield to.end()


def _lag_pieces(to: Exposition, table: LagTable) -> Iterator[bytes | Render]:
    """The families of groups. A piece that is a function may be called in any thread."""
    rows_beyond, queues_beyond = table.overflow()
    for families, kind, suffix in ((LAG_FAMILIES, GAUGE, ""), (OUT_FAMILIES, COUNTER, "_total")):
        for value, name in families:
            yield to.head(name, kind, GAUGES if kind == GAUGE else "default view for counter.")
            for start in range(0, table.count, ROWS_IN_PIECE):
                yield _rows(table, value, (name + suffix).encode(), to.common_bytes, start)
            if table.beyond_count:
                yield to.line(name + suffix, OVERFLOW, rows_beyond[value]).encode()
    for are_ages, name, help_text in ((False, LAG_MESSAGES, LAG_HELP), (True, LAG_SECONDS, LAG_AGE_HELP)):
        yield to.head(name, GAUGE, help_text)
        for start in range(0, table.queue_count, ROWS_IN_PIECE):
            yield _queue_rows(table, are_ages, name.encode(), to.common_bytes, start)
        if table.beyond_queue_count:
            rest = queues_beyond[1] / 1000 if are_ages else queues_beyond[0]
            yield to.line(name, OVERFLOW, rest).encode()


def _rows(table: LagTable, value: int, name: bytes, common: bytes, start: int) -> Render:
    return lambda: table.lines(value, name, common, start, start + ROWS_IN_PIECE)


def _queue_rows(table: LagTable, are_ages: bool, name: bytes, common: bytes, start: int) -> Render:
    return lambda: table.queue_lines(are_ages, name, common, start, start + ROWS_IN_PIECE)
