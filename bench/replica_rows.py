"""Rows for replication: a master with a slave compared with a broker alone; how far a slave is behind; catching up."""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import frames, load, rows, servers
from bench.load import Load, Workload
from bench.request_rows import sending
from bench.rows import OURS, Row
from bench.servers import Address, Server
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

MASTER = "firearrow with a slave"
SYNC_MASTER = "firearrow as SYNC_MASTER"
PAIR = "firearrow pair"
FOLLOWED_RATE = 300_000
FOLLOWED_S = 3
LOOK_S, BEHIND_MAX_S, READY_S = 0.01, 60, 300
COPIED_BYTES = 2 << 30


def with_slave(connections: int, depth: int, of_alone: float) -> Row:
    """The slave costs nothing (native/slave.c): what sends pay for a copy that they do not wait for."""
    work = sending(128, connections, depth, 200_000 if depth == 1 else 800_000)
    return Row(
        f"send {connections} x {depth}, 128 B, with a slave",
        MASTER,
        {MASTER: work, OURS: work},
        (rows.of(OURS, of_alone), rows.memory()),
        prepare=_make_topic,
    )


def confirmed(connections: int, depth: int, of_async: float) -> Row:
    """Sends wait until the slave has the message."""
    work = sending(128, connections, depth, 100_000 if depth == 1 else 400_000)

    def prepare(server: Server, part: float) -> None:
        _make_topic(server, part)
        _wait_until(lambda: _slave(server.address).get("inSync") is True, "the slave is in sync")
        load.ask(server.address, _request(RequestCode.UPDATE_BROKER_CONFIG, b"inSyncReplicas=2\n"))

    return Row(
        f"send {connections} x {depth}, 128 B, SYNC_MASTER",
        SYNC_MASTER,
        {SYNC_MASTER: work, MASTER: work},
        (rows.of(MASTER, of_async), rows.memory()),
        prepare=prepare,
    )


def followed() -> Row:
    """Latencies are how long the slave needs for what it is behind."""

    def work(server: Server, part: float) -> Load:
        count = int(FOLLOWED_RATE * FOLLOWED_S * part)
        warm = Workload(8, 32, max(1, int(FOLLOWED_RATE * min(1, part))), rate=FOLLOWED_RATE / 3)
        load.drive(server.address, frames.sends(128), warm, pinned=False)
        begin, began = _end_of(server.address), time.monotonic()
        behind: list[int] = []
        done = threading.Event()

        def look() -> None:
            while not done.wait(LOOK_S):
                behind.append(_behind(server.address))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            sent = load.drive(
                server.address,
                frames.sends(128),
                Workload(8, 32, count, rate=FOLLOWED_RATE),
                pinned=False,  # the slave has the load's CPU
            )
            bytes_us = (_end_of(server.address) - begin) / (time.monotonic() - began) / 1e6
        finally:
            done.set()
            looking.join()
        _wait_until(lambda: _behind(server.address) == 0, "the slave has caught up", BEHIND_MAX_S)
        lags = sorted(max(each / bytes_us, 1.0) for each in behind)
        return replace(
            sent,
            p50=statistics.median(lags),
            p99=lags[int(len(lags) * 0.99)],
            p999=lags[int(len(lags) * 0.999)],
            max=lags[-1],
        )

    return Row(
        f"a slave at {FOLLOWED_RATE:,}/s, 128 B",
        PAIR,
        {PAIR: work},
        (rows.latency("p99", 50_000), rows.memory()),
        prepare=_make_topic,
        rounds_max=1,
    )


def catching_up() -> Row:
    """A new slave copies the log; a message is a MB. The floor writes as many bytes to a file."""

    def prepare(server: Server, part: float) -> None:
        _make_topic(server, part)
        load.drive(server.address, frames.batches(1024), Workload(8, 8, _batches(part), step=frames.BATCH))

    def copied(server: Server, part: float) -> Load:
        with tempfile.TemporaryDirectory(prefix="firearrow-slave-") as folder:
            began, end = time.monotonic(), _end_of(server.address)
            process, address = servers.slave_of(server, Path(folder) / "slave")
            try:
                _wait_until(lambda: _end_of(address) >= end, "the slave has the log", READY_S)
                seconds = time.monotonic() - began
            finally:
                process.kill()
                process.wait()
        return _of_bytes(end, seconds)

    def written(server: Server, part: float) -> Load:
        block = bytes(1 << 20)
        with tempfile.TemporaryFile(prefix="firearrow-slave-") as file:
            began, end = time.monotonic(), _end_of(server.address)
            for _ in range(end >> 20):
                file.write(block)
            file.flush()
            return _of_bytes(end, time.monotonic() - began)

    bare = f"{PAIR}: bare write"
    return Row(
        "a new slave copies 2 GB, MB/s",
        PAIR,
        {PAIR: copied, bare: written},
        (rows.rate(500),),
        prepare=prepare,
        rounds_max=3,
        floor=bare,
    )


def _of_bytes(count: int, seconds: float) -> Load:
    us = seconds * 1e6
    return Load(max(1, count // 1_000_000), seconds, count, 0, us, us, us, us)


def _batches(part: float) -> int:
    return max(8, int(COPIED_BYTES * part) // (1024 * frames.BATCH))


def _make_topic(server: Server, part: float) -> None:
    load.create_topic(server.address, frames.TOPIC)


def _request(code: int, body: bytes = b"") -> bytes:
    return RemotingCommand(code, {}, body).encode()


def _ha_status(address: Address) -> dict[str, object]:
    answer = load.ask(address, _request(RequestCode.GET_BROKER_HA_STATUS))
    status: dict[str, object] = json.loads(answer.body)
    return status


def _slave(address: Address) -> dict[str, object]:
    """As the master sees it; empty: it is not connected."""
    slaves = _ha_status(address)["haConnectionInfo"]
    return slaves[0] if isinstance(slaves, list) and slaves else {}


def _behind(address: Address) -> int:
    """Bytes of the log that the slave lacks."""
    return int(str(_slave(address)["diff"]))


def _end_of(address: Address) -> int:
    """Of the log."""
    answer = load.ask(address, _request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def _wait_until(condition: Callable[[], bool], what: str, within_s: float = BEHIND_MAX_S) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise load.LoadError(f"not within {within_s} s: {what}")
        time.sleep(0.02)


def replica_rows() -> list[Row]:
    return [
        with_slave(64, 1, 0.9),
        with_slave(8, 32, 0.8),
        confirmed(8, 32, 0.5),
        followed(),
        catching_up(),
    ]
