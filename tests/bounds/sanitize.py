"""The suite under AddressSanitizer and UBSan: native modules built in a folder of their own, tested and fuzzed there.

`python -m tests.bounds.sanitize [--minutes M] [--rooms wire store path]`. Needs gcc with libasan and libubsan; building
takes minutes, the whole suite a quarter of an hour. Brokers that tests start are watched, too; tests that need a JVM or
Go are left out (native_only.py). Exit code 1 when a sanitizer or a test found something. This tree's own build is left
alone.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "build", "*.so", "*.egg-info", "__pycache__", "recorded"
)
OPTIONS = {
    # the interpreter keeps what it has to its end
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}
FOUND = ("AddressSanitizer", "runtime error:")
ROOMS_LEFT_OUT = {"interop", "meta"}
"""They need a JVM or Go, or look at texts alone."""
LEFT_OUT = (
    "tests/faults/test_memory.py::test_a_large_request_without_memory_for_it",
    "tests/path/test_bench.py::test_files_to_be_read_are_in_the_cache",
    "tests/process/test_footprint.py::test_ready_soon_and_small",
    "tests/spark/test_pack.py::test_it_is_small_and_holds_no_sources_of_compiled_modules",
)
"""The sanitizers make nothing of mlock, modules and memory large, and end a process that has no memory for them."""
TIMEOUT_S = 400
WORKERS = 2


def library(name: str) -> str:
    """Where the compiler has it."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def build(place: Path) -> None:
    shutil.copytree(ROOT, place, ignore=NOT_COPIED, symlinks=True, dirs_exist_ok=True)
    for generated in (place / "_native").rglob("*.c"):
        generated.unlink()
    (place / "tests" / "recorded").symlink_to(ROOT / "tests" / "recorded")
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=place, env=os.environ | {"FIREARROW_SANITIZE": "1"}, check=True,
    )  # fmt: skip


def run(place: Path, *arguments: str) -> bool:
    """Whether nothing was found."""
    environment = os.environ | OPTIONS
    environment["LD_PRELOAD"] = f"{library('libasan.so')} {library('libubsan.so')}"
    environment["PYTHONPATH"] = str(place / "build" / "shape")
    found = False
    with subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            found |= any(word in line for word in FOUND)
            print(line, end="", flush=True)
    return process.returncode == 0 and not found


def suite(rooms: list[str]) -> list[str]:
    """Arguments of python -m."""
    options = {
        "-p": "tests.bounds.native_only",
        "-o": f"timeout={TIMEOUT_S}",
        "-n": str(WORKERS),
        "--dist": "loadfile",
    }
    words = [word for option in options.items() for word in option]
    left_out = [word for test in LEFT_OUT for word in ("--deselect", test)]
    return ["pytest", "-q", "-p", "no:cacheprovider", *words, *left_out, *(f"tests/{room}" for room in rooms)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bounds.sanitize")
    parser.add_argument("--minutes", type=float, default=5.0, help="of fuzzing, behind the tests")
    rooms = sorted({path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")} - ROOMS_LEFT_OUT)
    parser.add_argument("--rooms", nargs="*", default=rooms, choices=rooms, help="folders of tests/")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="firearrow-sanitize-") as folder:
        place = Path(folder)
        build(place)
        sound = run(place, *suite(given.rooms))
        sound &= run(place, "tests.bounds.fuzz", "--minutes", str(given.minutes))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
