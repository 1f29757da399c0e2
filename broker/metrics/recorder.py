"""Recorder: writes a row of rates and lags to the history every ten seconds. Loop thread.

Rates are per second since the last row; of topics and groups only those with the most are recorded.
"""

import asyncio
import heapq
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firearrow._native.metrics.lag_table import LagTable
from firearrow.broker.base.disk_space import space_of
from firearrow.broker.metrics.history import STEP_MS, History
from firearrow.broker.metrics.lags import LagSnapshots
from firearrow.broker.metrics.own_families import OwnFamilies
from firearrow.broker.metrics.sources import Sources

log = logging.getLogger("firearrow.history")

TOPICS_SHOWN, GROUPS_SHOWN = 64, 64
HOUR_S = 3600
ROWS_IN_HOUR = HOUR_S * 1000 // STEP_MS


class Recorder:
    """`history` None: the file could not be opened, and only `seconds_left` works."""

    def __init__(
        self, sources: Sources, lags: LagSnapshots, history: History | None, thread: ThreadPoolExecutor
    ) -> None:
        self._sources = sources
        self._context = sources.context
        self._lags = lags
        self._history = history
        self._thread = thread
        self._own = OwnFamilies(sources)
        self._before: dict[str, float] = {}
        self._topics_before: dict[str, int] = {}
        self._before_ms = 0
        self._free: list[tuple[int, int]] = []
        """Time in ms and free bytes of the disk, of the last hour."""
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._measure()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._history is not None:
            self._history.close()

    def seconds_left(self, free_bytes: int) -> float:
        """Seconds until the disk is full, if it fills up as in the last hour; infinite if it does not."""
        if not self._free:
            return float("inf")
        (first_ms, first_free), now_ms = self._free[0], self._context.clock.now_ms()
        grown, passed_s = first_free - free_bytes, (now_ms - first_ms) / 1000
        return free_bytes / grown * passed_s if grown > 0 and passed_s > 0 else float("inf")

    async def _run(self) -> None:
        while True:
            now_ms = self._context.clock.now_ms()
            await asyncio.sleep((STEP_MS - now_ms % STEP_MS) / 1000 + 0.001)
            try:
                await self.record()
                self._failing = False
            except OSError as error:
                if not self._failing:
                    log.info("the history has a gap, will try again: %s", error)
                self._failing = True
            except Exception:
                log.exception("the history has a gap")

    async def record(self) -> None:
        """Write the row of now. OSError."""
        now_ms = self._context.clock.now_ms()
        folder = self._context.config.options.commitlog_path or self._context.config.options.store_root
        space = await asyncio.get_running_loop().run_in_executor(self._thread, space_of, folder)
        self._free = [*self._free[-ROWS_IN_HOUR:], (now_ms, space.free)]
        table = await self._lags.take()
        values = self._values(table, self._measure()) | {
            "disk.free_bytes": float(space.free),
            "disk.used_percent": round(space.used_share * 100, 2),
        }
        if self._history is not None:
            self._history.write(now_ms, values)

    def _measure(self) -> Callable[[str], float]:
        """Take the totals; returns the rate of one of them per second since the last time."""
        stats = self._context.stats
        stats.gather()
        requests = sum(sum(histogram.read()[0]) for *_, histogram in self._sources.request_times())
        totals = {
            "in.messages": float(stats.put_times),
            "in.bytes": float(stats.put_bytes),
            "out.messages": float(stats.get_transferred),
            "requests": float(requests),
            "refusals": float(sum(self._own.refusals().values())),
        }
        before, before_ms, now_ms = self._before, self._before_ms, self._context.clock.monotonic_ms()
        self._before, self._before_ms = totals, now_ms
        seconds = max(now_ms - before_ms, 1) / 1000

        def rate(name: str) -> float:
            return round((totals[name] - before[name]) / seconds, 3)

        return rate if before else lambda name: 0.0

    def _values(self, table: LagTable, rate: Callable[[str], float]) -> dict[str, float]:
        sources, sums = self._sources, table.sums()
        values = {f"{name}_per_s": rate(name) for name in self._before} | {
            "lag.messages": float(sums[0]),
            "lag.ms": float(sums[3]),
            "connections": float(len(sources.server.connections)),
            "held": float(len(sources.held_pulls) + sources.held_pops()),
            "timers.pending": float(sources.timers.lags().pending),
            "halves.open": float(sources.transactions.open_count()),
            "flush.behind_bytes": float(self._context.store.written - self._context.store.flushed),
        }
        return values | self._topics() | _groups(table)

    def _topics(self) -> dict[str, float]:
        """Rates of the topics that got most since the last row."""
        now: dict[str, int] = {}
        for (topic, _), put in self._context.stats.puts.items():
            now[topic] = now.get(topic, 0) + put.messages
        seconds = STEP_MS / 1000
        grown = ((now[topic] - self._topics_before.get(topic, 0), topic) for topic in now)
        shown = heapq.nlargest(TOPICS_SHOWN, (pair for pair in grown if pair[0] > 0))
        self._topics_before = now
        return {f"in:{topic}": round(count / seconds, 3) for count, topic in shown}


def _groups(table: LagTable) -> dict[str, float]:
    """The largest lags of groups, in messages and ms: `lag:GROUP@TOPIC`, `lagms:GROUP@TOPIC`."""
    most = heapq.nlargest(
        GROUPS_SHOWN,
        ((lag, age_ms, f"{group}@{topic}") for group, topic, _, lag, age_ms in table.rows_behind()),
    )
    values = {}
    for lag, age_ms, name in most:
        values[f"lag:{name}"] = float(lag)
        values[f"lagms:{name}"] = float(age_ms)
    return values


def open_history(root: str) -> History | None:
    """The store's history; None, with a line in the log, if its file cannot be used."""
    path = os.path.join(root, "history")
    try:
        history = History(Path(path))
    except OSError as error:
        log.warning("there is no history, because %s cannot be used: %s", path, error.strerror or error)
        return None
    return history
