"""Rows of single requests: sends one by one, pipelined, in batches and synced; pulls of stored messages."""

from collections.abc import Callable
from dataclasses import replace

from bench import frames, load, rows
from bench.frames import PULLED
from bench.load import Load, Workload
from bench.rows import OURS, Row, Work
from bench.servers import Server

QUEUE_MESSAGES = 8192


def sending(
    body_bytes: int, connections: int, depth: int, requests: int, *, check: bool = True, tls: bool = False
) -> Work:
    return lambda server, part: load.send(
        server.address,
        body_bytes=body_bytes,
        connections=connections,
        depth=depth,
        requests=int(requests * part),
        check=check,
        tls=tls,
    )


def batching(body_bytes: int, requests: int, *, check: bool = True) -> Work:
    return lambda server, part: load.batch(
        server.address,
        body_bytes=body_bytes,
        connections=8,
        depth=8,
        requests=int(requests * part),
        check=check,
    )


def pulling(topic: str, requests: int) -> Work:
    return lambda server, part: load.pull(
        server.address,
        topic=topic,
        messages_each=QUEUE_MESSAGES,
        connections=8,
        depth=1,
        requests=int(requests * part),
    )


def pulling_floor(requests: int) -> Work:
    made = [frames.pull_frame(0, 0, 1)]

    def work(server: Server, part: float) -> Load:
        count = int(requests * part)
        done = load.drive(server.address, made, Workload(8, 1, count, check=False))
        return replace(done, each=PULLED)

    return work


def redis(
    make: Callable[[int], list[bytes]], body_bytes: int, connections: int, depth: int, requests: int
) -> Work:
    return lambda server, part: load.drive(
        server.address, make(body_bytes), Workload(connections, depth, int(requests * part))
    )


def _topic(server: Server, part: float) -> None:
    if server.is_broker:
        load.create_topic(server.address, frames.TOPIC)


def one_by_one(body_bytes: int) -> Row:
    goals = [rows.of("floor", 0.9), rows.of("apache", 5), rows.memory()]
    return Row(
        f"send 64 x 1, {frames.size(body_bytes)}",
        OURS,
        {
            OURS: sending(body_bytes, 64, 1, 200_000),
            "floor": sending(body_bytes, 64, 1, 200_000, check=False),
            "apache": sending(body_bytes, 64, 1, 60_000),
        },
        (*goals, rows.cpu_of("floor", 1.25)) if body_bytes == 128 else tuple(goals),
        prepare=_topic,
        floor="floor",
    )


def pipelined(body_bytes: int) -> Row:
    goals = [rows.of("redis SET", 0.85), rows.of("redis XADD", 1.8), rows.of("apache", 20), rows.memory()]
    return Row(
        f"send 8 x 32, {frames.size(body_bytes)}",
        OURS,
        {
            OURS: sending(body_bytes, 8, 32, 800_000),
            "floor": sending(body_bytes, 8, 32, 800_000, check=False),
            "redis SET": redis(frames.redis_sets, body_bytes, 8, 32, 800_000),
            "redis XADD": redis(frames.redis_adds, body_bytes, 8, 32, 400_000),
            "apache": sending(body_bytes, 8, 32, 60_000),
        },
        (*goals, rows.cpu_of("floor", 2)) if body_bytes == 128 else tuple(goals),
        prepare=_topic,
        floor="floor",
    )


def batched() -> Row:
    return Row(
        "send batches of 32 x 128 B",
        OURS,
        {
            OURS: batching(128, 40_000),
            "firearrow: pipelined": sending(128, 8, 32, 800_000),
            "floor": batching(128, 40_000, check=False),
            "record floor": batching(128, 40_000, check=False),
            "apache": batching(128, 4_000),
        },
        (
            rows.of("firearrow: pipelined", 2),
            rows.of("floor", 0.75),
            rows.of("record floor", 0.75),
            rows.of("apache", 10),
            rows.memory(),
        ),
        prepare=_topic,
        floor="record floor",
    )


def synced(connections: int, depth: int, requests: int, of_async: float, of_apache: float) -> Row:
    work = sending(128, connections, depth, requests)
    return Row(
        f"SYNC_FLUSH {connections} x {depth}, 128 B",
        "firearrow synced",
        {
            "firearrow synced": work,
            OURS: work,
            "synced floor": sending(128, connections, depth, requests, check=False),
            "redis synced XADD": redis(frames.redis_adds, 128, connections, depth, requests // 2),
            "apache synced": sending(128, connections, depth, requests // 8),
        },
        (
            rows.of(OURS, of_async),
            rows.of("apache synced", of_apache),
            rows.memory(),
        ),
        prepare=_topic,
        floor="synced floor",
    )


def pulled(kind: str, of_floor: float) -> Row:
    def fill(server: Server, part: float) -> None:
        if server.is_broker:
            load.fill(server.address, kind, QUEUE_MESSAGES, scattered=kind == "scattered")

    floor = f"floor {kind}"
    return Row(
        f"pull 32 x 1 KiB, {kind}",
        OURS,
        {OURS: pulling(kind, 40_000), "apache": pulling(kind, 8_000), floor: pulling_floor(40_000)},
        (rows.of(floor, of_floor), rows.of("apache", 4), rows.memory()),
        floor=floor,
        prepare=fill,
    )


def request_rows() -> list[Row]:
    return [
        *map(one_by_one, (128, 1024)),
        *map(pipelined, (128, 1024)),
        batched(),
        synced(64, 1, 100_000, 0.6, 6),
        synced(8, 32, 300_000, 0.45, 10),
        pulled("contiguous", 0.9),
        pulled("scattered", 0.8),
    ]
