"""The metrics of Apache's broker 5.5 that this broker has, with Apache's names, types, labels and units.

Left out: thread pools (`rocketmq_processor_watermark`), buffers of POP and RocksDB, which are not here. Loop thread.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from firearrow._native.fastpath.request_times import BOUNDS_US, SIZE_BOUNDS
from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.base.event_counts import EVENTS
from firearrow.broker.metrics.exposition import (
    COUNTER,
    GAUGE,
    OVERFLOW,
    Buckets,
    Exposition,
    Sample,
    added,
    boolean,
    buckets_of,
    coarser,
    labels,
    labels_of,
    limited,
)
from firearrow.broker.metrics.sources import Sources
from firearrow.broker.tables.clients import PASSIVELY
from firearrow.broker.transactions.half_topics import HalfTopics

COUNTS, GAUGES = "default view for counter.", "default view for gauge."
RPC_BOUNDS_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
CREATE_BOUNDS_MS = (10, 100, 1000, 3000, 5000)
US_IN_MS = 1000
FIRST_OF_4, HIGHER_VERSION = 212, 612
STORAGE = labels(storage_type="local", storage_medium="disk")
REQUEST_NAMES = {int(code): code.name.lower() for code in RequestCode}
RESPONSE_NAMES = {int(code): code.name.lower() for code in ResponseCode}
EXTRA_LABELS = {
    event: STORAGE for event in EVENTS if event.name.startswith(("rocketmq_timer", "rocketmq_delay"))
}
LAG_FAMILIES = (
    (0, "rocketmq_consumer_lag_messages"),
    (1, "rocketmq_consumer_ready_messages"),
    (2, "rocketmq_consumer_inflight_messages"),
    (3, "rocketmq_consumer_lag_latency_milliseconds"),
    (4, "rocketmq_consumer_queueing_latency_milliseconds"),
)
"""Value of a LagTable's row, and name."""
OUT_FAMILIES = ((5, "rocketmq_messages_out"), (6, "rocketmq_throughput_out"))


def version_text(version: int) -> str:
    """A client's version (MQVersion) as Apache's metrics have it, in lower case: `v5_5_0`, `v4_9_4_snapshot`. Those
    before 4.0.0, whose numbers follow no rule, are all `v3`."""
    if version >= HIGHER_VERSION:
        return "higher_version"
    if version < FIRST_OF_4:
        return "v3" if version >= 0 else "unknown"
    major, rest = divmod(version - FIRST_OF_4, 200)
    return f"v{major + 4}_{rest // 20}_{rest % 20 // 2}" + ("" if rest % 2 else "_snapshot")


