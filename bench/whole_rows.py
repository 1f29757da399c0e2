"""Rows for the whole broker: end to end, very many topics, very many idle consumers, features."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from bench import flow, frames, load, rows
from bench.load import Load, Workload
from bench.request_rows import sending
from bench.rows import OURS, Goal, Row, Work
from bench.servers import Server

IDLERS = 5000
PACED_RATE = 10_000
PACED_S = 60
MANY = "firearrow with topics"
ROLLING = "firearrow rolling"
BARE = "firearrow without index"
TLS = "firearrow with TLS"
USERS = "firearrow with users"
STRATEGIES = ("Stateful", "Stateless")


def flowing(body_bytes: int, messages: int) -> Work:
    """Flat out; latencies are measured at half of that rate."""

    def work(server: Server, part: float) -> Load:
        count = max(1, int(messages * part))
        flat = flow.end_to_end(server.address, body_bytes=body_bytes, producers=8, depth=8, messages=count)
        half = flow.end_to_end(
            server.address,
            body_bytes=body_bytes,
            producers=8,
            depth=8,
            messages=count // 2 + 1,
            rate=flat.rate / 2,
            skip=count // 20,
        )
        return replace(flat, p50=half.p50, p99=half.p99, p999=half.p999, max=half.max, besides=half.messages)

    return work


def flat_out(body_bytes: int, *more: Goal) -> Row:
    return Row(
        f"end to end flat out, {frames.size(body_bytes)}",
        OURS,
        {
            OURS: flowing(body_bytes, 2_000_000),
            "relay floor": flowing(body_bytes, 2_000_000),
            "apache": flowing(body_bytes, 80_000),
        },
        (
            rows.of("relay floor", 0.75),
            rows.cpu_of("relay floor", 1.5),
            rows.of("apache", 15),
            *more,
            rows.memory(),
        ),
        rounds_max=3,
        floor="relay floor",
    )


def paced() -> Row:
    """Segments are rolled, flushed and deleted during the load; the first second does not count."""

    def work(server: Server, part: float) -> Load:
        count = max(1, int(PACED_RATE * PACED_S * part))
        return flow.end_to_end(
            server.address,
            body_bytes=128,
            producers=8,
            depth=8,
            messages=count,
            rate=PACED_RATE,
            skip=int(PACED_RATE * part),
        )

    goals = (("p50", 300), ("p99", 1000), ("p999", 5000), ("max", 20_000))
    return Row(
        f"end to end at {PACED_RATE:,}/s, segments rolling, 128 B",
        ROLLING,
        {ROLLING: work, "relay floor": work, "apache rolling": work},
        (*(rows.latency(figure, limit) for figure, limit in goals), rows.memory()),
        rounds_max=1,
        floor="relay floor",
    )


def topic_names(count: int) -> list[str]:
    return [f"many-{n:05}" for n in range(count)]


def many_topics(count: int, of_one: float) -> Row:
    def prepare(server: Server, part: float) -> None:
        """Every queue has a message, so that no round makes files."""
        names = [frames.TOPIC, *topic_names(_part(count, part))]
        load.create_topics(server.address, names)
        load.drive(server.address, frames.topic_sends(names, 128), Workload(8, 32, 8 * len(names)))

    def work(names: list[str]) -> Work:
        def run(server: Server, part: float) -> Load:
            """Send a message to each topic first: the server's pages may have been evicted while it was stopped."""
            made = frames.topic_sends(names[: _part(len(names), part)], 128)
            first = Workload(8, 32, len(made), spread=True)
            load.drive(server.address, made, first)
            done = load.drive(server.address, made, replace(first, requests=int(800_000 * part)))
            return replace(done, besides=len(made))

        return run

    one = f"{MANY}: one topic"
    return Row(
        f"{count:,} topics round robin, 8 x 32, 128 B",
        MANY,
        {MANY: work(topic_names(count)), one: work([frames.TOPIC] * frames.DISTINCT)},
        (rows.of(one, of_one), rows.memory()),
        prepare=prepare,
    )


def _part(count: int, part: float) -> int:
    return max(8, min(count, int(count * part)))


def beside_idlers() -> Row:
    def waiting(server: Server, part: float) -> AbstractContextManager[None]:
        return flow.idlers(server.address, _part(IDLERS, part))

    work, alone = sending(128, 8, 32, 800_000), f"{OURS}: alone"
    return Row(
        f"send 8 x 32, 128 B, beside {IDLERS:,} long polls",
        OURS,
        {OURS: work, alone: work},
        (rows.of(alone, 0.9), rows.memory()),
        prepare=lambda server, part: load.create_topic(server.address, frames.TOPIC),
        beside={OURS: waiting},
    )


