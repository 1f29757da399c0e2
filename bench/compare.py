"""FireArrow beside its peers in one run: `python -m bench.compare`. Ratios are the result.

Peers: floors in C, which do the least that a server can do; redis; Apache's broker. All are up at once on CPU 0, the
load (native/loadgen.c) runs on CPU 1, in rounds of random order; a figure is the median of its rounds. A sample during
which others took more than DISTURBED of the machine is taken again. Each run appends a line to bench/results.ndjson.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import frames, load, servers
from bench.load import Load
from bench.programs import CACHE, ROOT
from bench.servers import Server

RESULTS = ROOT / "bench" / "results.ndjson"
DISTURBED = 0.12
TRIES = 4
QUEUE_MESSAGES = 8192
Work = Callable[[Server, float], Load]
"""On a server, with so large a part of the usual number of requests."""


@dataclass(frozen=True, slots=True)
class Row:
    """`goals`: what our figure must at least be of a peer's."""

    name: str
    ours: str
    work: Mapping[str, Work]
    messages: int = 1
    """Of one request."""
    goals: Mapping[str, float] = field(default_factory=dict)
    cpu_us: float | None = None
    """What a message may cost us at most."""


@dataclass(slots=True)
class Samples:
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)


def sending(body_bytes: int, connections: int, depth: int, requests: int) -> Work:
    return lambda server, part: load.send(
        server.address,
        body_bytes=body_bytes,
        connections=connections,
        depth=depth,
        requests=int(requests * part),
    )


