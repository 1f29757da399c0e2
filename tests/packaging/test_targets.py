"""The C headers compile for every platform that has code of its own in them, with gcc and with the compiler of the
wheels (Zig's clang), whose baseline has no feature of the processor that a function does not name."""

import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEELS = runpy.run_path(str(ROOT / "packaging" / "wheels.py"))
TARGETS, TOOLS = WHEELS["TARGETS"], WHEELS["TOOLS"]
HEADERS = sorted(path.relative_to(ROOT / "_native") for path in (ROOT / "_native").rglob("*.h"))
WARNINGS = ("-Wall", "-Wno-attributes", "-Werror=implicit-function-declaration")
SYSTEM = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif
#define static static __attribute__((used))
"""
"""Included first, so that only our own functions are all compiled: what a function lacks shows when it is."""


def compile_for(folder: Path, *compiler: str) -> None:
    """All headers in one file, which is a second of work."""
    source = folder / "headers.c"
    source.write_text(SYSTEM + "".join(f'#include "{header}"\n' for header in HEADERS))
    done = subprocess.run(
        [
            *compiler,
            "-O1",
            "-c",
            *WARNINGS,
            f"-I{ROOT / '_native'}",
            str(source),
            "-o",
            str(folder / "headers.o"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_headers_compile_here(tmp_path: Path) -> None:
    compilers = [name for name in ("gcc", "clang", "cc") if shutil.which(name)]
    assert compilers, "the build needs a C compiler"
    for compiler in compilers:
        compile_for(tmp_path, compiler, "-march=native")
        compile_for(tmp_path, compiler)


@pytest.mark.parametrize("target", TARGETS)
def test_headers_compile_for_each_wheel(target: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="pip install ziglang")
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[target].zig)
    compile_for(tmp_path, *compiler, "-fno-sanitize=undefined")


def test_the_tests_have_the_compiler_of_the_wheels() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["test"]) & set(TOOLS) >= {tool for tool in TOOLS if tool.startswith("ziglang")}