def features() -> Row:
    """Tags, keys and the index, compared with messages of the same length that have neither tag nor key."""

    def work(make: Callable[[int], list[bytes]]) -> Work:
        return lambda server, part: load.drive(
            server.address, make(128), Workload(8, 32, int(800_000 * part))
        )

    return Row(
        "hot features, 8 x 32, 128 B",
        OURS,
        {OURS: work(frames.featured_sends), BARE: work(frames.plain_sends)},
        (rows.more_cpu(BARE, 0.1),),
        prepare=lambda server, part: load.create_topic(server.address, frames.TOPIC),
    )


def varied() -> Row:
    """What several producers of one program send, compared with equal sends."""
    plain = f"{OURS}: equal sends"
    return Row(
        "send 8 x 32, 128 B, varied headers",
        OURS,
        {
            OURS: lambda server, part: load.drive(
                server.address, frames.varied_sends(128), Workload(8, 32, int(800_000 * part))
            ),
            plain: sending(128, 8, 32, 800_000),
        },
        (rows.of(plain, 0.8), rows.memory()),
        prepare=lambda server, part: load.create_topic(server.address, frames.TOPIC),
    )


def shared_cpus() -> Row:
    """Server and load share all CPUs, as on most machines."""

    def work(made: list[bytes], requests: int) -> Work:
        return lambda server, part: load.drive(
            server.address, made, Workload(8, 32, int(requests * part)), pinned=False
        )

    def prepare(server: Server, part: float) -> None:
        if server.is_broker:
            load.create_topic(server.address, frames.TOPIC)

    def on_all_cpus(server: Server, part: float) -> AbstractContextManager[None]:
        return server.on_all_cpus()

    return Row(
        "send 8 x 32, 128 B, CPUs shared with the load",
        OURS,
        {
            OURS: work(frames.sends(128), 800_000),
            f"{OURS}: pinned": sending(128, 8, 32, 800_000),
            "redis XADD": work(frames.redis_adds(128), 400_000),
        },
        (rows.of("redis XADD", 1.3), rows.memory()),
        prepare=prepare,
        beside={OURS: on_all_cpus, "redis XADD": on_all_cpus},
    )


def encrypted(connections: int, depth: int, of_plain: float) -> Row:
    """TLS 1.3, compared with plain connections to the same broker; Apache's broker has a certificate by default."""
    plain = f"{TLS}: plain"
    return Row(
        f"send {connections} x {depth}, 128 B, TLS",
        TLS,
        {
            TLS: sending(128, connections, depth, 200_000, tls=True),
            plain: sending(128, connections, depth, 200_000),
            "apache": sending(128, connections, depth, 40_000, tls=True),
        },
        (rows.of(plain, of_plain), rows.of("apache", 5), rows.memory()),
        prepare=lambda server, part: load.create_topic(server.address, frames.TOPIC),
    )


def with_users(connections: int, depth: int, strategy: str, of_off: float) -> Row:
    """Signed requests of a user who may send to the topic, compared with the same to a broker without users."""
    name = f"{USERS}, {strategy.lower()}"

    def signed(server: Server, part: float) -> Load:
        made = [frames.signed(frame, frames.PRODUCER) for frame in frames.sends(128)]
        return load.drive(server.address, made, Workload(connections, depth, int(400_000 * part)))

    def prepare(server: Server, part: float) -> None:
        for frame in frames.producer_frames():  # a broker without users refuses all but the topic
            load.ask(server.address, frame)

    return Row(
        f"send {connections} x {depth}, 128 B, users, {strategy.lower()}",
        name,
        {name: signed, OURS: signed},
        (rows.of(OURS, of_off), rows.memory()),
        prepare=prepare,
    )


def whole_rows() -> list[Row]:
    return [
        flat_out(128, rows.latency("p99", 5000)),
        flat_out(1024),
        paced(),
        many_topics(1000, 0.8),
        many_topics(20_000, 0.6),
        beside_idlers(),
        features(),
        varied(),
        shared_cpus(),
        encrypted(64, 1, 0.6),
        encrypted(8, 32, 0.5),
        *(with_users(*load_of, strategy, 0.95) for load_of in ((64, 1), (8, 32)) for strategy in STRATEGIES),
    ]
