"""A load on one server by the native generator (native/loadgen.c): requests made beforehand, from one pinned process.

A rate is requests a second as the load saw them; the server's CPU time beside it is the steadier figure.
"""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from bench.frames import BATCH, DISTINCT, QUEUES, batches, pulls, send_frame, sends, topic_frame
from bench.programs import built
from firearrow._native.wire.command import RemotingCommand

LOAD_CPU = 1
LIMIT_S = 300
FILL_BYTES = 1024
Address = tuple[str, int]


class LoadError(RuntimeError):
    """The server answered with an error, or not at all."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was sent and how long it took; latencies in microseconds, counted from when a request should have begun."""

    requests: int
    seconds: float
    bytes: int
    wrong: int
    p50: float
    p99: float
    p999: float
    max: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def drive(
    address: Address, frames: Sequence[bytes], *, connections: int, depth: int, requests: int, rate: float = 0
) -> Load:
    """So many requests, the frames again and again. `rate`: evenly spaced, so many a second. LoadError."""
    with tempfile.NamedTemporaryFile(suffix=".frames") as file:
        file.writelines(len(frame).to_bytes(4, "big") + frame for frame in frames)
        file.flush()
        words = [*address, file.name, connections, depth, requests, *([rate] if rate else [])]
        command = [str(built("loadgen")), *map(str, words)]
        if (os.cpu_count() or 1) > 1:
            command = ["taskset", "--cpu-list", str(LOAD_CPU), *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise LoadError(done.stderr.strip())
    told = Load(**json.loads(done.stdout))
    if told.wrong:
        raise LoadError(f"{told.wrong} of {told.requests} requests were refused")
    return told


def ask(address: Address, frame: bytes) -> RemotingCommand:
    """One question of its own."""
    with socket.create_connection(address, 10) as connection:
        connection.sendall(frame)
        head = connection.recv(4, socket.MSG_WAITALL)
        return RemotingCommand.decode(head + connection.recv(int.from_bytes(head), socket.MSG_WAITALL))


def create_topic(address: Address, topic: str) -> None:
    answer = ask(address, topic_frame(topic))
    if answer.code != 0:
        raise LoadError(f"topic {topic}: {answer.remark}")


def send(address: Address, *, body_bytes: int, connections: int, depth: int, requests: int) -> Load:
    return drive(address, sends(body_bytes), connections=connections, depth=depth, requests=requests)


def batch(address: Address, *, body_bytes: int, connections: int, depth: int, requests: int) -> Load:
    return drive(address, batches(body_bytes), connections=connections, depth=depth, requests=requests)


def fill(address: Address, topic: str, messages_each: int, *, scattered: bool) -> None:
    """Messages of 1 KiB in each queue; in the log 32 of a queue lie together, or those of four queues mixed."""
    create_topic(address, topic)
    if scattered:
        body = bytes(FILL_BYTES)
        frames = [send_frame(n % QUEUES, body, n + 1, topic=topic) for n in range(DISTINCT)]
        requests = messages_each * QUEUES
    else:
        frames = batches(FILL_BYTES, topic=topic)
        requests = messages_each * QUEUES // BATCH
    drive(address, frames, connections=1, depth=32, requests=requests)


def pull(
    address: Address, *, topic: str, messages_each: int, connections: int, depth: int, requests: int
) -> Load:
    frames = pulls(messages_each, topic=topic)
    return drive(address, frames, connections=connections, depth=depth, requests=requests)
