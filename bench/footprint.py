"""Measures what FireArrow costs before any load: `python -m bench.footprint [--rounds N] [--build] [--no-record]`.

The time until a broker with an empty store is ready, those of `firearrow --version` and `firearrow topic list`, the
memory of the idle broker, and the sizes of the packages. The program is measured as users install it: copied into a
virtual environment of its own, because an editable install imports a finder first. `--build` also builds a wheel,
which takes minutes.
"""

import argparse
import compileall
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import results
from bench.programs import ROOT

FOLDERS = ("_native", "broker", "client", "spark_tools")
NOT_INSTALLED = shutil.ignore_patterns("*.c", "*.pyx", "__pycache__")
NOT_IN_A_CLONE = shutil.ignore_patterns("*.c", "*.so", "__pycache__")
SCRIPT = "import sys\nfrom firearrow.client.cli.main import main\nsys.exit(main())\n"
MB = 1e6


class Goal(NamedTuple):
    """`limit`: the most that the figure should be; None: there is no goal."""

    text: str
    unit: str
    limit: float | None = None


FIGURES = {
    "ready_s": Goal("process start to ready line, empty store, median", "s", 0.25),
    "ready_min_s": Goal("the same, fastest", "s"),
    "version_s": Goal("`firearrow --version`, median", "s", 0.06),
    "verb_s": Goal("`firearrow topic list`, median", "s", 0.15),
    "anonymous_mb": Goal("anonymous memory of an idle broker", "MB", 28),
    "sdist_mb": Goal("source distribution", "MB"),
    "wheel_mb": Goal("wheel, packed", "MB"),
    "installed_mb": Goal("wheel, installed", "MB"),
    "build_s": Goal("first build of the wheel", "s"),
}


@contextmanager
def installed() -> Iterator[Path]:
    """The command `firearrow` in a new environment, with the built modules of this clone and the other packages of
    the current environment."""
    with tempfile.TemporaryDirectory(prefix="firearrow-footprint-") as folder:
        root = Path(folder) / "environment"
        venv.create(root, symlinks=True)
        paths = {"base": str(root), "platbase": str(root)}
        target = Path(sysconfig.get_path("purelib", vars=paths))
        for each in Path(sysconfig.get_path("purelib")).iterdir():
            if each.suffix != ".pth" and each.name != "firearrow":
                (target / each.name).symlink_to(each)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, target / "firearrow" / name, ignore=NOT_INSTALLED)
        compileall.compile_dir(target / "firearrow", quiet=2)
        command = Path(sysconfig.get_path("scripts", vars=paths)) / "firearrow"
        command.write_text(f"#!{command.with_name('python')}\n{SCRIPT}")
        command.chmod(0o755)
        yield command


def start(command: Path, store: Path) -> tuple[float, float, float]:
    """Seconds until a broker is ready, its anonymous memory then, in MB, and the seconds of `firearrow topic list`."""
    ports = ["--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"]
    started = time.monotonic()
    process = subprocess.Popen(
        [command, "broker", "--store", store, *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready_s = time.monotonic() - started
        if not line.startswith("firearrow ready"):
            raise RuntimeError(f"the broker did not start: {process.communicate()[1]}")
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        name_server = re.search(r"name server ([\d.:]+)", line)
        assert found is not None
        assert name_server is not None
        verb_s = seconds_of(command, "topic", "list", "--namesrv", name_server[1])
        return ready_s, int(found[1]) * 1024 / MB, verb_s
    finally:
        process.terminate()
        process.communicate()


def seconds_of(command: Path, *words: str) -> float:
    started = time.monotonic()
    subprocess.run([command, *words], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def running(rounds: int) -> dict[str, float]:
    """The figures of starts. The first one, which reads the files into the page cache, does not count."""
    ready, memory, version, verb = [], [], [], []
    with installed() as command:
        for number in range(rounds + 1):
            seconds, mb, verb_s = start(command, command.parent / f"store{number}")
            ready.append(seconds)
            memory.append(mb)
            verb.append(verb_s)
            version.append(seconds_of(command, "--version"))
    return {
        "ready_s": statistics.median(ready[1:]),
        "ready_min_s": min(ready[1:]),
        "version_s": statistics.median(version[1:]),
        "verb_s": statistics.median(verb[1:]),
        "anonymous_mb": statistics.median(memory[1:]),
    }


def packages(*, build: bool) -> dict[str, float]:
    """Sizes of the source distribution and, with `build`, of the wheel, and the time that this takes in a fresh
    clone."""
    with tempfile.TemporaryDirectory(prefix="firearrow-footprint-") as folder:
        clone = Path(folder) / "clone"
        for name in (*FOLDERS, "packaging"):
            shutil.copytree(ROOT / name, clone / name, ignore=NOT_IN_A_CLONE)
        shutil.copytree(ROOT / "docs", clone / "docs")
        for path in ROOT.iterdir():
            if path.is_file() and path.suffix in ("", ".py", ".toml", ".md", ".in"):
                shutil.copy(path, clone)
        figures = {"sdist_mb": _built(clone, "sdist").stat().st_size / MB}
        if build:
            started = time.monotonic()
            wheel = _built(clone, "wheel")
            figures["build_s"] = time.monotonic() - started
            figures["wheel_mb"] = wheel.stat().st_size / MB
            with zipfile.ZipFile(wheel) as archive:
                figures["installed_mb"] = sum(each.file_size for each in archive.infolist()) / MB
        return figures


def _built(clone: Path, what: str) -> Path:
    """Made by the build backend, as pip does it. RuntimeError with the end of its output."""
    program = f"from setuptools import build_meta; print(build_meta.build_{what}({str(clone.parent)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=clone, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the {what} was not built: {done.stderr[-1000:]}")
    return clone.parent / done.stdout.splitlines()[-1]


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(prog="python -m bench.footprint", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="starts that are measured")
    parser.add_argument("--build", action="store_true", help="build a wheel, too, which takes minutes")
    parser.add_argument("--no-record", action="store_true", help="do not add the figures to the results")
    given = parser.parse_args(arguments)
    measured = running(given.rounds) | packages(build=given.build)
    figures = {key: results.rounded(measured[key]) for key in FIGURES if key in measured}
    for key, value in figures.items():
        print(f"{FIGURES[key].text}: {value:g} {FIGURES[key].unit}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    if not given.no_record:
        results.append("footprint", rounds=given.rounds, footprint=figures)
    return figures


if __name__ == "__main__":
    main()
