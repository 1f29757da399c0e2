"""The suite under AddressSanitizer and UBSan: native modules built in a separate folder, tested and fuzzed there.

`python -m tests.hostile.sanitize [--minutes M] [--folders wire store fastpath]`. Needs gcc with libasan and libubsan;
building takes minutes, the whole suite half an hour. Brokers, clients and Spark's workers that tests start are checked,
too: the sanitizers are loaded into each child process, a JVM among them, and the folder has a separate interpreter,
which finds the modules there however it is started. Exit code 1 if a sanitizer or a test found something. The build in
this tree is not changed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "build", "*.so", "*.egg-info", "__pycache__", "recorded"
)
OPTIONS = {
    # the interpreter keeps some memory to its end
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}
FOUND = ("AddressSanitizer", "runtime error:")
FOLDERS_LEFT_OUT = {"meta"}
"""They look at texts only."""
LEFT_OUT = (
    "tests/faults/test_memory.py::test_a_large_request_without_memory_for_it",
    "tests/bench/test_load.py::test_files_to_be_read_are_in_the_cache",
    "tests/integration/test_footprint.py::test_the_start_is_fast_and_small",
    "tests/spark/test_pack.py::test_it_is_small_and_holds_no_sources_of_compiled_modules",
)
"""The sanitizers ignore mlock, make modules and memory larger, and end a process that has no memory for them."""
TIMEOUT_S = 400
WORKERS = 3
COMMAND = "#!{python}\nfrom firearrow.client.cli.main import main\n\nmain()\n"
UNWATCHED = '#!/bin/sh\nunset LD_PRELOAD\nexec {program} "$@"\n'
HANGS = ("ps",)
"""Programs that Spark's scripts call, and that do not start with the sanitizers in them."""


def library(name: str) -> str:
    """Its path, according to the compiler."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def build(target: Path) -> None:
    shutil.copytree(ROOT, target, ignore=NOT_COPIED, symlinks=True, dirs_exist_ok=True)
    for generated in (target / "_native").rglob("*.c"):
        generated.unlink()
    (target / "tests" / "recorded").symlink_to(ROOT / "tests" / "recorded")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=target,
        env=os.environ | {"FIREARROW_SANITIZE": "1"},
        check=True,
    )


def make_interpreter(target: Path) -> None:
    """For it `firearrow` is the build in `target`, and the other packages are this interpreter's."""
    home = python(target).parents[1]
    venv.create(home, symlinks=True)
    packages = sysconfig.get_path("purelib", "venv", vars={"base": str(home)})
    found_in = target / "build" / "shape", sysconfig.get_path("purelib")
    Path(packages, "sanitized.pth").write_text("".join(f"{folder}\n" for folder in found_in))
    write_program(target, "firearrow", COMMAND.format(python=python(target)))
    for name in HANGS:
        if program := shutil.which(name):
            write_program(target, name, UNWATCHED.format(program=program))


def python(target: Path) -> Path:
    return target / ".venv" / "bin" / "python"


def write_program(target: Path, name: str, text: str) -> None:
    program = python(target).with_name(name)
    program.write_text(text)
    program.chmod(0o755)


def run(target: Path, *arguments: str) -> bool:
    """Whether nothing was found."""
    environment = os.environ | OPTIONS
    environment["LD_PRELOAD"] = f"{library('libasan.so')} {library('libubsan.so')}"
    environment["PATH"] = f"{python(target).parent}{os.pathsep}{environment['PATH']}"
    found = False
    with subprocess.Popen(
        [python(target), "-m", *arguments],
        cwd=target,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found |= any(word in line for word in FOUND)
            print(line, end="", flush=True)
    return process.returncode == 0 and not found


def suite(folders: list[str]) -> list[str]:
    """Arguments of python -m."""
    options = {
        "-o": f"timeout={TIMEOUT_S}",
        "-n": str(WORKERS),
        "--dist": "loadfile",
    }
    words = [word for option in options.items() for word in option]
    left_out = [word for test in LEFT_OUT for word in ("--deselect", test)]
    return [
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *words,
        *left_out,
        *(f"tests/{folder}" for folder in folders),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.hostile.sanitize")
    parser.add_argument("--minutes", type=float, default=5.0, help="of fuzzing, after the tests")
    folders = sorted({path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")} - FOLDERS_LEFT_OUT)
    parser.add_argument("--folders", nargs="*", default=folders, choices=folders, help="folders of tests/")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="firearrow-sanitize-") as folder:
        target = Path(folder)
        build(target)
        make_interpreter(target)
        sound = run(target, *suite(given.folders))
        sound &= run(target, "tests.hostile.fuzz", "--minutes", str(given.minutes))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
