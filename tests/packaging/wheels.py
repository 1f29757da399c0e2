"""The wheels that `make wheels` made, tried: `python -m tests.packaging.wheels [--musl PYTHON]`.

Each holds no C file and no debug information, and is small. Those for a Python of this machine are installed in a fresh
environment; those for ARM64 run by qemu with Debian's Python of that machine, those for musl with a Python that is
given: one of python-build-standalone, for example, and musl's loader (Debian's package musl). All start a broker, and
the README's Python program sends it a message and receives it. ARM64 needs Debian's qemu-user-static and mmdebstrap.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from firearrow.client.local_broker import READY
from tests.readme_examples import examples, with_name_server

ROOT = Path(__file__).resolve().parents[2]
PACKED_MB, INSTALLED_MB = 6, 16
DEBIAN = {"11": "bookworm", "13": "trixie"}
"""Minor version of Python 3 → the release of Debian that has it."""
START_S = 60


def run(*words: str | Path, **environment: str) -> str:
    """Its output. Without PYTHONPATH, where pip would find this tree installed. SystemExit: it failed."""
    command = [str(word) for word in words]
    environment = os.environ | {"PYTHONPATH": ""} | environment
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def check_content(wheel: Path) -> str:
    """Its sizes as text. AssertionError: it is too large, or holds what it must not."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        installed = sum(member.file_size for member in archive.infolist())
        for name in names:
            if name.endswith(".so"):
                assert b".debug_info" not in archive.read(name), f"{name} has debug information"
    assert not [name for name in names if name.endswith((".c", ".pyx"))], wheel
    assert len([name for name in names if name.endswith(".so")]) > 50, wheel
    packed = wheel.stat().st_size
    assert packed <= PACKED_MB * 1e6, (wheel, packed)
    assert installed <= INSTALLED_MB * 1e6, (wheel, installed)
    return f"{packed / 1e6:.1f} MB packed, {installed / 1e6:.1f} MB installed"


def check_broker(command: list[str], client: str | Path, folder: Path, environment: dict[str, str]) -> None:
    """Start a broker by this command; `client` is the Python that runs the README's program."""
    store = folder / "store"
    words = [*command, "--store", str(store), "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"]
    words += ["--set", "autoCreateTopicEnable=true"]
    process = subprocess.Popen(
        words, env=os.environ | environment, stdout=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        ready = READY.match(line)
        assert ready is not None, f"{' '.join(words)}: {line!r}"
        example = examples("Python", "python")[0]
        printed = run(client, "-c", with_name_server(example, int(ready["ns_port"])))
        assert printed.startswith("SEND_OK 0\norders new "), printed
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(START_S) == 0


def try_here(wheel: Path, python: str, folder: Path) -> None:
    """In a fresh environment, as `pip install` leaves it: here by the pip of this one, and nothing is compiled that
    does not run."""
    run(python, "-m", "venv", "--without-pip", folder / "venv")
    program = folder / "venv" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", program / "python")
    run(*pip, "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel)
    check_broker([str(program / "firearrow"), "broker"], program / "python", folder, {"PYTHONPATH": ""})


def try_arm64(wheel: Path, minor: str, folder: Path) -> None:
    """By qemu, with Debian's Python 3.`minor` of that machine, which is unpacked and not installed."""
    for tool in ("qemu-aarch64-static", "mmdebstrap"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{wheel.name} needs {tool}: apt-get install qemu-user-static mmdebstrap")
    system, packages = folder / "system", folder / "packages"
    options = ("--architectures=arm64", "--variant=extract", f"--include=python3.{minor}")
    run("mmdebstrap", *options, DEBIAN[minor], system)
    unpack(wheel, minor, [f"manylinux{glibc}_aarch64" for glibc in ("_2_28", "_2_17", "2014")], packages)
    program = ["qemu-aarch64-static", "-L", str(system), str(system / f"usr/bin/python3.{minor}")]
    check_broker(
        [*program, "-m", "firearrow.broker"],
        sys.executable,
        folder,
        {"PYTHONPATH": str(packages), "PYTHONHOME": str(system / "usr")},
    )


def try_musl(wheel: Path, minor: str, python: str, folder: Path) -> None:
    """With a Python for musl, which is not changed."""
    unpack(wheel, minor, ["musllinux_1_2_x86_64", "musllinux_1_1_x86_64"], folder / "packages")
    environment = {"PYTHONPATH": str(folder / "packages")}
    check_broker([python, "-m", "firearrow.broker"], sys.executable, folder, environment)


def unpack(wheel: Path, minor: str, platforms: list[str], packages: Path) -> None:
    """The wheel and what it needs on another platform, into the folder `packages`."""
    version = ("--implementation=cp", f"--python-version=3.{minor}")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, *version),
        *(*(f"--platform={platform}" for platform in platforms), "--only-binary=:all:", wheel),
    )


def is_for_musl(python: str, minor: str) -> bool:
    """Whether this is Python 3.`minor` for musl. SystemExit: it does not run."""
    program = "import sys, _imp; print(sys.version_info[1], _imp.extension_suffixes()[0])"
    version, suffix = run(python, "-c", program, PYTHONPATH="").split()
    return version == minor and "musl" in suffix


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.wheels")
    parser.add_argument("--musl", metavar="PYTHON", help="a Python for musl, which tries the wheels for musl")
    musl = parser.parse_args().musl
    wheels = sorted((ROOT / "dist").glob("firearrow-*.whl"))
    if not wheels:
        raise SystemExit("there is no wheel in dist/: make wheels")
    for wheel in wheels:
        parts = re.fullmatch(r"firearrow-[\d.]+-cp3(\d+)-cp3\d+-([\w.]+)\.whl", wheel.name)
        assert parts is not None, wheel
        minor, platform = parts.groups()
        text = check_content(wheel)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            python = shutil.which(f"python3.{minor}")
            if platform.startswith("manylinux") and platform.endswith("x86_64") and python is not None:
                try_here(wheel, python, folder)
                text += ", a broker started in a fresh environment"
            elif platform.endswith("aarch64") and minor in DEBIAN:
                try_arm64(wheel, minor, folder)
                text += ", a broker started on ARM64"
            elif platform.startswith("musllinux") and musl is not None and is_for_musl(musl, minor):
                try_musl(wheel, minor, musl, folder)
                text += ", a broker started with musl"
        print(f"{wheel.name}: {text}", flush=True)


if __name__ == "__main__":
    main()
