"""C programs of bench/native, compiled when their source or a header is newer."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "bench"
NATIVE = ROOT / "bench" / "native"
INCLUDE = ROOT / "_native"
CRC = (INCLUDE / "base" / "crc32.h", INCLUDE / "base" / "crc_slices.h")
LIBRARIES = {"loadgen_tls": ("-lssl", "-lcrypto"), "grpcgen": ("-l:libnghttp2.so.14",)}


def built(name: str) -> Path:
    """The path of the program, compiled if necessary. RuntimeError: there is no C compiler, or it failed, as
    without the headers of OpenSSL."""
    program, source = CACHE / name, NATIVE / f"{name}.c"
    CACHE.mkdir(parents=True, exist_ok=True)
    sources = [source, *CRC, *NATIVE.glob("*.h"), *([NATIVE / "loadgen.c"] if name == "loadgen_tls" else [])]
    newest = max(path.stat().st_mtime for path in sources)
    if not program.exists() or program.stat().st_mtime < newest:
        try:
            command = ["cc", "-O2", f"-I{INCLUDE}", "-o", str(program), str(source), *LIBRARIES.get(name, ())]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"{source.name} needs a C compiler: {error}") from None
    return program
