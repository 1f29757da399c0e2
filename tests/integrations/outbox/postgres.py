"""A PostgreSQL of its own for tests: on a free port, killed and started again as often as they like."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

import psycopg

from bench.ports import free_port
from tests.support.eventually import eventually

PROGRAMS = ("initdb", "postgres")
USER = "postgres"


def lacking() -> str | None:
    """Why PostgreSQL cannot run here."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} on the PATH"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv"
    return None


class Postgres:
    """`url` is SQLAlchemy's. The data survives `kill` and `start`."""

    def __init__(self) -> None:
        """Not in pytest's folders: each run of pytest takes the rights of other users there."""
        self._own = tempfile.TemporaryDirectory(prefix="firearrow-postgres-")
        self.folder = Path(self._own.name)
        self.port = free_port()
        self.url = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"
        self.conninfo = f"host=127.0.0.1 port={self.port} user={USER} dbname=postgres connect_timeout=5"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody", "nogroup")
            self._as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        options = [
            "-D",
            str(self.folder / "data"),
            "-U",
            USER,
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--no-locale",
        ]
        subprocess.run([*self._as_user, "initdb", *options], check=True, capture_output=True)
        self.start()

    def start(self) -> None:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",  # processes are killed here, not the machine
            "shared_buffers": "16MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*self._as_user, "postgres", "-D", str(self.folder / "data"), *options]
        log = self.folder / "log"

        def is_ready() -> bool:
            """A server that ended is started again: memory of the killed one was still in use."""
            if self._process is None or self._process.poll() is not None:
                with log.open("ab") as output:
                    self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/")
            with suppress(psycopg.OperationalError), psycopg.connect(self.conninfo):
                return True
            return False

        eventually(is_ready, 60, lambda: log.read_text()[-2000:])

    def kill(self) -> None:
        """SIGKILL to all processes."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGSTOP)  # it starts no other
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, children):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()
        eventually(
            lambda: not any(Path(f"/proc/{child}/exe").exists() for child in children), what="its processes"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._own.cleanup()
