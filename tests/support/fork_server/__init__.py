"""Brokers that a test process starts by fork: the modules of a broker are imported once, not for each broker.

A process of its own forks (`__main__`), for a test process has threads. Brokers become children of the test process,
the nearest subreaper (prctl(2)): it waits for them and kills them as those that it started itself. What a fork shares
is what an import leaves; a test of the start itself, or of a process's memory, starts `fresh` ones.
"""

import ctypes
import functools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO

from firearrow.client.local_broker import LocalBroker
from tests.support.fork_server.messages import Request, send

PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Any thread."""

    def __init__(self) -> None:
        if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError("the fork server needs prctl(PR_SET_CHILD_SUBREAPER)")
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:  # the server ends when this process closes its socket
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def fork(self, arguments: list[str], environment: dict[str, str], files: tuple[int, int]) -> int:
        """The process's id. `files`: its stdout and stderr."""
        with self._lock:
            send(self._socket, Request(arguments, environment, os.getcwd()), files)
            answer = self._socket.recv(16)
        if not answer:
            raise OSError("the fork server has ended")
        return int(answer)


@functools.cache
def fork_server() -> ForkServer:
    """The one of this process."""
    return ForkServer()


class ForkedBroker(subprocess.Popen[str]):
    """`firearrow broker` with these arguments; the methods are those of a process that Popen started itself."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: IO[bytes]) -> None:
        self._arguments, self._environment, self._log = arguments, environment, log
        super().__init__(["firearrow", "broker", *arguments], stdout=subprocess.PIPE, text=True)

    def _execute_child(self, *parameters: object) -> None:
        """What Popen calls to start the process; parameters 12 and 13 are the pipe of its stdout."""
        read, write = parameters[12], parameters[13]
        assert isinstance(read, int)
        assert isinstance(write, int)
        try:
            self.pid = fork_server().fork(self._arguments, self._environment, (write, self._log.fileno()))
            self._child_created = True
        finally:
            os.close(write)


FRESH = {"FIREARROW_TEST_FRESH": "1"}
"""For the environment of a broker that has to be a process of its own from the start."""

_spawn_fresh = LocalBroker._spawn


def _spawn(
    self: LocalBroker, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[str]:
    """A changed environment may act at the start of a process, on libc or on imports."""
    if self._environment or self._module != LocalBroker._module:
        return _spawn_fresh(self, arguments, environment, log)
    return ForkedBroker(arguments, dict(environment), log)


def use_fork_server() -> None:
    """Let each LocalBroker of this process start its broker by fork."""
    LocalBroker._spawn = _spawn  # type: ignore[method-assign]
