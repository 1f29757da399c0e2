"""Celery's workers as processes, and the app that sends to them from this one."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[3]
MODULE = "tests.integrations.kombu.celery_app"
READY_S, END_S = 90, 60


class Worker:
    """`pool`: prefork, threads, gevent or solo. Its log is in `folder`."""

    def __init__(
        self, url: str, folder: Path, hostname: str, *words: str, pool: str = "prefork", **environment: str
    ) -> None:
        self.hostname = hostname
        self.log = folder / f"{hostname}.log"
        command = [
            sys.executable,
            *("-m", "celery", "-A", MODULE, "worker", "-l", "INFO", "-P", pool, "-n", hostname, *words),
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"BROKER_URL": url} | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return self.log.read_text()

    def ready(self) -> Self:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.text()
            return " ready." in self.text()

        eventually(is_ready, READY_S, self.text)
        return self

    def stop(self) -> None:
        """A warm shutdown."""
        self.process.terminate()
        assert self.process.wait(END_S) == 0, self.text()
        assert "CRITICAL" not in self.text(), self.text()

    def kill(self) -> None:
        """With the children of the pool."""
        children = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in [self.process.pid, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.kill()


@contextmanager
def application(url: str, **environment: str) -> Iterator[Any]:
    """The module of the app for this process, with its connections closed at the end."""
    previous = dict(os.environ)
    os.environ.update({"BROKER_URL": url} | environment)
    sys.modules.pop(MODULE, None)
    try:
        module = importlib.import_module(MODULE)
        yield module
        module.app.backend.result_consumer.stop() if module.app.backend.result_consumer._consumer else None
        module.app.close()
    finally:
        os.environ.clear()
        os.environ.update(previous)


def options(**values: object) -> Mapping[str, str]:
    return {"OPTIONS": json.dumps(values)}


def lines(path: Path, pattern: str = "") -> list[str]:
    return (
        [line for line in path.read_text().splitlines() if re.search(pattern, line)] if path.exists() else []
    )
