"""Clients: programs in three languages that write a history each and read commands on standard input.

`load` starts sending, `rest` stops it, `rejoin` closes all consumers and starts them again; `done` in the history
confirms a command. The end of standard input ends the program.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.history.events import Event, EventFile
from tests.history.programs import go_program, java_command

ROOT = Path(__file__).resolve().parents[2]
STEP_S = 0.02


class Client:
    """`language`: `python`, `java` or `go`. Its history, log and files are in `home`. One thread."""

    def __init__(self, language: str, home: Path, name_server: str, seed: int, pace_s: float) -> None:
        self.language = language
        self.name = language
        home.mkdir(parents=True, exist_ok=True)
        self.file = EventFile(home / f"{self.name}.jsonl")
        self._log = home / f"{self.name}.log"
        self._done: list[str] = []
        with self.file.path.open("wb") as events, self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_command(language, home), self.name, name_server, str(seed), str(pace_s)],
                stdin=subprocess.PIPE,
                stdout=events,
                stderr=log,
                text=True,
                cwd=home,
                env=os.environ | {"HOME": str(home), "PYTHONPATH": _python_path()},
            )

    def order(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

    def news(self) -> list[Event]:
        """AssertionError, with the end of its log, if it died."""
        found = self.file.news()
        self._done += [event["what"] for event in found if event["event"] == "done"]
        assert self._process.poll() is None, f"{self.name} ended: {self._log.read_text()[-2000:]}"
        return found

    def carried_out(self, what: str) -> bool:
        """Whether `done` of this command was among the news; once for each."""
        if what in self._done:
            self._done.remove(what)
            return True
        return False

    def close(self, within_s: float = 30) -> None:
        """Let it end; killed if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()


def await_all(clients: list[Client], what: str, within_s: float) -> list[tuple[str, Event]]:
    """The news until every client has carried out the command. TimeoutError, which names those that have not."""
    deadline = time.monotonic() + within_s
    news: list[tuple[str, Event]] = []
    waiting = list(clients)
    while waiting:
        for client in clients:
            news += [(client.name, event) for event in client.news()]
        waiting = [client for client in waiting if not client.carried_out(what)]
        if waiting and time.monotonic() > deadline:
            raise TimeoutError(f"{', '.join(client.name for client in waiting)}: no end of {what!r}")
        time.sleep(STEP_S)
    return news


def _python_path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def _command(language: str, home: Path) -> list[str]:
    if language == "python":
        return [sys.executable, "-m", "tests.history.python"]
    return [str(go_program())] if language == "go" else java_command(home)
