"""Broker: a real broker process on free ports."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.process.connection import Connection

READY = re.compile(
    r"firearrow ready: broker (?P<host>\S+):(?P<port>\d+), name server (?:(?P<ns_host>\S+):(?P<ns_port>\d+)|off), "
    r"store (?P<store>.+), (?P<topics>\d+) topics, (?P<seconds>[\d.]+) s"
)


class Broker:
    """`firearrow broker` on free ports. Its log goes to `broker.log` beside the store."""

    def __init__(
        self, store: Path, *args: str, environment: dict[str, str] | None = None, wait_s: float = 30
    ) -> None:
        self.store = store
        self.log = store.parent / f"{store.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "firearrow.broker", "--store", str(store), *self._listen(args), *args],
                stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | (environment or {}),
            )  # fmt: skip
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], wait_s)[0]:
            self.kill()
            raise TimeoutError(f"no ready line within {wait_s} s; log: {self.log.read_text()[-2000:]}")
        self.line = self.process.stdout.readline().strip()
        match = READY.match(self.line)
        if match is None:
            self.process.wait(10)
            raise RuntimeError(
                f"exit {self.process.returncode}: {self.line!r} {self.log.read_text()[-2000:]}"
            )
        self.address = (match["host"], int(match["port"]))
        self.name_server = (match["ns_host"], int(match["ns_port"])) if match["ns_port"] else None
        self.topics = int(match["topics"])
        self.seconds = float(match["seconds"])

    @staticmethod
    def _listen(args: tuple[str, ...]) -> list[str]:
        listen = [] if "--listen" in args else ["--listen", "127.0.0.1:0"]
        return listen if "--namesrv-listen" in args else [*listen, "--namesrv-listen", "127.0.0.1:0"]

    def connect(self) -> Connection:
        return Connection(self.address)

    def connect_name_server(self) -> Connection:
        assert self.name_server is not None
        return Connection(self.name_server)

    def stop(self, within_s: float = 10) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL; nothing is flushed."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def anonymous_kib(self) -> int:
        """RssAnon of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
