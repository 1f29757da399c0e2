"""C programs of bench/native, compiled when their source is newer."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "bench"


def built(name: str) -> Path:
    """RuntimeError without a C compiler, or when it refuses."""
    program, source = CACHE / name, ROOT / "bench" / "native" / f"{name}.c"
    CACHE.mkdir(parents=True, exist_ok=True)
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        try:
            command = ["cc", "-O2", "-o", str(program), str(source)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{source.name} needs a C compiler: {error}") from None
    return program
