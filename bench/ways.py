"""Compares the fast path, the handlers and the loop's transports in one run: `python -m bench.ways`.

All brokers run on CPU 0, the load on CPU 1, in rounds of random order. The result is the ratios of the
server's CPU time per request.
"""

import argparse
import random
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import load, servers
from bench.frames import TOPIC
from bench.load import Load
from tests.support.broker_process import WAYS

QUEUE_MESSAGES = 8192
Work = Callable[[servers.Server], Load]


def workloads(requests: int) -> dict[str, Work]:
    def sends(body_bytes: int, connections: int, depth: int) -> Work:
        return lambda server: load.send(
            server.address, requests=requests, body_bytes=body_bytes, connections=connections, depth=depth
        )

    return {
        "send 64 x 1, 128 B": sends(128, 64, 1),
        "send 8 x 32, 128 B": sends(128, 8, 32),
        "send 8 x 32, 1 KiB": sends(1024, 8, 32),
        "pull 32 x 1 KiB, 8 x 1": lambda server: load.pull(
            server.address,
            topic="scattered",
            messages_each=QUEUE_MESSAGES,
            requests=requests // 4,
            connections=8,
            depth=1,
        ),
    }


def costs(peers: list[servers.Server], requests: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Row → server → CPU us per request, one value per round."""
    for peer in peers:
        load.create_topic(peer.address, TOPIC)
        load.fill(peer.address, "scattered", QUEUE_MESSAGES, scattered=True)
    rows = workloads(requests)
    found: dict[str, dict[str, list[float]]] = {row: {peer.name: [] for peer in peers} for row in rows}
    for number in range(rounds):
        plan = [(row, peer) for row in rows for peer in peers]
        random.Random(number).shuffle(plan)
        for row, peer in plan:
            before = peer.cpu_s()
            done = rows[row](peer)
            found[row][peer.name].append((peer.cpu_s() - before) / done.requests * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    peers: list[servers.Server] = []
    with tempfile.TemporaryDirectory(prefix="firearrow-ways-") as root:
        try:
            for name, settings in WAYS.items():
                folder = Path(root) / name
                folder.mkdir()
                peers.append(servers.firearrow(folder, *settings))
                peers[-1].name = name
            for row, of in costs(peers, arguments.requests, arguments.rounds).items():
                medians = {name: statistics.median(of[name]) for name in WAYS}
                shown = (
                    f"{name} {us:6.2f} us {medians['complete'] / us:5.1f}x" for name, us in medians.items()
                )
                print(f"{row:24} {', '.join(shown)}", flush=True)
        finally:
            for peer in peers:
                peer.stop()


if __name__ == "__main__":
    main()
