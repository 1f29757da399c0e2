"""Measures what lite topics cost: `python -m bench.lite_topics [--count N] [--store FOLDER]`.

One broker gets a message for each of N lite topics, and a client's subscription to each. Reported: memory and disk a
lite topic, how fast they are created, what plain sends (1 KiB, one in flight) take before, while 1,000 a second
and then as many as it can are created, while messages come for lite topics that exist, and alone once all exist; how
long a stop and a start take.
"""

import argparse
import itertools
import json
import math
import os
import re
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from bench.frames import send_frame, topic_frame
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.local_broker import LocalBroker

LITE, PLAIN, GROUP = "lite", "plain", "lite-consumers"
SUBSCRIPTIONS = 2000
"""Of one client: Apache's quota."""
WINDOW = 256
"""Sends in flight while lite topics are created."""
PLAIN_SENDS = 3000
PACE, PACED_MAX = 1000, 20_000
AGAIN = 100_000
"""Messages for lite topics that exist."""
START_S = 900.0
SETTLE_S = 2.0


class Latency(NamedTuple):
    """Of plain sends, in microseconds."""

    p50: float
    p99: float
    longest: float


class Broker(NamedTuple):
    pid: int
    port: int

    def memory_bytes(self, kind: str) -> int:
        """`VmRSS`: all; `RssAnon`: what the kernel cannot read again from files."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{kind}:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


class Result(NamedTuple):
    """Bytes and latencies of one lite topic or one send."""

    created_per_s: float
    again_per_s: float
    before: Latency
    slowly: Latency
    creating: Latency
    again: Latency
    after: Latency
    anonymous_each: float
    memory: int
    disk_each: float
    lite_topics: int
    subscriptions: int


@contextmanager
def running(store: Path, count: int) -> Iterator[Broker]:
    settings = (
        "enableLmq=true",
        "enableMultiDispatch=true",
        f"maxLmqConsumeQueueNum={count + 10}",
        f"maxLiteSubscriptionCount={count + 10}",
    )
    broker = LocalBroker(
        store, arguments=tuple(word for each in settings for word in ("--set", each)), wait_s=START_S
    )
    try:
        yield Broker(broker.process.pid, int(broker.ready["port"]))
    finally:
        broker.stop(START_S)


class Client:
    """Frames in, frames out; answers are only counted, but for failures."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> RemotingCommand:
        self._socket.sendall(frame)
        return self._answer()

    def send_all(self, frames: Iterator[bytes], per_s: float = math.inf) -> int:
        """With WINDOW in flight; how many. `per_s`: at most this many a second."""
        sent = answered = 0
        began = time.monotonic()
        for frame in frames:
            time.sleep(max(began + sent / per_s - time.monotonic(), 0))
            self._socket.sendall(frame)
            sent += 1
            while sent - answered >= WINDOW:
                self._answer()
                answered += 1
        while answered < sent:
            self._answer()
            answered += 1
        return sent

    def _answer(self) -> RemotingCommand:
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._buffer += data
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        frame, self._buffer = self._buffer[:end], self._buffer[end:]
        answer = RemotingCommand.decode(frame)
        if answer.code:
            raise RuntimeError(f"code {answer.code}: {answer.remark}")
        return answer


def name(n: int) -> str:
    return f"session-{n:09d}"


def lite_frames(count: int) -> Iterator[bytes]:
    for n in range(count):
        text = f"UNIQ_KEY\x01{n:032X}\x02__LITE_TOPIC\x01{name(n)}\x02"
        yield send_frame(n % 4, b"x" * 100, n + 1, topic=LITE, text=text)


def subscription_frames(count: int) -> Iterator[bytes]:
    for first in range(0, count, SUBSCRIPTIONS):
        entry = {
            "action": "PARTIAL_ADD",
            "clientId": f"client-{first}",
            "group": GROUP,
            "topic": LITE,
            "liteTopicSet": [name(n) for n in range(first, min(first + SUBSCRIPTIONS, count))],
        }
        body = json.dumps({"subscriptionSet": [entry]}).encode()
        yield RemotingCommand(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body=body).encode()


