"""The commands `taskiq worker` and `dramatiq` in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.integrations.programs import record

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "tests.integrations.programs"
COMMANDS = {
    "taskiq": (
        "taskiq",
        "worker",
        f"{PROGRAMS}.taskiq_program:broker",
        "--workers",
        "2",
        "--max-async-tasks",
        "2",
    ),
    "dramatiq": ("dramatiq", f"{PROGRAMS}.dramatiq_program", "--processes", "2", "--threads", "2"),
}
FRAMEWORKS = tuple(COMMANDS)
STOP_S = 30


class Workers:
    """`folder` keeps what the tasks record, and the output of the command."""

    def __init__(self, framework: str, name_server: str, queue: str, folder: Path, **client: object) -> None:
        self.framework = framework
        self.record = folder / "record"
        self.output = folder / "output"
        self.environment = os.environ | {
            "NAMESRV_ADDR": name_server,
            record.QUEUE: queue,
            record.RECORD: str(self.record),
            record.CLIENT: json.dumps(client),
            "PYTHONPATH": str(ROOT),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *COMMANDS[self.framework]],
                cwd=ROOT,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        return self

    def send(self, count: int, seconds: float) -> None:
        """From a process of its own, which sends `count` tasks that take `seconds` each."""
        program = f"{PROGRAMS}.{self.framework}_program"
        done = subprocess.run(
            [sys.executable, "-m", program, str(count), str(seconds)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """SIGTERM, and wait for the end of all processes."""
        process, self._process = self._process, None
        if process is not None:
            children = self._children(process.pid)
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            finally:
                for pid in (process.pid, *children):
                    _end(pid)

    def kill(self, pid: int) -> None:
        """SIGKILL to one of its processes. taskiq starts another one; dramatiq stops the others, so it is
        started again as by a supervisor."""
        os.kill(pid, signal.SIGKILL)
        if self.framework == "dramatiq":
            assert self._process is not None
            self._process.wait(STOP_S)
            self.start()

    def steps(self, what: str = "") -> list[record.Step]:
        return record.steps(self.record, what)

    def text(self) -> str:
        return self.output.read_text()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @staticmethod
    def _children(pid: int) -> list[int]:
        try:
            return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except FileNotFoundError:
            return []


def _end(pid: int) -> None:
    """Wait for a process that is not ours to wait for: taskiq ends before its workers do."""
    for _ in range(STOP_S * 20):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        signal.sigtimedwait([], 0.05)
    os.kill(pid, signal.SIGKILL)
