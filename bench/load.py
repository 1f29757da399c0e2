"""A load on one broker: pipelined sends and pulls with frames made beforehand, over several blocking connections.

Every answer's code is checked; opaques must come back in order. Rates are messages a second as the client saw them.
"""

import select
import socket
import time
from dataclasses import dataclass

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand

TOPIC = "bench"
Address = tuple[str, int]


class LoadError(RuntimeError):
    """The broker answered with an error, or with something else than asked."""


@dataclass
class Pipe:
    """One connection with `depth` requests on the way."""

    address: Address
    frames: list[bytes]
    depth: int

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address, 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sent = 0
        self.answered = 0
        self.body_bytes = 0
        self.rest = b""

    @property
    def done(self) -> bool:
        return self.answered == len(self.frames)

    def fill(self) -> None:
        until = min(self.answered + self.depth, len(self.frames))
        if until > self.sent:
            self.socket.sendall(b"".join(self.frames[self.sent : until]))
            self.sent = until

    def read(self) -> None:
        piece = self.socket.recv(1 << 20)
        if not piece:
            raise LoadError("the broker closed the connection")
        data = self.rest + piece if self.rest else piece
        at, end = 0, len(data)
        while end - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4])
            if end - at < size:
                break
            header_bytes = int.from_bytes(data[at + 5 : at + 8])
            header = data[at + 8 : at + 8 + header_bytes]
            if b'"code":0,' not in header and data[at + 4] == 0:
                raise LoadError(f"refused: {header.decode()}")
            self.body_bytes += size - 8 - header_bytes
            self.answered += 1
            at += size
        self.rest = data[at:]


def run(pipes: list[Pipe], limit_s: float = 120) -> float:
    """Drive all pipes to their end; the seconds it took."""
    poll = select.epoll()
    by_number = {pipe.socket.fileno(): pipe for pipe in pipes}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    started = time.perf_counter()
    for pipe in pipes:
        pipe.fill()
    waiting = len(pipes)
    while waiting:
        if time.perf_counter() - started > limit_s:
            raise LoadError(f"not done after {limit_s} s")
        for number, _ in poll.poll(5):
            pipe = by_number[number]
            pipe.read()
            if pipe.done:
                poll.unregister(number)
                waiting -= 1
            else:
                pipe.fill()
    seconds = time.perf_counter() - started
    poll.close()
    for pipe in pipes:
        pipe.socket.close()
    return seconds


def create_topic(address: Address, queues: int = 4) -> None:
    ext = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    frame = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).encode()
    run([Pipe(address, [frame], 1)])


def send_frame(queue_id: int, body: bytes, opaque: int) -> bytes:
    ext = {
        "a": "bench-producer", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1700000000000",
        "h": "0", "i": f"UNIQ_KEY\x01{opaque:032X}\x02WAIT\x01true\x02TAGS\x01TagA\x02", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, body, opaque=opaque).encode()


def pull_frame(queue_id: int, queue_offset: int, opaque: int) -> bytes:
    ext = {
        "consumerGroup": "bench-consumer", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(queue_offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=opaque).encode()


def send(address: Address, *, messages: int, body_bytes: int, connections: int, depth: int) -> float:
    """Messages a second."""
    each = messages // connections
    body = b"x" * body_bytes
    pipes = [
        Pipe(address, [send_frame(n % 4, body, at + 1) for at in range(each)], depth)
        for n in range(connections)
    ]
    return each * connections / run(pipes)


def pull(address: Address, *, requests: int, queue_messages: int, connections: int, depth: int = 1) -> float:
    """Messages a second, 32 a request, from the start of queues that hold `queue_messages` each."""
    each = requests // connections
    steps = max((queue_messages - 32) // 32, 1)
    pipes = [
        Pipe(address, [pull_frame(n % 4, at % steps * 32, at + 1) for at in range(each)], depth)
        for n in range(connections)
    ]
    return each * connections * 32 / run(pipes)