def latency(port: int, count: int = PLAIN_SENDS, stop: threading.Event | None = None) -> Latency:
    took: list[float] = []
    with Client(port) as client:
        while len(took) < count if stop is None else not stop.is_set():
            frame = send_frame(len(took) % 4, b"x" * 1024, len(took) + 1, topic=PLAIN)
            began = time.perf_counter()
            client.ask(frame)
            took.append((time.perf_counter() - began) * 1e6)
    cuts = statistics.quantiles(took, n=100)
    return Latency(cuts[49], cuts[98], max(took))


def create_topics(client: Client) -> None:
    client.ask(topic_frame(PLAIN))
    lite = RemotingCommand.decode(topic_frame(LITE))
    lite.ext["attributes"] = "+message.type=LITE"
    client.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, lite.ext).encode())
    group = {"groupName": GROUP, "attributes": {"+lite.bind.topic": LITE}}
    body = json.dumps(group).encode()
    client.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body).encode())


def disk_bytes(folder: Path) -> int:
    """Of the file system, since its count includes folders and is quick."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def load(port: int, frames: Iterator[bytes], per_s: float = math.inf) -> tuple[float, Latency]:
    """Messages a second, and what plain sends take beside."""
    stop, beside = threading.Event(), []
    thread = threading.Thread(target=lambda: beside.append(latency(port, stop=stop)))
    thread.start()
    began = time.monotonic()
    with Client(port) as client:
        count = client.send_all(frames, per_s)
    took_s = time.monotonic() - began
    stop.set()
    thread.join()
    return count / took_s, beside[0]


def measure(broker: Broker, folder: Path, count: int) -> Result:
    with Client(broker.port) as client:
        create_topics(client)
    before = latency(broker.port)
    anonymous, disk = broker.memory_bytes("RssAnon"), disk_bytes(folder)
    frames = lite_frames(count)
    _, slowly = load(broker.port, itertools.islice(frames, min(count // 10, PACED_MAX)), PACE)
    created_per_s, creating = load(broker.port, frames)
    again_per_s, again = load(broker.port, lite_frames(min(count, AGAIN)))
    with Client(broker.port) as client:
        for frame in subscription_frames(count):
            client.ask(frame)
    time.sleep(SETTLE_S)
    return Result(
        created_per_s,
        again_per_s,
        before,
        slowly,
        creating,
        again,
        latency(broker.port),
        (broker.memory_bytes("RssAnon") - anonymous) / count,
        broker.memory_bytes("VmRSS"),
        (disk_bytes(folder) - disk) / count,
        *counts(broker.port),
    )


def counts(port: int) -> tuple[int, int]:
    """Lite topics and subscriptions that the broker has."""
    with Client(port) as client:
        info = json.loads(client.ask(RemotingCommand(RequestCode.GET_BROKER_LITE_INFO, {}).encode()).body)
    return info["currentLmqNum"], info["liteSubscriptionCount"]


def report(result: Result) -> None:
    print(f"lite topics, subscriptions: {result.lite_topics}, {result.subscriptions}")
    print(f"lite topics created:        {result.created_per_s:.0f} /s")
    print(f"messages for them:          {result.again_per_s:.0f} /s")
    print(f"plain sends before:         {result.before}")
    print(f"beside {PACE} creations a second: {result.slowly}")
    print(f"beside as many as it can:   {result.creating}")
    print(f"beside messages for them:   {result.again}")
    print(f"with all:                   {result.after}")
    print(f"memory of the broker:       {result.memory / 2**20:.0f} MiB")
    print(f"anonymous memory:           {result.anonymous_each:.0f} B each")
    print(f"disk:                       {result.disk_each:.0f} B each", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="firearrow-lite-", dir=given.store))
    try:
        with running(folder / "store", given.count) as broker:
            report(measure(broker, folder, given.count))
            began = time.monotonic()
        print(f"stop:                       {time.monotonic() - began:.1f} s")
        began = time.monotonic()
        with running(folder / "store", given.count) as broker:
            print(f"start:                      {time.monotonic() - began:.1f} s")
            print(f"lite topics:                {counts(broker.port)[0]}")
            for kind in ("VmRSS", "RssAnon"):
                print(f"memory, {kind + ':':20}{broker.memory_bytes(kind) / 2**20:.0f} MiB")
            print(f"plain sends:                {latency(broker.port)}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
