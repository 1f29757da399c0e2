"""Profiles the broker under the load of rows: `python -m bench.profile ROW ...` (name prefixes; none: all).

perf samples only our server; without perf, /proc distinguishes kernel and user time. Each row appends a line
to bench/results.ndjson, which `bench.report` shows.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean

from bench import results
from bench.backing import Reserve
from bench.compare import rows
from bench.peers import started
from bench.programs import ROOT
from bench.rows import Row, server_of
from bench.servers import Server

HERTZ = 997
TOP = 12
RESERVED_BYTES = 3 << 30
"""The new memory that a sample of the usual length may need, mainly for the page cache of its log."""
TICKS_MIN = 30
"""Fewer clock ticks may have missed the kernel, or all else."""
SECONDS = 3.0
LINE = re.compile(r"^\s*[0-9a-f]+ (?P<symbol>.+) \((?P<object>[^()]*)\)\s*$")
OURS = "our modules"
Sampling = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares add up to 1. `top`: group, module and symbol → share, the largest first."""

    row: str
    cpu_us: float
    samples: int
    groups: dict[str, float]
    modules: dict[str, float] = field(default_factory=dict)
    top: list[tuple[str, float]] = field(default_factory=list)


def group_of(path: str) -> tuple[str, str]:
    """The group and module of an object file that perf reports."""
    if path.startswith("[") or path.endswith((".ko", "vmlinux")):
        return ("kernel", "kernel") if "vdso" not in path else ("libc and others", "vdso")
    file = Path(path)
    if (ROOT / "_native") in file.parents:
        return OURS, f"{file.parent.name}/{file.name.split('.')[0]}"
    if "python" in file.name and ".cpython-" not in file.name:
        return "Python", "python"
    if "uvloop" in file.parts:
        return "uvloop", "uvloop"
    return "libc and others", file.name.split(".")[0]


def profile_of(row: str, cpu_us: float, script: str) -> Profile:
    """The profile in the output of `perf script -F ip,sym,dso`."""
    groups: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    top: Counter[str] = Counter()
    for line in script.splitlines():
        match = LINE.match(line)
        if match is not None:
            group, module = group_of(match["object"])
            groups[group] += 1
            modules[module] += 1
            top[f"{module}: {readable(match['symbol'])}"] += 1
    whole = groups.total()
    if not whole:
        raise RuntimeError("perf saw nothing of the server")

    def shares(of: Counter[str], most: int | None = None) -> list[tuple[str, float]]:
        return [(name, round(count / whole, 4)) for name, count in of.most_common(most)]

    return Profile(row, cpu_us, whole, dict(shares(groups)), dict(shares(modules, TOP)), shares(top, TOP))


def readable(symbol: str) -> str:
    """A symbol without Cython's prefixes."""
    symbol = re.sub(r"\+0x[0-9a-f]+$", "", symbol)
    return re.sub(r"^__pyx_(?:f|pf|pw|fuse_\d+)_\d+firearrow_(?:\d+[a-z_]+?_)*\d*", "", symbol)


@contextmanager
def sampler(server: Server, file: Path) -> Iterator[Sampling]:
    """A context manager within which perf samples the server."""
    pids = ",".join(str(process.pid) for process in server.processes)
    orders, order = os.pipe()
    answer, answers = os.pipe()
    command = ["perf", "record", "-q", "-F", str(HERTZ), "-e", "cpu-clock", "-p", pids, "-o", str(file)]
    command += ["-D", "-1", "--control", f"fd:{orders},{answers}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(orders, answers)
    ) as perf:
        os.close(orders)
        os.close(answers)

        def say(word: bytes) -> None:
            os.write(order, word)
            if not os.read(answer, 16).startswith(b"ack"):
                output = perf.communicate(timeout=30)[1].decode().strip()
                raise RuntimeError(f"perf does not sample: it ended with {perf.returncode} {output}")

        @contextmanager
        def sampling() -> Iterator[None]:
            say(b"enable\n")
            yield
            say(b"disable\n")

        try:
            yield sampling
        finally:
            perf.send_signal(signal.SIGINT)
            perf.communicate(timeout=30)
            os.close(order)
            os.close(answer)


