"""The native rooms under AddressSanitizer and UBSan: built in a folder of their own, tested and fuzzed there.

`python -m tests.bounds.sanitize [--minutes M] [--rooms wire store path]`. Needs gcc with libasan and libubsan; building
takes minutes. Exit code 1 when a sanitizer or a test found something. This tree's own build is left alone.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("_native", "broker", "client", "spark_tools", "tests", "setup.py", "pyproject.toml", "README.md")
BUILT = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "recorded", "node_modules")
OPTIONS = {
    # the interpreter keeps what it has to its end
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=16",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}
FOUND = ("AddressSanitizer", "runtime error:")
LEFT_OUT = ("test_bench", "test_report", "process")
"""They measure, draw what was measured, or start brokers."""


def library(name: str) -> str:
    """Where the compiler has it."""
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def build(place: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=BUILT, symlinks=True)
        else:
            shutil.copy2(source, place / name)
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
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, flush=True)
    return done.returncode == 0 and not any(word in done.stdout for word in FOUND)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bounds.sanitize")
    parser.add_argument("--minutes", type=float, default=5.0, help="of fuzzing, behind the tests")
    parser.add_argument("--rooms", nargs="*", default=["wire", "store", "path"], help="folders of tests/")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="firearrow-sanitize-") as folder:
        place = Path(folder)
        build(place)
        files = [
            str(path.relative_to(place))
            for room in given.rooms
            for path in sorted((place / "tests" / room).glob("test_*.py"))
            if not any(word in path.name for word in LEFT_OUT)
        ]
        limits = [f"tests/bounds/test_limits_{room}.py" for room in ("wire", "messages")]
        sound = run(place, "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", *files, *limits)
        sound &= run(place, "tests.bounds.fuzz", "--minutes", str(given.minutes))
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
