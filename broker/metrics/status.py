"""Status: the JSON of `/status` and of request 30008, and whether the broker is ready. Loop thread."""

import asyncio
import errno
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from firearrow._native.store.group_commit import FLUSH_BOUNDS_US
from firearrow._native.wire.codes import PROTOCOL_VERSION
from firearrow.broker.base.config import Config
from firearrow.broker.base.disk_space import space_of
from firearrow.broker.base.event_counts import GIVEN_UP, LOWERED, REDIRECTED
from firearrow.broker.base.options import options_by_key
from firearrow.broker.metrics.apache_families import REQUEST_NAMES, RESPONSE_NAMES, version_text
from firearrow.broker.metrics.exposition import Buckets, buckets_of
from firearrow.broker.metrics.lags import LagSnapshots
from firearrow.broker.metrics.own_families import PULLS, SENDS, OwnFamilies
from firearrow.broker.metrics.sources import Sources
from firearrow.broker.tables.members import LANGUAGES

GROUPS_MAX = 1000
"""Groups in the status, those with the largest lag first."""
LOWERED_MAX = 100
PROBE_MS = 2000
"""A probe of the disk counts for this time."""
RATES_S = (10, 60, 600)


class Status:
    """`version`: of this package. `seconds_left(free_bytes)`: until the disk is full. `thread` probes the disk."""

    def __init__(
        self,
        sources: Sources,
        lags: LagSnapshots,
        version: str,
        seconds_left: Callable[[int], float],
        thread: ThreadPoolExecutor,
    ) -> None:
        self._sources = sources
        self._context = sources.context
        self._lags = lags
        self._version = version
        self._seconds_left = seconds_left
        self._thread = thread
        self._own = OwnFamilies(sources)
        self._probe: asyncio.Future[str | None] | None = None
        self._probed_ms = -PROBE_MS

    # ---- readiness ----

    async def unready(self) -> str | None:
        """Why the broker is not ready, in a sentence; None if it is."""
        return self._sources.unready() or await self._disk_fault()

    async def _disk_fault(self) -> str | None:
        """Why nothing can be written to the store's folder; asked at most every PROBE_MS."""
        now_ms = self._context.clock.monotonic_ms()
        if self._probe is None or (self._probe.done() and now_ms - self._probed_ms >= PROBE_MS):
            self._probed_ms = now_ms
            loop = asyncio.get_running_loop()
            self._probe = loop.run_in_executor(self._thread, disk_fault, self._context.store.root)
        return await asyncio.shield(self._probe)

    # ---- the status ----

    async def members(self) -> dict[str, object]:
        """The members of the JSON object."""
        loop, options = asyncio.get_running_loop(), self._context.config.options
        folder = options.commitlog_path or os.path.join(options.store_root, "commitlog")
        space = await loop.run_in_executor(self._thread, space_of, folder)
        unready = await self.unready()
        store, stats, server = self._context.store, self._context.stats, self._sources.server
        return {
            "name": options.broker_name,
            "cluster": options.cluster_name,
            "version": self._version,
            "protocolVersion": PROTOCOL_VERSION,
            "pid": os.getpid(),
            "address": "{}:{}".format(*self._sources.address),
            "nowMs": self._context.clock.now_ms(),
            "startedMs": stats.started_ms,
            "uptimeMs": self._context.clock.now_ms() - stats.started_ms,
            "ready": unready is None,
            "unready": unready,
            "store": {
                "folder": store.root,
                "minOffset": store.min_physical,
                "maxOffset": store.written,
                "flushedOffset": store.flushed,
                "flushDiskType": options.flush_disk_type,
                "writable": store.writable and store.stopped is None,
                "findings": list(store.findings)[:100],
            },
            "disk": {
                "totalBytes": space.total,
                "freeBytes": space.free,
                "usedShare": space.used_share,
                "full": store.full,
                "fullInMs": self._full_in_ms(space.free),
            },
            "threads": self._threads(),
            "saves": self._saves(),
            "memory": {**server.memory.to_object(), "connectionBytes": server.budget.held},
            "options": changed_options(self._context.config),
            "counts": self._counts(),
            "loweredDelayLevels": self._lowered(),
            "rates": self._rates(),
            "latencyMs": self._latencies(),
            "requests": self._requests(),
            "refusals": self._refusals(),
            "connections": self._connections(),
            "nameServers": self._sources.registrar.name_servers(),
            **self._replication(),
            **await self._groups(),
        }

    def _full_in_ms(self, free_bytes: int) -> int | None:
        """At the growth of the last hour; None: the disk does not fill up."""
        seconds = self._seconds_left(free_bytes)
        return None if math.isinf(seconds) else round(seconds * 1000)

    def _threads(self) -> list[dict[str, object]]:
        return [
            {
                "name": state.name,
                "alive": state.is_alive,
                "busyMs": round(state.busy_s * 1000),
                "fault": state.fault,
            }
            for state in self._sources.threads.states()
        ]

    def _saves(self) -> list[dict[str, object]]:
        """Of the tables that changed since the start."""
        return [
            {
                "table": state.table,
                "lateMs": round(state.late_s * 1000),
                "lastMs": round(state.last_s * 1000),
                "failures": state.failures,
                "fault": state.error or None,
            }
            for state in self._context.saver.states()
        ]

    def _replication(self) -> dict[str, object]:
        """`replication`, on a slave and on a master with a replication port."""
        replication = self._sources.replication
        return {} if replication is None else {"replication": replication()}

    def _counts(self) -> dict[str, int]:
        sources, stats, tables = self._sources, self._context.stats, self._context.tables
        stats.gather()
        return {
            "topics": len(tables.topics),
            "groups": len(tables.groups),
            "messagesIn": stats.put_times,
            "bytesIn": stats.put_bytes,
            "sendsFailed": stats.put_failed,
            "messagesOut": stats.get_transferred,
            "heldPulls": len(sources.held_pulls),
            "heldPops": sources.held_pops(),
            "requestsInProgress": sources.in_progress(),
            "renewedMessages": sources.renewals()[0],
            "renewalsRefused": sources.renewals()[1],
            "pendingTimers": sources.timers.lags().pending,
            "openHalfMessages": sources.transactions.open_count(),
            "transactionsGivenUp": stats.events.total(GIVEN_UP),
            "messagesRedirected": stats.events.total(REDIRECTED),
            "repliesWaitingForSync": self._context.write_batch.waiting,
        }

    def _lowered(self) -> list[dict[str, object]]:
        """Topics of messages whose delay level messageDelayLevel does not have, those with the most first."""
        counted = self._context.stats.events.counted(LOWERED)
        most = sorted(counted.items(), key=lambda item: -item[1])[:LOWERED_MAX]
        return [{"topic": labels[0] if labels else "", "count": count} for labels, count in most]

    def _rates(self) -> dict[str, dict[str, float]]:
        """Per second, over the last 10, 60 and 600 s."""
        spans = {f"{seconds}s": self._context.stats.rates(seconds) for seconds in RATES_S}
        return {
            name: {
                "in": round(span.put * 1000 / span.at_ms, 3),
                "out": round(span.transferred * 1000 / span.at_ms, 3),
            }
            for name, span in spans.items()
        }

    def _latencies(self) -> dict[str, dict[str, float | None]]:
        """Upper bounds of the median and the 99th percentile, since the start."""
        flush = buckets_of(self._sources.flusher.flushes, FLUSH_BOUNDS_US, 1_000_000)
        found = {"send": self._own.latency_of(SENDS), "pull": self._own.latency_of(PULLS), "flush": flush}
        return {
            name: {"p50": quantile_ms(buckets, 0.5), "p99": quantile_ms(buckets, 0.99)}
            for name, buckets in found.items()
        }

    def _requests(self) -> list[dict[str, object]]:
        """How sends and pulls were handled, by kind of client."""
        counters = self._sources.counters
        found: list[dict[str, object]] = []
        for counts in [] if counters is None else counters.all():
            found.append(
                {
                    "language": LANGUAGES.get(counts.language, "others").lower(),
                    "version": version_text(counts.version),
                    "sendsByTemplate": counts.templated,
                    "sendsParsed": counts.parsed,
                    "pullsFast": counts.pulled,
                    "complete": {
                        reason: {"sends": sends, "pulls": pulls}
                        for reason, (sends, pulls) in counts.left().items()
                    },
                }
            )
        return found

    def _refusals(self) -> list[dict[str, object]]:
        return [
            {
                "request": REQUEST_NAMES.get(asked, "unknown"),
                "reason": RESPONSE_NAMES.get(code, "unknown"),
                "count": count,
            }
            for (asked, code), count in self._own.refusals().most_common()
        ]

    def _connections(self) -> list[dict[str, object]]:
        return [
            {"language": language, "version": version, "protocol": protocol, "count": count}
            for (language, version, protocol), count in self._own.connections().most_common()
        ]

    async def _groups(self) -> dict[str, object]:
        """Lags by group, the longest first; and over all groups."""
        table = await self._lags.take()
        by_group: dict[str, list[int]] = {}
        for group, _, _, lag, age_ms in table.rows_behind():
            behind = by_group.setdefault(group, [0, 0])
            behind[0] += lag
            behind[1] = max(behind[1], age_ms)
        most = sorted(by_group.items(), key=lambda item: -item[1][0])[:GROUPS_MAX]
        sums = table.sums()
        return {
            "lag": {"messages": sums[0], "maxMs": sums[3], "inFlight": sums[2]},
            "groups": [{"group": group, "lag": lag, "lagMs": age_ms} for group, (lag, age_ms) in most],
        }


def changed_options(config: Config) -> dict[str, str]:
    """The options whose values are not the defaults, by Apache's keys, without secrets."""
    default, shown = type(config.options)(), config.properties()
    return {
        key: shown[key]
        for key, field in sorted(options_by_key().items())
        if getattr(config.options, field.name) != getattr(default, field.name)
    }


def quantile_ms(buckets: Buckets | None, share: float) -> float | None:
    """The bound of the range with this share of the values, from seconds; None if there are no values, or it is above
    all bounds."""
    if buckets is None:
        return None
    wanted, count = share * sum(buckets.counts), 0
    if not wanted:
        return None
    for bound, number in zip(buckets.bounds, buckets.counts, strict=False):
        count += number
        if count >= wanted:
            return bound * 1000
    return None


def disk_fault(root: str) -> str | None:
    """Write, sync and delete a small file in the store's folder: what is wrong with that, or None. Any thread."""
    path = Path(root) / ".probe"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(4096))
            os.fsync(fd)
        finally:
            os.close(fd)
            path.unlink(missing_ok=True)
    except OSError as error:
        what = (
            "is full: free disk space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot be written"
        )
        return f"the disk of {root} {what} ({error.strerror})"
    return None
