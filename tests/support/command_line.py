"""Runs `firearrow …`, in this process or in one of its own."""

import io
import os
import pty
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from firearrow.client.cli.main import run
from tests.support.fork_server import ForkedCommand, run_forked

PROGRAM = [sys.executable, "-c", "from firearrow.client.cli.main import main; main()"]


class Ran(NamedTuple):
    """`out` and `err`: what the command printed."""

    code: int
    out: str
    err: str

    def succeeded(self) -> None:
        assert self.code == 0, self

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON Lines on stdout; fails if the command did."""
        self.succeeded()
        return self.lines

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON Lines on stdout, whatever the exit code."""
        return [orjson.loads(line) for line in self.out.splitlines()]


def here(*words: str, name_server: str | None = None) -> Ran:
    """In this process, without a terminal, and so with JSON Lines."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), _name_server(name_server):
        try:
            code = run(words)
        except SystemExit as end:
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())


def process(*words: str, name_server: str | None = None, stdin: str = "", **environment: str) -> Ran:
    with _name_server(name_server):
        ended = run_forked(*words, stdin=stdin, timeout=60, environment=os.environ | environment)
    return Ran(ended.returncode, ended.stdout, ended.stderr)


@contextmanager
def _name_server(address: str | None) -> Iterator[None]:
    """`NAMESRV_ADDR` of the environment."""
    before = os.environ.pop("NAMESRV_ADDR", None)
    if address is not None:
        os.environ["NAMESRV_ADDR"] = address
    try:
        yield
    finally:
        os.environ.pop("NAMESRV_ADDR", None)
        if before is not None:
            os.environ["NAMESRV_ADDR"] = before


def no_contexts(folder: Path) -> dict[str, str]:
    """An environment without the contexts of the user who runs the tests."""
    return {"XDG_CONFIG_HOME": str(folder)}


def on_terminal(
    *words: str, typed: str = "", columns: int = 120, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit code and what a terminal showed, for a process whose three streams are one."""
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    variables = inherited | {"COLUMNS": str(columns), "TERM": "xterm", "TZ": "UTC", **(environment or {})}
    running = ForkedCommand(["firearrow", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    shown, waiting = b"", typed.encode()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            shown += chunk
            if waiting and shown.endswith(b"[y/N] "):
                os.write(ours, waiting)
                waiting = b""
    os.close(ours)
    return running.wait(10), shown.decode().replace("\r\n", "\n")
