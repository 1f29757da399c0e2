"""Commands of `firearrow` that a test process starts by fork: each command's modules are imported once.

A process of its own forks (`__main__`), for a test process has threads. Commands become children of the test process,
the nearest subreaper (prctl(2)): it waits for them and kills them as those that it started itself. What a fork shares
is what an import leaves; a test of the start itself, of a terminal or of a process's memory starts `fresh` ones.
"""

import ctypes
import functools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, AnyStr, Generic

from firearrow.client.local_broker import LocalBroker
from tests.support.fork_server.messages import Request, send
from tests.support.startup import may_be_forked

PR_SET_CHILD_SUBREAPER = 36
INHERITED = -1
"""For Popen: not redirected."""


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

    def fork(self, request: Request, files: list[int]) -> int:
        """The process's id. `files`: its stdin, stdout and stderr."""
        with self._lock:
            send(self._socket, request, files)
            answer = self._socket.recv(16)
        if not answer:
            raise OSError("the fork server has ended")
        return int(answer)


@functools.cache
def fork_server() -> ForkServer:
    """The one of this process."""
    return ForkServer()


class ForkedCommand(subprocess.Popen[AnyStr], Generic[AnyStr]):
    """`Popen` of `firearrow …` or `python -c …`, with the parameters that `_execute_child` uses."""

    def _execute_child(self, *parameters: Any) -> None:  # noqa: ANN401
        """What Popen calls to start the process."""
        words, folder, environment, pipes = parameters[0], parameters[5], parameters[6], parameters[10:16]
        request = Request(
            [os.fspath(word) for word in words[1:]],
            dict(os.environ if environment is None else environment),
            os.fspath(folder or os.getcwd()),
            session=parameters[21],
        )
        theirs = (pipes[0], pipes[3], pipes[5])
        try:
            files = [number if each == INHERITED else each for number, each in enumerate(theirs)]
            self.pid = fork_server().fork(request, files)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_forked(
    *words: str,
    stdin: str = "",
    timeout: float = 30,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `firearrow WORDS…`, with its output as text."""
    command = ["firearrow", *words]
    with ForkedCommand(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    ) as process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


FRESH = {"FIREARROW_TEST_FRESH": "1"}
"""For the environment of a broker that has to be a process of its own from the start."""

_spawn_fresh = LocalBroker._spawn


def _spawn(
    self: LocalBroker, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[str]:
    """A changed environment may act at the start of a process, on libc or on imports."""
    if not may_be_forked(self._environment) or self._module != LocalBroker._module:
        return _spawn_fresh(self, arguments, environment, log)
    command = ["firearrow", "broker", *arguments]
    return ForkedCommand(command, stdout=subprocess.PIPE, stderr=log, env=environment, text=True)


def use_fork_server() -> None:
    """Let each LocalBroker of this process start its broker by fork."""
    LocalBroker._spawn = _spawn  # type: ignore[method-assign]
