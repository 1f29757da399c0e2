"""Compiles the client's modules for macOS and Windows, without linking: `python packaging/portable.py`.

A check on Linux, before the workflow builds and tests there. It takes the C files of a development build, this
Python's headers, and Zig's compiler, which has the headers of both systems. Of pyconfig.h only what extension modules
look at is stated here for Windows; macOS has what Linux has, but for <crypt.h>.
"""

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from wheels import ROOT, WORK, environment_of

WINDOWS = """
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define NT_THREADS
#define Py_ENABLE_SHARED 1
#define HAVE_DECLSPEC_DLL
#define HAVE_DYNAMIC_LOADING
#define HAVE_IO_H 1
#define HAVE_DIRECT_H 1
#define HAVE_ROUND 1
#define HAVE_STDDEF_H 1
#define HAVE_WCHAR_H 1
#define WITH_PYMALLOC 1
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_OFF_T 4
#define SIZEOF_FPOS_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define ALIGNOF_LONG 4
#define COMPILER "[clang]"
#include <io.h>
#include <stdio.h>
"""
TARGETS = {"x86_64-windows-gnu": WINDOWS, "aarch64-macos": None}


def modules() -> list[Path]:
    """The C files of the client's modules, and of what Cython shares. SystemExit: one is not there."""
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["firearrow"]["client-modules"]
    found = [ROOT / "_native" / f"{name}.c" for name in [*names, "base/cython_shared"]]
    missing = [path for path in found if not path.exists()]
    if missing:
        raise SystemExit(f"{missing[0]} is not there: make build")
    return found


def headers(target: str, config: str | None) -> Path:
    """Python's headers for the target."""
    folder = WORK / "portable" / target
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sysconfig.get_path("include"), folder)
    path = folder / "pyconfig.h"
    path.write_text(config or path.read_text().replace("#define HAVE_CRYPT_H 1", ""))
    return folder


def main() -> None:
    zig = [str(environment_of(sys.executable)), "-m", "ziglang", "cc"]
    failed = 0
    for target, config in TARGETS.items():
        include = headers(target, config)
        for source in modules():
            options = ["-c", "-O0", "-Wno-everything", f"-I{include}", f"-I{ROOT / '_native'}"]
            command = [*zig, "-target", target, *options, "-o", str(include / "module.o"), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                failed += 1
                print(f"{target}: {source.relative_to(ROOT)}\n{done.stderr[:2000]}", file=sys.stderr)
        print(f"{target}: {len(modules())} modules", flush=True)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