class ApacheFamilies:
    def __init__(self, sources: Sources, half_topics: HalfTopics) -> None:
        self._sources = sources
        self._context = sources.context
        self._half_topics = half_topics

    def pieces(self, to: Exposition, disk_used: int) -> Iterator[bytes]:
        """All families but those of LAG_FAMILIES and OUT_FAMILIES. `disk_used`: bytes of the store's file system."""
        limit = self._context.config.options.metrics_series_max
        for part in (self._puts(to, limit), self._events(to, limit), self._requests(to, limit)):
            yield from part
        yield from self._connections(to, limit)
        yield from self._broker(to, limit)
        yield from self._storage(to, disk_used)
        yield from self._timers(to, limit)
        yield from self._revive(to)

    # ---- messages ----

    def _puts(self, to: Exposition, limit: int) -> Iterator[bytes]:
        puts = list(self._context.stats.puts.items())
        is_system = self._context.tables.topics.is_system

        def own(topic: str, message_type: str) -> str:
            return labels(topic=topic, message_type=message_type, is_system=boolean(is_system(topic)))

        counts = ((own(*key), put.messages) for key, put in puts if put.messages)
        sizes = ((own(*key), put.bytes) for key, put in puts if put.messages)
        yield from to.family("rocketmq_messages_in", COUNTER, COUNTS, limited(counts, limit))
        yield from to.family("rocketmq_throughput_in", COUNTER, COUNTS, limited(sizes, limit))
        series = (
            (own(*key), Buckets(SIZE_BOUNDS, put.sizes(), put.bytes)) for key, put in puts if put.messages
        )
        yield from to.histogram("rocketmq_message_size", "Incoming messages size", series, limit)

    def _events(self, to: Exposition, limit: int) -> Iterator[bytes]:
        events = self._context.stats.events
        events.series_max = limit
        for event in EVENTS:
            extra = f",{EXTRA_LABELS[event]}" if event in EXTRA_LABELS else ""
            if event.bounds:
                series = (
                    (labels_of(event.labels, key) + extra, buckets_of(histogram, event.bounds))
                    for key, histogram in list(events.observed(event).items())
                )
                yield from to.histogram(event.name, event.help, series, limit + 1)
            else:
                samples = (
                    (labels_of(event.labels, key) + extra, count)
                    for key, count in list(events.counted(event).items())
                )
                yield from to.family(event.name, COUNTER, event.help, samples)

    def _requests(self, to: Exposition, limit: int) -> Iterator[bytes]:
        merged: dict[tuple[str, int, int, bool, bool], list[Buckets]] = {}
        for protocol, asked, code, held, closed, histogram in self._sources.request_times():
            buckets = coarser(buckets_of(histogram, BOUNDS_US, US_IN_MS), RPC_BOUNDS_MS)
            if sum(buckets.counts):
                merged.setdefault((protocol, asked, code, held, closed), []).append(buckets)
        series = ((_request_labels(*key), added(parts)) for key, parts in merged.items())
        yield from to.histogram(
            "rocketmq_rpc_latency_milliseconds",
            "Rpc latency",
            ((own, buckets) for own, buckets in series if buckets is not None),
            limit,
        )
        yield from self._creations(to, limit)

    def _creations(self, to: Exposition, limit: int) -> Iterator[bytes]:
        for code, name, what, more in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, "rocketmq_topic_create_execution_time", "topic", True),
            (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                "rocketmq_consumer_group_create_execution_time",
                "subscription",
                False,
            ),
        ):
            by_status: dict[str, list[Buckets]] = {}
            for _, asked, answer, _, _, histogram in self._sources.request_times():
                if asked == code:
                    buckets = _create_buckets(buckets_of(histogram, BOUNDS_US, US_IN_MS))
                    by_status.setdefault("failure" if answer else "success", []).append(buckets)
            extra = {"is_system": "false"} if more else {}
            series = (
                (labels(invocation_status=status, **extra), added(parts))
                for status, parts in by_status.items()
            )
            yield from to.histogram(
                f"{name}_milliseconds",
                f"The distribution of create {what} time",
                ((own, buckets) for own, buckets in series if buckets is not None),
                limit,
            )

    # ---- clients ----

    def _connections(self, to: Exposition, limit: int) -> Iterator[bytes]:
        clients = self._context.tables.clients
        producers = Counter(
            (member.language_name.lower(), version_text(member.version), member.protocol)
            for members in clients.producer_groups().values()
            for member in members
        )
        samples: Iterable[Sample] = (
            (labels(language=language, version=version, protocol_type=protocol), count)
            for (language, version, protocol), count in sorted(producers.items())
        )
        yield from to.family("rocketmq_producer_connections", GAUGE, GAUGES, limited(samples, limit))
        yield from to.family(
            "rocketmq_consumer_connections", GAUGE, GAUGES, limited(self._consumers(), limit)
        )

    def _consumers(self) -> Iterator[Sample]:
        for group in self._context.tables.clients.consumer_groups():
            mode = "push" if group.consume_type == PASSIVELY else "pull"
            kinds = Counter(
                (member.language_name.lower(), version_text(member.version), member.protocol)
                for member in list(group.members.values())
            )
            for (language, version, protocol), count in sorted(kinds.items()):
                yield (
                    labels(
                        consumer_group=group.name,
                        language=language,
                        version=version,
                        consume_mode=mode,
                        protocol_type=protocol,
                        is_system=boolean(name_rules.is_system_group(group.name)),
                    ),
                    count,
                )

    # ---- the broker ----

    def _broker(self, to: Exposition, limit: int) -> Iterator[bytes]:
        tables, options = self._context.tables, self._context.config.options
        for name, value in (
            ("rocketmq_broker_permission", options.broker_permission),
            ("rocketmq_topic_number", len(tables.topics)),
            ("rocketmq_consumer_group_number", len(list(tables.groups))),
        ):
            yield from to.family(name, GAUGE, GAUGES, [("", value)])
        halves = ((_topic_label(topic), count) for topic, count in self._half_topics.counts().items())
        yield from to.family("rocketmq_half_messages", GAUGE, GAUGES, limited(halves, limit))

    def _storage(self, to: Exposition, disk_used: int) -> Iterator[bytes]:
        store = self._context.store
        earliest = store.reader.earliest_store_time()
        kept_ms = max(self._context.clock.now_ms() - earliest, 0) if earliest >= 0 else 0
        dispatch_behind = 0  # queue and index entries are written together with their records
        for name, value in (
            ("rocketmq_storage_size_bytes", disk_used),
            ("rocketmq_storage_flush_behind_bytes", store.written - store.flushed),
            ("rocketmq_storage_dispatch_behind_bytes", dispatch_behind),
            ("rocketmq_storage_message_reserve_time_milliseconds", kept_ms),
        ):
            yield from to.family(name, GAUGE, GAUGES, [(STORAGE, value)])

    def _timers(self, to: Exposition, limit: int) -> Iterator[bytes]:
        lags = self._sources.timers.lags()
        for name, value in (
            ("rocketmq_timer_enqueue_lag", lags.not_enqueued),
            ("rocketmq_timer_enqueue_latency_milliseconds", lags.enqueue_ms),
            ("rocketmq_timer_dequeue_lag", lags.due),
            ("rocketmq_timer_dequeue_latency_milliseconds", lags.dequeue_ms),
        ):
            yield from to.family(name, GAUGE, GAUGES, [(STORAGE, value)])
        pending = (
            (f"{STORAGE},{_topic_label(topic)}", count)
            for topic, count in list(self._sources.timers.pending_by_topic().items())
        )
        yield from to.family("rocketmq_timing_messages", GAUGE, GAUGES, limited(pending, limit))

    def _revive(self, to: Exposition) -> Iterator[bytes]:
        lags = self._sources.revive.lags()
        messages = ((labels(queue_id=number), behind) for number, behind, _ in lags)
        ages = ((labels(queue_id=number), age_ms) for number, _, age_ms in lags)
        yield from to.family("rocketmq_pop_revive_lag_milliseconds", GAUGE, GAUGES, messages)
        yield from to.family("rocketmq_pop_revive_latency_milliseconds", GAUGE, GAUGES, ages)


def _topic_label(topic: str) -> str:
    return labels(topic=topic) if topic else OVERFLOW


def _request_labels(protocol: str, asked: int, code: int, held: bool, closed: bool) -> str:
    return labels(
        protocol_type=protocol,
        request_code=REQUEST_NAMES.get(asked, "unknown"),
        response_code=RESPONSE_NAMES.get(code, "unknown"),
        is_long_polling=boolean(held),
        result="write_channel_failed" if closed else "success",
    )


def _create_buckets(buckets: Buckets) -> Buckets:
    """In Apache's ranges; ours end at 3000 ms, so slower ones count as above 5000."""
    coarse = coarser(buckets, CREATE_BOUNDS_MS[:-1])
    return Buckets(CREATE_BOUNDS_MS, [*coarse.counts[:-1], 0, coarse.counts[-1]], coarse.total)
