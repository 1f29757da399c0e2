"""Any allocation of a poller's pass may fail: each connection is answered or closed, and the next one is served."""

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any

import pytest

from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import Connection
from firearrow._native.wire.poller import EpollPoller
from tests.support.frames import commands_in
from tests.support.poller_harness import frame

testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
pytestmark = pytest.mark.alone
FIRST = 100
"""Allocations fail after up to this many of a pass. A pass with three connections makes about that many."""
CONNECTIONS, FRAMES = 3, 4
TURNS = 20


class PollingLoop:
    """A loop as the poller uses it: a pass runs while a socket is ready. The handler gets MemoryErrors only."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def time(self) -> float:
        return 1.0

    def add_reader(self, descriptor: int, run_pass: Callable[[], object]) -> None:
        self.epoll, self.run_pass = descriptor, run_pass

    def remove_reader(self, descriptor: int) -> None: ...

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        self.soon.append((callback, arguments))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        assert isinstance(context["exception"], MemoryError)

    def run(self) -> None:
        for _ in range(TURNS):
            soon, self.soon = self.soon, []
            if select.select([self.epoll], [], [], 0)[0]:
                soon.append((self.run_pass, ()))
            for callback, arguments in soon:
                callback(*arguments)

    def run_failing(self, first: int, count: int) -> None:
        """A pass in which `count` allocations fail, from `first` on."""
        with contextlib.suppress(MemoryError):
            testcapi.set_nomemory(first, first + count)
            try:
                self.run_pass()
            finally:
                testcapi.remove_mem_hooks()
        self.run()


class Answering(Connection):
    def received(self, command: RemotingCommand) -> None:
        self.send(command.answer().encode())

    def lost(self, reason: Exception | None) -> None: ...
    def broken(self, fault: str) -> None: ...


class AnsweringFront(FastConnection):
    received, lost, broken = Answering.received, Answering.lost, Answering.broken


class PolledConnection:
    """A connection of a poller, and its peer, which sends some frames and half of the last one."""

    def __init__(self, loop: PollingLoop, engine: EpollPoller, kind: type[Connection]) -> None:
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        engine.add(ours, kind(loop))  # type: ignore[arg-type]
        frames = b"".join(frame(opaque) for opaque in range(FRAMES))
        self.rest = frames[-10:]
        self.peer.send(frames[:-10])

    def end_the_frame(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.peer.send(self.rest)

    def responses(self) -> tuple[list[int], bool]:
        """The opaques of the responses since the last call, and whether the connection is closed."""
        held, ended = b"", False
        with contextlib.suppress(BlockingIOError):
            while chunk := self.peer.recv(1 << 16):
                held += chunk
            ended = True
        return [answer.opaque for answer in commands_in(held)], ended


def check(lines: list[PolledConnection], opaques: list[int]) -> int:
    """All were answered, or the first ones and then the connection closed. How many were closed."""
    ends = 0
    for line in lines:
        found, ended = line.responses()
        assert found == opaques[: len(found)]
        assert ended or found == opaques
        ends += ended
    return ends


@pytest.mark.parametrize("kind", [Answering, AnsweringFront])
def test_a_pass_without_memory_answers_all_or_closes(kind: type[Connection]) -> None:
    for count in (1, 2, 4, 8, 16, 40, 1000):
        fail_in_each_place(count, kind)


def fail_in_each_place(count: int, kind: type[Connection]) -> None:
    """Passes in which `count` allocations fail, each from a later one on."""
    ended = 0
    for first in range(FIRST):
        loop = PollingLoop()
        engine = EpollPoller(loop)  # type: ignore[arg-type]
        lines = [PolledConnection(loop, engine, kind) for _ in range(CONNECTIONS)]
        loop.run_failing(first, count)
        ends = check(lines, list(range(FRAMES - 1)))
        ended += ends
        lines.append(PolledConnection(loop, engine, kind))
        loop.run()
        for line in lines:
            line.end_the_frame()
        loop.run()
        assert check(lines[:-1], [FRAMES - 1]) == ends
        assert lines[-1].responses() == (list(range(FRAMES)), False)
        for line in lines:
            line.peer.close()
        loop.run()
        engine.close()
    assert ended > 10
