"""Metrics that Apache's broker does not have; names begin with `firearrow_`, times are in seconds. Loop thread."""

from collections import Counter
from collections.abc import Iterator

from firearrow._native.fastpath.request_times import BOUNDS_US
from firearrow._native.protocol import name_rules
from firearrow._native.store.group_commit import FLUSH_BOUNDS_US
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.poller import TURN_BOUNDS_US
from firearrow.broker.base.disk_space import DiskSpace
from firearrow.broker.base.peer import GRPC, REMOTING
from firearrow.broker.metrics.apache_families import REQUEST_NAMES, RESPONSE_NAMES, version_text
from firearrow.broker.metrics.exposition import (
    COUNTER,
    GAUGE,
    Buckets,
    Exposition,
    Sample,
    added,
    buckets_of,
    labels,
    limited,
)
from firearrow.broker.metrics.sources import Sources
from firearrow.broker.net.server import ServerConnection
from firearrow.broker.quotas.quota_check import KINDS
from firearrow.broker.quotas.quota_table import CONNECTIONS, RATES
from firearrow.broker.replication.log.replica_lag import ReplicaLag
from firearrow.broker.tables.members import LANGUAGES

US_IN_S = 1_000_000
SENDS = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
NOT_REFUSED = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.NO_MESSAGE,
    )
)
"""Answers that are not refusals: there was nothing to return."""
LAG_MESSAGES, LAG_SECONDS = "firearrow_consumer_queue_lag_messages", "firearrow_consumer_queue_lag_seconds"
LAG_HELP = "Messages of a queue that the group has not consumed."
LAG_AGE_HELP = "Age of the oldest message of a queue that the group has not consumed."


