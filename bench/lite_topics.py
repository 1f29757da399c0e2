"""Measures what lite topics cost: `python -m bench.lite_topics [--count N] [--store FOLDER]`.

One broker gets a message for each of N lite topics. Reported: anonymous memory and disk a lite topic, how fast they are
created, and what plain sends (1 KiB, one in flight) take before, while they are created, and once all exist.
"""

import argparse
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
from typing import NamedTuple

from bench.frames import send_frame, topic_frame
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.local_broker import LocalBroker

LITE, PLAIN = "lite", "plain"
WINDOW = 256
"""Sends in flight while lite topics are created."""
PLAIN_SENDS = 3000
SETTLE_S = 5.0


class Latency(NamedTuple):
    """Of plain sends, in microseconds."""

    p50: float
    p99: float
    longest: float


class Broker(NamedTuple):
    pid: int
    port: int

    def anonymous_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@contextmanager
def running(store: Path, count: int) -> Iterator[Broker]:
    settings = ("enableLmq=true", "enableMultiDispatch=true", f"maxLmqConsumeQueueNum={count + 10}")
    broker = LocalBroker(
        store, arguments=tuple(word for each in settings for word in ("--set", each)), wait_s=600
    )
    try:
        yield Broker(broker.process.pid, int(broker.ready["port"]))
    finally:
        broker.stop(600)


class Client:
    """Frames in, frames out; answers are only counted, but for failures."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def ask(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        self._answer()

    def send_all(self, frames: Iterator[bytes]) -> int:
        """With WINDOW in flight; how many."""
        sent = answered = 0
        for frame in frames:
            self._socket.sendall(frame)
            sent += 1
            while sent - answered >= WINDOW:
                self._answer()
                answered += 1
        while answered < sent:
            self._answer()
            answered += 1
        return sent

    def _answer(self) -> None:
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


def lite_frames(count: int) -> Iterator[bytes]:
    for n in range(count):
        text = f"UNIQ_KEY\x01{n:032X}\x02__LITE_TOPIC\x01session-{n:09d}\x02"
        yield send_frame(n % 4, b"x" * 100, n + 1, topic=LITE, text=text)


def latency(port: int, count: int = PLAIN_SENDS, stop: threading.Event | None = None) -> Latency:
    client, took = Client(port), []
    n = 0
    while n < count if stop is None else not stop.is_set():
        frame = send_frame(n % 4, b"x" * 1024, n + 1, topic=PLAIN)
        began = time.perf_counter()
        client.ask(frame)
        took.append((time.perf_counter() - began) * 1e6)
        n += 1
    cuts = statistics.quantiles(took, n=100)
    return Latency(cuts[49], cuts[98], max(took))


def create_topics(port: int) -> None:
    client = Client(port)
    client.ask(topic_frame(PLAIN))
    lite = RemotingCommand.decode(topic_frame(LITE))
    lite.ext["attributes"] = "+message.type=LITE"
    client.ask(RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, lite.ext).encode())


def disk_bytes(folder: Path) -> int:
    """Of the file system, since its count includes folders and is quick."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def measure(broker: Broker, folder: Path, count: int) -> None:
    create_topics(broker.port)
    print("plain sends before:        ", latency(broker.port))
    memory, disk, began = broker.anonymous_bytes(), disk_bytes(folder), time.monotonic()
    stop, beside = threading.Event(), []
    thread = threading.Thread(target=lambda: beside.append(latency(broker.port, stop=stop)))
    thread.start()
    Client(broker.port).send_all(lite_frames(count))
    took_s = time.monotonic() - began
    stop.set()
    thread.join()
    time.sleep(SETTLE_S)
    print("plain sends beside:        ", beside[0])
    print("plain sends with all:      ", latency(broker.port))
    print(f"lite topics created:        {count / took_s:.0f} /s")
    total = broker.anonymous_bytes()
    each = (total - memory) / count
    print(f"anonymous memory:           {total / 2**20:.0f} MiB, {each:.0f} B each")
    print(f"disk:                       {(disk_bytes(folder) - disk) / count:.0f} B each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="firearrow-lite-", dir=given.store))
    try:
        with running(folder / "store", given.count) as broker:
            measure(broker, folder, given.count)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
