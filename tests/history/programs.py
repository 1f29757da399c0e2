"""The Java and Go programs of a history: compiled once per checkout, stored under `build/history`.

The official clients come from the interoperation tests' toolchain. `Unavailable` says in one line what is missing.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.interop.driver import java
from tests.interop.toolchain import Unavailable, java_class_path, missing

HERE = Path(__file__).parent
BUILT = HERE.parents[1] / "build" / "history"
BUILD_S = 300


@contextmanager
def _alone() -> Iterator[None]:
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(name: str, sources: list[Path], command: list[str], cwd: Path) -> None:
    """Run it unless it was run with these sources."""
    stamp = BUILT / f"{name}.sources"
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if done.returncode:
        raise Unavailable(f"{command[0]} failed with exit {done.returncode}: {done.stderr[-500:]}")
    stamp.write_text(wanted)


@cache
def java_command(home: Path) -> list[str]:
    """A JVM with our program; its class path begins with the classes of the interoperation driver."""
    class_path, sources = java_class_path("client5"), sorted((HERE / "java").glob("*.java"))
    classes = BUILT / "java"
    options = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", class_path, "-d", str(classes)]
    with _alone():
        _compile("java", sources, ["javac", *options, *map(str, sources)], HERE)
    quick = "-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.rebalance.minInterval=100"
    command = java("client5", "LongHistory", home, "-Xmx256m", *quick)
    at = command.index("-cp") + 1
    return [*command[:at], f"{classes}:{command[at]}", *command[at + 1 :]]


@cache
def go_program() -> Path:
    """The compiled Go program."""
    if lack := missing("go"):
        raise Unavailable(lack)
    program, folder = BUILT / "go-history", HERE / "go"
    sources = [*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum"]
    with _alone():
        _compile("go", sources, ["go", "build", "-mod=readonly", "-o", str(program), "."], folder)
    return program