def batching(body_bytes: int, requests: int) -> Work:
    return lambda server, part: load.batch(
        server.address, body_bytes=body_bytes, connections=8, depth=8, requests=int(requests * part)
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


def redis(made: list[bytes], connections: int, depth: int, requests: int) -> Work:
    return lambda server, part: load.drive(
        server.address, made, connections=connections, depth=depth, requests=int(requests * part)
    )


def rows() -> list[Row]:
    found = [
        Row(
            f"send 64 x 1, {body_bytes} B", "firearrow",
            dict.fromkeys(("firearrow", "floor"), sending(body_bytes, 64, 1, 200_000))
            | {"apache": sending(body_bytes, 64, 1, 60_000)},
            goals={"floor": 0.9, "apache": 5}, cpu_us=5.5 if body_bytes == 128 else None,
        )
        for body_bytes in (128, 1024)
    ]  # fmt: skip
    found += [
        Row(
            f"send 8 x 32, {body_bytes} B", "firearrow",
            {
                "firearrow": sending(body_bytes, 8, 32, 800_000),
                "redis SET": redis(frames.redis_sets(body_bytes), 8, 32, 800_000),
                "redis XADD": redis(frames.redis_adds(body_bytes), 8, 32, 400_000),
                "apache": sending(body_bytes, 8, 32, 60_000),
            },
            goals={"redis SET": 0.85, "redis XADD": 1.8, "apache": 20}, cpu_us=0.65 if body_bytes == 128 else None,
        )
        for body_bytes in (128, 1024)
    ]  # fmt: skip
    found.append(Row(
        "send batches of 32 x 128 B", "firearrow",
        dict.fromkeys(("firearrow", "floor"), batching(128, 40_000)) | {"apache": batching(128, 4_000)},
        messages=frames.BATCH, goals={"floor": 0.75, "apache": 10},
    ))  # fmt: skip
    for connections, depth, requests, ratio, apache in ((64, 1, 100_000, 0.6, 6), (8, 32, 300_000, 0.45, 10)):
        work = sending(128, connections, depth, requests)
        found.append(Row(
            f"SYNC_FLUSH {connections} x {depth}, 128 B", "firearrow synced",
            {
                "firearrow synced": work, "firearrow": work,
                "redis synced XADD": redis(frames.redis_adds(128), connections, depth, requests // 2),
                "apache synced": sending(128, connections, depth, requests // 8),
            },
            goals={"firearrow": ratio, "redis synced XADD": 2, "apache synced": apache},
        ))  # fmt: skip
    for kind, ratio in (("contiguous", 0.9), ("scattered", 0.8)):
        floor = f"floor {kind}"
        found.append(Row(
            f"pull 32 x 1 KiB, {kind}", "firearrow",
            {
                "firearrow": pulling(kind, 40_000), "apache": pulling(kind, 8_000),
                floor: lambda server, part: load.drive(
                    server.address, [frames.pull_frame(0, 0, 1)], connections=8, depth=1, requests=int(40_000 * part)
                ),
            },
            messages=32, goals={floor: ratio, "apache": 4},
        ))  # fmt: skip
    return found


def started(stack: ExitStack, wanted: set[str], root: Path) -> dict[str, Server]:
    """A server for each of the names; those that share a process share the Server."""
    found: dict[str, Server] = {}

    def add(names: tuple[str, ...], make: Callable[[Path], Server]) -> None:
        if wanted.isdisjoint(names):
            return
        folder = root / names[0].replace(" ", "-")
        folder.mkdir()
        server = make(folder)
        stack.callback(server.stop)
        found.update(dict.fromkeys(names, server))

    add(("firearrow",), servers.firearrow)
    add(("firearrow synced",), lambda at: servers.firearrow(at, "flushDiskType=SYNC_FLUSH"))
    add(("floor",), lambda at: servers.floor(at, "append"))
    add(("floor contiguous",), lambda at: servers.floor(at, "pull", str(32 * 1200), "1"))
    add(("floor scattered",), lambda at: servers.floor(at, "pull", str(32 * 1200), "32"))
    add(("redis SET", "redis XADD"), lambda at: servers.redis(at, synced=False))
    add(("redis synced XADD",), lambda at: servers.redis(at, synced=True))
    add(("apache",), lambda at: servers.apache(at, servers.class_path(CACHE)))
    add(
        ("apache synced",),
        lambda at: servers.apache(at, servers.class_path(CACHE), "flushDiskType=SYNC_FLUSH"),
    )
    return found


def prepared(peers: Mapping[str, Server]) -> None:
    for name, server in peers.items():
        if name.startswith(("firearrow", "apache")):
            load.create_topic(server.address, frames.TOPIC)
            if not name.endswith("synced"):
                load.fill(server.address, "contiguous", QUEUE_MESSAGES, scattered=False)
                load.fill(server.address, "scattered", QUEUE_MESSAGES, scattered=True)


def sample(server: Server, work: Work, part: float, messages: int, into: Samples) -> None:
    """One that was not disturbed, or else the last."""
    for _ in range(TRIES):
        mine, busy, began = server.cpu_s(), busy_s(), time.perf_counter()
        told = work(server, part)
        used, seconds = server.cpu_s() - mine, time.perf_counter() - began
        if busy_s() - busy - used - told.seconds < DISTURBED * seconds:
            break
    into.rates.append(told.rate * messages)
    into.cpu_us.append(used / told.requests / messages * 1e6)
    into.p99.append(told.p99)


def busy_s() -> float:
    """CPU time that all processes of the machine have used, and what its host took."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def measured(
    peers: Mapping[str, Server], chosen: list[Row], rounds: int, part: float
) -> dict[str, dict[str, Samples]]:
    found = {row.name: {name: Samples() for name in row.work if name in peers} for row in chosen}
    for number in range(rounds):
        plan = [(row, name) for row in chosen for name in row.work if name in peers]
        random.Random(number).shuffle(plan)
        for row, name in plan:
            print(
                f"\rround {number + 1}/{rounds}: {row.name}, {name}".ljust(79),
                end="",
                file=sys.stderr,
                flush=True,
            )
            sample(peers[name], row.work[name], part, row.messages, found[row.name][name])
    print(file=sys.stderr)
    return found


def table(chosen: list[Row], found: dict[str, dict[str, Samples]]) -> list[dict[str, object]]:
    """One object a row: messages a second of each, ratios with their goals, our CPU time for a message."""
    told: list[dict[str, object]] = []
    for row in chosen:
        rates = {name: statistics.median(samples.rates) for name, samples in found[row.name].items()}
        mine = rates[row.ours]
        figures: dict[str, object] = {"row": row.name} | {name: round(rate) for name, rate in rates.items()}
        for peer, goal in row.goals.items():
            if peer in rates:
                figures[f"of {peer} (goal {goal})"] = round(mine / rates[peer], 2)
        ours = found[row.name][row.ours]
        limit = f" (goal {row.cpu_us})" if row.cpu_us else ""
        figures[f"cpu us{limit}"] = round(statistics.median(ours.cpu_us), 2)
        figures["p99 us"] = round(statistics.median(ours.p99))
        told.append(figures)
    return told


def commit() -> str:
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return git.stdout.strip()


def main(arguments: list[str] | None = None) -> list[dict[str, object]]:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--part", type=float, default=1, help="of the usual number of requests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", nargs="+", default=[""], help="those whose names begin so")
    parser.add_argument("--without", nargs="+", default=[], help="peers whose names begin so, as apache")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.ndjson")
    given = parser.parse_args(arguments)
    chosen = [row for row in rows() if row.name.startswith(tuple(given.rows))]
    left_out = tuple(given.without)
    wanted = {name for row in chosen for name in row.work if not (left_out and name.startswith(left_out))}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        peers = started(stack, wanted, Path(folder))
        prepared(peers)
        found = measured(peers, chosen, given.rounds, given.part)
        told = table(chosen, found)
        memory = {name: round(peer.anonymous_mib(), 1) for name, peer in peers.items()}
    told.append({"row": "anonymous memory after load, MiB", **memory})
    told.append(
        {"row": "start to first answer, s", **{name: round(peer.ready_s, 3) for name, peer in peers.items()}}
    )
    for figures in told:
        print("  ".join(f"{name}: {value}" for name, value in figures.items()))
    if not given.no_record:
        line = {"at": int(time.time()), "commit": commit(), "machine": platform.platform(), "rows": told}
        with RESULTS.open("a") as results:
            results.write(json.dumps(line) + "\n")
    return told


if __name__ == "__main__":
    main()
