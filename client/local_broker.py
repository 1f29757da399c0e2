"""LocalBroker: a FireArrow broker in a separate process on free ports, for tests of RocketMQ services.

Requires only the installed package. The broker logs to a file next to its store. Any thread.
"""

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from firearrow.client.base.service_state import Uncopied

READY = re.compile(
    r"firearrow ready: broker (?P<host>\S+):(?P<port>\d+), "
    r"name server (?:(?P<ns_host>\S+):(?P<ns_port>\d+)|off), "
    r"store (?P<store>.+), (?P<topics>\d+) topics, (?P<seconds>[\d.]+) s"
)
LOG_CHARS_SHOWN = 2000
KILLED_S = 60
"""A process that is killed during an fsync ends only after the disk has answered."""


class LocalBrokerError(RuntimeError):
    """The broker did not start; the text ends with the end of its log."""


class LocalBroker(Uncopied):
    """A broker that is ready when the constructor returns. `name_server` and `address` are `host:port`.

    Without `store` it uses a temporary folder. `arguments` are those of `firearrow broker`; `settings` become
    `--set` options. `stop` shuts down cleanly, `kill` does not; `start` starts it again with the same ports
    and store.
    """

    _module = "firearrow.broker"

    def __init__(
        self,
        store: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        wait_s: float = 30,
    ) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="firearrow-") if store is None else None
        self.store = Path(self._own.name) / "store" if self._own is not None else store or Path()
        self.log = self.store.parent / f"{self.store.name}.log"
        self._arguments = list(arguments)
        for key, value in (settings or {}).items():
            self._arguments += ["--set", f"{key}={value}"]
        for option in ("--listen", "--namesrv-listen"):
            if option not in self._arguments:
                self._arguments += [option, "127.0.0.1:0"]
        self._environment = dict(environment or {})
        self._wait_s = wait_s
        self.process = self._started()
        self.ready = self._wait_until_ready()
        """The match of `READY` with the broker's line."""
        self._keep_ports()

    @property
    def line(self) -> str:
        return self.ready.string

    @property
    def address(self) -> str:
        return f"{self.ready['host']}:{self.ready['port']}"

    @property
    def name_server(self) -> str:
        """Empty: it has none."""
        return f"{self.ready['ns_host']}:{self.ready['ns_port']}" if self.ready["ns_port"] else ""

    def start(self) -> None:
        """Start the process and return when it is ready. LocalBrokerError."""
        self.process = self._started()
        self.ready = self._wait_until_ready()

    def _started(self) -> subprocess.Popen[str]:
        arguments = ["--store", str(self.store), *self._arguments]
        with self.log.open("ab") as log:
            return self._spawn(arguments, os.environ | self._environment, log)

    def _wait_until_ready(self) -> re.Match[str]:
        """LocalBrokerError."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], self._wait_s)[0]:
            self.kill()
            raise LocalBrokerError(f"the broker was not ready within {self._wait_s} s: {self._log_tail()}")
        line = self.process.stdout.readline().strip()
        match = READY.match(line)
        if match is None:
            self.process.wait(10)
            self.process.stdout.close()
            raise LocalBrokerError(
                f"the broker exited with code {self.process.returncode}: {line!r} {self._log_tail()}"
            )
        return match

    def stop(self, within_s: float = 10) -> int:
        """Shut down cleanly and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the process; nothing is flushed."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(KILLED_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def close(self) -> None:
        """Kill the process and delete a temporary store."""
        self.kill()
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spawn(
        self, arguments: list[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", self._module, *arguments],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )

    def _keep_ports(self) -> None:
        """Make the next start listen on the same ports."""
        for option, address in (("--listen", self.address), ("--namesrv-listen", self.name_server)):
            if address:
                self._arguments[self._arguments.index(option) + 1] = address

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_CHARS_SHOWN:]