class OwnFamilies:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._context = sources.context

    def pieces(self, to: Exposition, disk: DiskSpace, seconds_left: float) -> Iterator[bytes]:
        """`seconds_left`: until the disk is full at its present growth; infinite if it does not grow."""
        limit = self._context.config.options.metrics_series_max
        yield from self._latencies(to, limit)
        yield from self._ways(to, limit)
        yield from self._gauges(to)
        yield from self._threads(to)
        yield from self._disk(to, disk, seconds_left)
        yield from self._replicas(to)
        yield from self._clients(to, limit)
        yield from to.family(
            "firearrow_dead_letters", GAUGE, "Messages in the group's dead-letter queue.", self._dead(limit)
        )

    # ---- latencies ----

    def _latencies(self, to: Exposition, limit: int) -> Iterator[bytes]:
        sources = self._sources
        for name, help_text, buckets in (
            ("send_latency", "From the read of a send to its answer.", self.latency_of(SENDS)),
            ("pull_latency", "From the read of a pull that found messages.", self.latency_of(PULLS)),
            (
                "sync_wait",
                "How long answers waited for the disk, with SYNC_FLUSH.",
                buckets_of(self._context.write_batch.sync_waits, BOUNDS_US, US_IN_S),
            ),
            (
                "flush",
                "Length of a sync of the commit log.",
                buckets_of(sources.flusher.flushes, FLUSH_BOUNDS_US, US_IN_S),
            ),
            (
                "turn",
                "Length of a turn of the loop over its sockets.",
                None
                if sources.server.turns is None
                else buckets_of(sources.server.turns, TURN_BOUNDS_US, US_IN_S),
            ),
        ):
            if buckets is not None:
                yield from to.histogram(f"firearrow_{name}_seconds", help_text, [("", buckets)], limit)

    def latency_of(self, codes: frozenset[RequestCode]) -> Buckets | None:
        """Of requests that succeeded and did not wait for messages."""
        return added(
            buckets_of(histogram, BOUNDS_US, US_IN_S)
            for _, asked, code, held, _, histogram in self._sources.request_times()
            if asked in codes and code == ResponseCode.SUCCESS and not held
        )

    # ---- requests ----

    def _ways(self, to: Exposition, limit: int) -> Iterator[bytes]:
        counters = self._sources.counters
        ways: list[Sample] = []
        reasons: list[Sample] = []
        for counts in [] if counters is None else counters.all():
            client = {
                "language": LANGUAGES.get(counts.language, "others").lower(),
                "version": version_text(counts.version),
            }
            left = counts.left()
            sends, pulls = (sum(pair[which] for pair in left.values()) for which in (0, 1))
            for request, way, count in (
                ("send", "template", counts.templated),
                ("send", "fast", counts.parsed),
                ("send", "complete", sends),
                ("pull", "fast", counts.pulled),
                ("pull", "complete", pulls),
            ):
                ways.append((labels(**client, request=request, way=way), count))
            for reason, pair in left.items():
                for request, count in zip(("send", "pull"), pair, strict=True):
                    if count:
                        own = labels(**client, request=request, reason=reason.replace(" ", "_"))
                        reasons.append((own, count))
        yield from to.family(
            "firearrow_requests", COUNTER, "Sends and pulls by the way they took.", limited(ways, limit)
        )
        yield from to.family(
            "firearrow_requests_complete",
            COUNTER,
            "Sends and pulls that took the complete way, and why.",
            limited(reasons, limit),
        )
        refusals = (
            (
                labels(
                    request_code=REQUEST_NAMES.get(asked, "unknown"),
                    reason=RESPONSE_NAMES.get(code, "unknown"),
                ),
                count,
            )
            for (asked, code), count in self.refusals().items()
        )
        yield from to.family(
            "firearrow_refusals", COUNTER, "Requests that were refused, and why.", limited(refusals, limit)
        )
        yield from self._quotas(to)

    def _quotas(self, to: Exposition) -> Iterator[bytes]:
        check = self._context.quotas
        delayed, refused = list[Sample](), list[Sample]()
        for kind, which, was_delayed, was_refused in check.quotas.counts():
            key = labels(entity=KINDS[kind], quota=RATES[which])
            delayed.append((key, was_delayed))
            refused.append((key, was_refused))
        refused += [
            (labels(entity=kind, quota=CONNECTIONS), count)
            for kind, count in check.refused_connections.items()
            if count
        ]
        for name, help_text, samples in (
            ("throttled", "Requests after which a client was slowed, by its quota.", delayed),
            ("refused", "Requests and connections that were refused, by their quota.", refused),
        ):
            yield from to.family(f"firearrow_quota_{name}", COUNTER, help_text, samples)

    def refusals(self) -> Counter[tuple[int, int]]:
        """(request code, code of the answer) → requests."""
        found: Counter[tuple[int, int]] = Counter()
        for _, asked, code, _, _, histogram in self._sources.request_times():
            if code not in NOT_REFUSED:
                found[asked, code] += sum(histogram.read()[0])
        return found

    # ---- what waits ----

    def _gauges(self, to: Exposition) -> Iterator[bytes]:
        sources = self._sources
        for name, help_text, value in (
            ("held_pulls", "Pulls that wait for messages.", len(sources.held_pulls)),
            ("held_pops", "POP requests that wait for messages.", sources.held_pops()),
            ("requests_in_progress", "Requests whose handler is not done.", sources.in_progress()),
            (
                "replies_waiting_for_sync",
                "Replies that wait for the disk.",
                self._context.write_batch.waiting,
            ),
            ("pending_timers", "Messages in the timer.", sources.timers.lags().pending),
            ("open_half_messages", "Transactions that are not decided.", sources.transactions.open_count()),
            ("pending_check_points", "POP check points that wait to be settled.", sources.revive.pending),
            (
                "renewed_messages",
                "Messages whose invisible time is extended for clients of gRPC.",
                sources.renewals()[0],
            ),
            ("buffered_bytes", "Incomplete frames and unread answers.", sources.server.budget.held),
            ("ready", "Whether the broker serves clients.", int(sources.unready() is None)),
        ):
            yield from to.family(f"firearrow_{name}", GAUGE, help_text, [("", value)])
        yield from to.family(
            "firearrow_renewals_refused",
            COUNTER,
            "Messages whose invisible time is not extended: too many are.",
            [("", sources.renewals()[1])],
        )
        uptime_s = (self._context.clock.now_ms() - self._context.stats.started_ms) / 1000
        yield from to.family("firearrow_uptime_seconds", GAUGE, "Time since the start.", [("", uptime_s)])

    # ---- what runs beside the loop ----

    def _threads(self, to: Exposition) -> Iterator[bytes]:
        states, saves = self._sources.threads.states(), self._context.saver.states()
        threads = [(labels(thread=state.name), state) for state in states]
        tables = [(labels(table=state.table), state) for state in saves]
        for name, help_text, samples in (
            (
                "thread_up",
                "Whether the thread runs and makes progress.",
                [(key, int(not state.fault)) for key, state in threads],
            ),
            (
                "thread_busy_seconds",
                "How long the thread has made no progress with its work.",
                [(key, state.busy_s) for key, state in threads],
            ),
            (
                "table_save_seconds",
                "Length of the last save of a table.",
                [(key, round(state.last_s, 6)) for key, state in tables],
            ),
            (
                "table_save_late_seconds",
                "Age of the oldest change that should be in the table's file.",
                [(key, round(state.late_s, 3)) for key, state in tables],
            ),
        ):
            yield from to.family(f"firearrow_{name}", GAUGE, help_text, samples)
        failures = [(key, state.failures) for key, state in tables]
        yield from to.family(
            "firearrow_table_save_failures", COUNTER, "Saves of a table that failed.", failures
        )

    def _disk(self, to: Exposition, disk: DiskSpace, seconds_left: float) -> Iterator[bytes]:
        store = self._context.store
        for name, help_text, value in (
            ("disk_total_bytes", "Size of the commit log's file system.", disk.total),
            ("disk_free_bytes", "Space that the broker may use.", disk.free),
            ("disk_used_ratio", "Used share, as the limits in the options count it.", disk.used_share),
            (
                "disk_full_seconds",
                "Seconds until the disk is full at the growth of the last hour.",
                seconds_left,
            ),
            ("log_bytes", "Bytes of the commit log.", store.written - store.min_physical),
            ("log_end_bytes", "Physical offset of the end of the commit log.", store.written),
        ):
            yield from to.family(f"firearrow_{name}", GAUGE, help_text, [("", value)])

    # ---- replication ----

    def _replicas(self, to: Exposition) -> Iterator[bytes]:
        """At a master for each slave, of which there are few; at a slave for itself."""
        replicas, followed = self._sources.replicas(), self._sources.followed
        never_joined = self._sources.never_joined()
        yield from self._counts(to, replicas, never_joined)
        hosts = Counter(_host(each) for each in replicas)
        keyed = [(labels(replica=_replica_name(each, hosts)), each) for each in replicas]
        for name, help_text, value in (
            ("in_sync", "Whether the slave has nearly all of the log.", lambda lag: int(lag.in_sync)),
            ("lag_bytes", "Bytes of the log that the slave has not acknowledged.", lambda lag: lag.bytes),
            ("lag_seconds", "How long ago the log ended where the slave's ends.", lambda lag: lag.ms / 1000),
            (
                "lag_messages",
                "Messages that the slave has not acknowledged, about.",
                lambda lag: lag.messages,
            ),
        ):
            samples = [(key, value(lag)) for key, lag in keyed]
            yield from to.family(f"firearrow_replica_{name}", GAUGE, help_text, samples)
        if followed is None:
            return
        lag = followed()
        for name, help_text, number in (
            ("following", "Whether this slave follows its master's log.", int(lag.in_sync)),
            ("lag_bytes", "Bytes of the master's log that this slave has not.", lag.bytes),
            ("lag_seconds", "How long ago the master's log ended where ours ends.", lag.ms / 1000),
        ):
            yield from to.family(f"firearrow_slave_{name}", GAUGE, help_text, [("", number)])

    def _counts(self, to: Exposition, replicas: list[ReplicaLag], never_joined: int) -> Iterator[bytes]:
        """At a master."""
        if self._sources.followed is not None:
            return
        missing = never_joined + sum(each.address is None for each in replicas)
        for name, help_text, number in (
            ("expected", "Slaves that this master expects, connected or not.", len(replicas) + never_joined),
            ("missing", "Slaves that this master expects and that are not connected.", missing),
        ):
            yield from to.family(f"firearrow_replicas_{name}", GAUGE, help_text, [("", number)])
        fault = self._sources.write_fault()
        yield from to.family(
            "firearrow_sends_refused", GAUGE, "Whether this master takes no sends.", [("", int(bool(fault)))]
        )

    # ---- clients and groups ----

    def _clients(self, to: Exposition, limit: int) -> Iterator[bytes]:
        samples = (
            (labels(language=language, version=version, protocol_type=protocol), count)
            for (language, version, protocol), count in sorted(self.connections().items())
        )
        yield from to.family(
            "firearrow_connections", GAUGE, "Connections by client.", limited(samples, limit)
        )

    def connections(self) -> Counter[tuple[str, str, str]]:
        """(language, version, protocol) → connections; `none` has sent no request. A connection of gRPC is one of its
        first client."""
        return Counter(map(_kind_of, self._sources.server.connections))

    def _dead(self, limit: int) -> Iterator[Sample]:
        reader = self._context.store.reader
        topics = [name for name in self._context.tables.topics if name.startswith(name_rules.DLQ_PREFIX)]
        samples = (
            (
                labels(consumer_group=name.removeprefix(name_rules.DLQ_PREFIX)),
                max(reader.max_offset(name, 0) - reader.min_offset(name, 0), 0),
            )
            for name in topics
        )
        return limited(samples, limit)


def _kind_of(connection: ServerConnection) -> tuple[str, str, str]:
    if connection.grpc is not None:
        for client in connection.grpc.clients:
            return client.language_name.lower(), client.version or "unknown", GRPC
        return "none", "none", GRPC
    if connection.language < 0:
        return "none", "none", REMOTING
    language = LANGUAGES.get(connection.language, "others").lower()
    return language, version_text(connection.version), REMOTING


def _host(replica: ReplicaLag) -> str:
    return replica.host or (replica.address or (replica.name, 0))[0]


def _replica_name(replica: ReplicaLag, hosts: Counter[str]) -> str:
    """The host, if it has one slave; else one that stays the same over connections, of those that are expected."""
    host = _host(replica)
    if hosts[host] == 1:
        return host
    return replica.name or "{}:{}".format(*(replica.address or (host, 0)))
