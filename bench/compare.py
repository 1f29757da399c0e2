"""FireArrow beside Apache's broker in one run: `python -m bench.compare`. Ratios are the result.

Both servers are up at once on CPU 0, the load runs on CPU 1, in rounds of random order; a row is the median of its
rounds. Each run appends a line to bench/results.ndjson.
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
from collections.abc import Callable
from pathlib import Path

from bench import load, servers

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results.ndjson"
CACHE = ROOT / "build" / "bench"
LOAD_CPU = 1
QUEUE_MESSAGES = 20_000


def workloads(messages: int) -> dict[str, Callable[[servers.Server], float]]:
    """Row → messages a second on one server."""
    return {
        "send 64 x 1, 128 B": lambda s: load.send(
            s.address, messages=messages, body_bytes=128, connections=64, depth=1
        ),
        "send 8 x 32, 128 B": lambda s: load.send(
            s.address, messages=messages, body_bytes=128, connections=8, depth=32
        ),
        "send 8 x 32, 1 KiB": lambda s: load.send(
            s.address, messages=messages, body_bytes=1024, connections=8, depth=32
        ),
        "pull 32 x 1 KiB, 8 connections": lambda s: load.pull(
            s.address, requests=messages // 8, queue_messages=QUEUE_MESSAGES // 4, connections=8
        ),
    }


def measured(peers: list[servers.Server], messages: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    for peer in peers:
        load.create_topic(peer.address)
        load.send(peer.address, messages=QUEUE_MESSAGES, body_bytes=1024, connections=4, depth=32)
    rows = workloads(messages)
    found: dict[str, dict[str, list[float]]] = {row: {peer.name: [] for peer in peers} for row in rows}
    for number in range(rounds):
        plan = [(row, peer) for row in rows for peer in peers]
        random.Random(number).shuffle(plan)
        for row, peer in plan:
            found[row][peer.name].append(rows[row](peer))
            print(
                f"\rround {number + 1}/{rounds}: {row}, {peer.name}" + " " * 20,
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    return found


def commit() -> str:
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return git.stdout.strip()


def table(
    peers: list[servers.Server], found: dict[str, dict[str, list[float]]], idle: dict[str, float]
) -> list[dict[str, object]]:
    """One object a row: the figure of each server, and FireArrow's ratio to Apache's where both ran."""
    rows: list[dict[str, object]] = [
        {"row": "start to first stored message, s"} | {peer.name: round(peer.ready_s, 3) for peer in peers},
        {"row": "anonymous memory after start, MiB"} | {name: round(size, 1) for name, size in idle.items()},
        {"row": "anonymous memory after load, MiB"}
        | {peer.name: round(peer.anonymous_mib(), 1) for peer in peers},
    ]
    for row, by_server in found.items():
        rows.append(
            {"row": f"{row}, messages/s"}
            | {name: round(statistics.median(rates)) for name, rates in by_server.items()}
        )
    for figures in rows:
        if "apache" in figures:
            figures["ratio"] = round(float(str(figures["firearrow"])) / float(str(figures["apache"])), 3)
    return rows


def main(arguments: list[str] | None = None) -> list[dict[str, object]]:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000, help="messages of one sample")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="FireArrow without Apache's broker")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for every server")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.ndjson")
    given = parser.parse_args(arguments)
    affinity = os.sched_getaffinity(0)
    if len(affinity) > 1:
        os.sched_setaffinity(0, {LOAD_CPU})
    peers: list[servers.Server] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            peers.append(servers.firearrow(Path(folder), *given.set))
            if not given.alone:
                peers.append(servers.apache(Path(folder), servers.class_path(CACHE), *given.set))
            idle = {peer.name: peer.anonymous_mib() for peer in peers}
            found = measured(peers, given.messages, given.rounds)
            rows = table(peers, found, idle)
        finally:
            for peer in peers:
                peer.stop()
            os.sched_setaffinity(0, affinity)
    for figures in rows:
        print("  ".join(f"{name}: {value}" for name, value in figures.items()))
    if not given.no_record:
        line = {
            "at": int(time.time()),
            "commit": commit(),
            "machine": platform.platform(),
            "settings": given.set,
            "rows": rows,
        }
        with RESULTS.open("a") as results:
            results.write(json.dumps(line) + "\n")
    return rows


if __name__ == "__main__":
    main()
