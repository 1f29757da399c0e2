"""LagSnapshots: how far all groups are behind, read in slices of the loop. Loop thread.

A snapshot of many rows is used again for a few seconds, by scrapes, the status and the history.
"""

import asyncio

from firearrow._native.metrics.lag_table import LagTable
from firearrow._native.protocol import name_rules
from firearrow.broker.context.broker_context import BrokerContext

SLICE_ROWS = 500
"""Rows that are read, in about a millisecond, before the loop may do other work."""
REUSED_ROWS, REUSED_MS = 20_000, 12_000
"""A snapshot with more rows is not made again for this time."""


class LagSnapshots:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._last: LagTable | None = None
        self._made_ms = 0
        self._making: asyncio.Task[LagTable] | None = None

    async def take(self) -> LagTable:
        """A snapshot of now; of many rows, one that is at most REUSED_MS old."""
        last, age_ms = self._last, self._context.clock.monotonic_ms() - self._made_ms
        if last is not None and age_ms <= REUSED_MS and last.count + last.beyond_count >= REUSED_ROWS:
            return last
        if self._making is None or self._making.done():
            self._making = asyncio.ensure_future(self._make())
        return await asyncio.shield(self._making)

    async def _make(self) -> LagTable:
        context = self._context
        offsets, stats = context.tables.offsets, context.stats
        stats.gather()
        options, online = context.config.options, context.tables.clients.consumer_groups()
        table = LagTable(
            context.store.reader,
            now_ms=context.clock.now_ms(),
            rows_max=options.metrics_series_max,
            read=None if options.metrics_idle_groups else {each.name: each.subscriptions for each in online},
            is_system_topic=context.tables.topics.is_system,
            is_system_group=name_rules.is_system_group,
        )
        in_flight = stats.events.all_in_flight
        keys = list(offsets.table)
        for start in range(0, len(keys), SLICE_ROWS):
            table.add(
                keys, start, start + SLICE_ROWS, offsets.table, offsets.pull_table, in_flight, stats.gets
            )
            await asyncio.sleep(0)
        keys = list(stats.gets)
        for start in range(0, len(keys), SLICE_ROWS):
            part = [key for key in keys[start : start + SLICE_ROWS] if key not in offsets.table]
            table.add(part, 0, len(part), offsets.table, offsets.pull_table, in_flight, stats.gets)
            await asyncio.sleep(0)
        self._last, self._made_ms = table, context.clock.monotonic_ms()
        return table
