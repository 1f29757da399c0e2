"""C programs of bench/native, compiled when their source or a header is newer."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "bench"
NATIVE = ROOT / "bench" / "native"
INCLUDE = ROOT / "_native"
CRC = INCLUDE / "base" / "crc32.h"


def built(name: str) -> Path:
    """The path of the program, compiled if necessary. RuntimeError: there is no C compiler, or it failed."""
    program, source = CACHE / name, NATIVE / f"{name}.c"
    CACHE.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for path in (source, CRC, *NATIVE.glob("*.h")))
    if not program.exists() or program.stat().st_mtime < newest:
        try:
            command = ["cc", "-O2", f"-I{INCLUDE}", "-o", str(program), str(source)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{source.name} needs a C compiler: {error}") from None
    return program