def times(server: Server) -> tuple[int, int]:
    """User and system time of the server's processes in ticks."""
    found = [
        Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        for process in server.processes
    ]
    return sum(int(user) for user, _ in found), sum(int(system) for _, system in found)


def loaded(row: Row, server: Server, seconds: float, part: float, sampling: Sampling = nullcontext) -> float:
    """Repeat the row's load, with reserved memory as in a comparison; the server's CPU us per message."""
    spent_s, messages, used = 0.0, 0, 0.0
    with closing(Reserve(int(RESERVED_BYTES * part))) as reserve:
        while spent_s < seconds:
            reserve.fill()
            with reserve, sampling():
                began, before = time.monotonic(), server.cpu_s()
                done = row.work[row.ours](server, part)
                used += server.cpu_s() - before
                spent_s += time.monotonic() - began
            messages += done.messages + done.besides
    return used / messages * 1e6


def has_perf() -> bool:
    """Whether perf is installed and may sample."""
    if shutil.which("perf") is None:
        return False
    with tempfile.NamedTemporaryFile() as file:
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-o", file.name, "--", "true"]
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


def coarse(row: Row, server: Server, seconds: float, part: float) -> Profile:
    """A profile of only kernel and user time, by the clock ticks in /proc."""
    before, found, user, system = times(server), [], 0, 0
    while user + system < TICKS_MIN:
        found.append(loaded(row, server, seconds, part))
        user, system = (now - then for now, then in zip(times(server), before, strict=True))
    whole = user + system
    return Profile(row.name, fmean(found), whole, {"kernel": system / whole, "not kernel": user / whole})


def profiled(row: Row, seconds: float, part: float, folder: Path) -> Profile:
    name = server_of(row.ours)
    with ExitStack() as stack:
        server = started(stack, {name}, folder, part)[name]
        stack.enter_context(server.awake())
        if row.prepare is not None:
            row.prepare(server, part)
        stack.enter_context(row.entered(row.ours, server, part))
        if not has_perf():
            return coarse(row, server, seconds, part)
        file = folder / "perf.data"
        with sampler(server, file) as sampling:
            cpu_us = loaded(row, server, seconds, part, sampling)
        command = ["perf", "script", "-i", str(file), "-F", "ip,sym,dso"]
        script = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        return profile_of(row.name, cpu_us, script)


def verdict(profile: Profile) -> str:
    """Where the time goes, and what would remain if our code cost nothing."""
    parts = sorted(profile.groups.items(), key=lambda item: -item[1])
    where = ", ".join(f"{name} {share:.0%}" for name, share in parts if share >= 0.01)
    kernel = profile.groups.get("kernel", 0)
    rest_us = profile.cpu_us * kernel
    first = profile.top[0][0].partition(": ")[2] if profile.top else parts[0][0]
    limit = (
        "the kernel is the limit, so only fewer or cheaper system calls help"
        if kernel >= 0.6
        else "the work above the kernel is still the limit"
    )
    return (
        f"{profile.cpu_us:.2f} us per message: {where}; top symbol {first}. Next limit: {limit}; "
        f"if all else were free, it would be {rest_us:.2f} us."
    )


def main(arguments: list[str] | None = None) -> list[Profile]:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("rows", nargs="*", default=[], help="prefixes of row names; none: all rows")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="minimum duration of the load for each row"
    )
    parser.add_argument(
        "--part", type=float, default=0.5, help="fraction of the usual number of requests, repeated"
    )
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.ndjson")
    given = parser.parse_args(arguments)
    if not 0 < given.part <= 1 or not 0 < given.seconds <= 600:
        parser.error("--part must be greater than 0 and at most 1, --seconds greater than 0 and at most 600")
    found = []
    for row in rows():
        if row.name.startswith(tuple(given.rows) or ("",)):
            with tempfile.TemporaryDirectory(prefix="firearrow-profile-") as folder:
                profile = profiled(row, given.seconds, given.part, Path(folder))
            print(f"{row.name}: {verdict(profile)}", flush=True)
            found.append(profile)
            if not given.no_record:
                results.append("profile", profile=asdict(profile))
    return found


if __name__ == "__main__":
    main()
