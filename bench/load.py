"""Load on one server by the native generator (native/loadgen.c): prepared requests from one pinned process.

A rate is requests per second as the generator measured it; the server's CPU time is the more stable figure.
"""

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from bench.frames import (
    BATCH,
    DISTINCT,
    PULLED,
    QUEUES,
    TOPICS_MAX,
    batches,
    pulls,
    send_frame,
    sends,
    topic_frame,
    topics_frame,
)
from bench.programs import built
from bench.servers import LOAD_CPU
from firearrow._native.wire.command import RemotingCommand

LIMIT_S = 300
FILL_BYTES = 1024
Address = tuple[str, int]


class LoadError(RuntimeError):
    """The server answered with an error, with an invalid response, or not at all."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was sent and how long it took; latencies in us, counted from when a request was due."""

    requests: int
    seconds: float
    bytes: int
    wrong: int
    p50: float
    p99: float
    p999: float
    max: float
    each: int = 1
    """Messages per request."""
    besides: int = 0
    """Messages that the server handled in addition to those counted here."""
    resets: int = 0
    """Calls of gRPC whose stream the server reset; each was made again, and is counted once."""

    @property
    def messages(self) -> int:
        return self.requests * self.each

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds


def command(name: str, *words: object, pinned: bool = True) -> list[str]:
    """The command of a program of bench/native; `pinned` to the load's CPU if the server has another one."""
    pin = ["taskset", "--cpu-list", str(LOAD_CPU)] if pinned and (os.cpu_count() or 1) > 1 else []
    return [*pin, str(built(name)), *map(str, words)]


@contextmanager
def kept(frames: Sequence[bytes]) -> Iterator[str]:
    """The path of a temporary file with the requests, in the format of native/requests.h."""
    with tempfile.NamedTemporaryFile(suffix=".frames") as file:
        file.writelines(len(frame).to_bytes(4, "big") + frame for frame in frames)
        file.flush()
        yield file.name


def run_program(words: list[str], limit_s: float = LIMIT_S) -> Load:
    """Run the program and return its result. LoadError: it failed, or responses were wrong."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"the load did not finish within {limit_s} s") from None
    if done.returncode != 0:
        raise LoadError(done.stderr.strip())
    load = Load(**json.loads(done.stdout))
    if load.wrong:
        raise LoadError(f"{load.wrong} of {load.requests} answers were wrong: {done.stderr.strip()}")
    return load


@dataclass(frozen=True, slots=True)
class Workload:
    """A number of requests over some connections, with `depth` requests in flight on each.

    `rate`: requests per second, evenly spaced. `spread`: connections start far apart in the list of requests.
    `check` False: the server is a floor, whose responses have no content. `step`: messages per send. `tls`: the
    connections speak TLS.
    """

    connections: int
    depth: int
    requests: int
    rate: float = 0
    spread: bool = False
    check: bool = True
    step: int = 1
    tls: bool = False


def drive(address: Address, frames: Sequence[bytes], workload: Workload, *, pinned: bool = True) -> Load:
    """Send the frames repeatedly. LoadError."""
    with kept(frames) as path:
        numbers = {key: int(n) if isinstance(n, bool) else n for key, n in asdict(workload).items()}
        name = "loadgen_tls" if numbers.pop("tls") else "loadgen"
        words = (f"{key}={value}" for key, value in numbers.items())
        return run_program(command(name, *address, path, *words, pinned=pinned))


def ask(address: Address, frame: bytes) -> RemotingCommand:
    """Send one request over a new connection; its response."""
    with socket.create_connection(address, 60) as connection:
        connection.sendall(frame)
        head = connection.recv(4, socket.MSG_WAITALL)
        return RemotingCommand.decode(head + connection.recv(int.from_bytes(head), socket.MSG_WAITALL))


def create_topic(address: Address, topic: str, queues: int = QUEUES) -> None:
    answer = ask(address, topic_frame(topic, queues))
    if answer.code != 0:
        raise LoadError(f"topic {topic}: {answer.remark}")


def create_topics(address: Address, names: Sequence[str]) -> None:
    """Create topics with one queue each."""
    for at in range(0, len(names), TOPICS_MAX):
        answer = ask(address, topics_frame(names[at : at + TOPICS_MAX], 1))
        if answer.code != 0:
            raise LoadError(f"topics from {names[at]}: {answer.remark}")


def send(
    address: Address,
    *,
    body_bytes: int,
    connections: int,
    depth: int,
    requests: int,
    check: bool = True,
    tls: bool = False,
) -> Load:
    return drive(address, sends(body_bytes), Workload(connections, depth, requests, check=check, tls=tls))


def batch(
    address: Address, *, body_bytes: int, connections: int, depth: int, requests: int, check: bool = True
) -> Load:
    done = drive(
        address, batches(body_bytes), Workload(connections, depth, requests, check=check, step=BATCH)
    )
    return replace(done, each=BATCH)


def fill(address: Address, topic: str, messages_each: int, *, scattered: bool) -> None:
    """Fill the queues with 1-KiB messages: in the log, 32 of a queue are contiguous, or four queues alternate."""
    create_topic(address, topic)
    if scattered:
        body = bytes(FILL_BYTES)
        frames = [send_frame(n % QUEUES, body, n + 1, topic=topic) for n in range(DISTINCT)]
        drive(address, frames, Workload(1, 32, messages_each * QUEUES))
    else:
        frames = batches(FILL_BYTES, topic=topic)
        requests = messages_each * QUEUES // BATCH
        drive(address, frames, Workload(1, 32, requests, step=BATCH))


def pull(
    address: Address, *, topic: str, messages_each: int, connections: int, depth: int, requests: int
) -> Load:
    """Pull PULLED messages per request through all queues."""
    frames = pulls(messages_each, topic=topic)
    done = drive(address, frames, Workload(connections, depth, requests))
    return replace(done, each=PULLED)
