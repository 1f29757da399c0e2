"""The programs of other languages that the tests run: fetched and compiled once per checkout, into `build/interop`.

`Unavailable` says in one line what is missing. A file lock keeps two test runs from building at once.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
JAVA = HERE / "java"
NEIGHBOURS = HERE.parent / "neighbours"
GO = HERE / "go"
CPP = HERE / "cpp"
RUST = HERE / "rust"
GO5 = HERE / "go5"
NODE5 = HERE / "node5"
RUST5 = HERE / "rust5"
BUILT = HERE.parents[1] / "build" / "interop"
FETCH_S = 540
CANNOT_FETCH = re.compile(r"Could not (?:transfer|resolve|find)|Non-resolvable|Unknown host")
"""What Maven prints if it has to fetch something and cannot."""
CPP_PACKAGE = "rocketmq==0.4.4"
"""Apache's C++ client 1.2 with a binding for Python; its wheel carries the library for x86-64 only."""
PYTHON_PACKAGE = "rocketmq-python-client==5.1.2"
PROGRAMS = {
    "client4": ("client4", "driver", "ending"),
    "client5": ("broker", "client5", "controller", "driver", "ending", "rules"),
    "broker4": ("broker", "ending"),
    "spring": ("spring",),
    "grpc5": ("grpc5",),
    "camel": ("camel",),
    "canal": ("canal",),
    "logback": ("logback",),
    "stream": ("stream",),
}
"""The folders of their sources, by that of the pom.xml."""


class Unavailable(Exception):
    """The interoperation tests cannot run here; the text is one line with the reason."""


def missing(*tools: str) -> str | None:
    """What is missing on this machine, or None."""
    lacking = next((tool for tool in tools if shutil.which(tool) is None), None)
    needs = {"go": "Go", "cargo": "Rust", "node": "Node.js with npm"}.get(tools[0], "Java 17 with Maven")
    return None if lacking is None else f"needs {needs}, and there is no {lacking}"


def need(prepare: Callable[[], object]) -> None:
    """Run `prepare`; if something is missing, skip, or fail if it is required."""
    try:
        prepare()
    except Unavailable as lack:
        if os.environ.get("FIREARROW_INTEROP") == "required":
            pytest.fail(f"interoperation: {lack}", pytrace=False)
        pytest.skip(f"interoperation: {lack}")


@contextmanager
def _alone() -> Iterator[None]:
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(what: str, command: list[str], cwd: Path = HERE, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=FETCH_S,
        check=False,
    )
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in lines if "ERROR" in line), lines[-1] if lines else "no output")
        raise Unavailable(f"{what} failed with exit {done.returncode}: {reason[:300]}")


def _digest(paths: list[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _java_folder(name: str) -> Path:
    return next(base / name for base in (JAVA, NEIGHBOURS) if (base / name).is_dir())


@cache
def java_class_path(version: str) -> str:
    """The class path of one of `PROGRAMS`, with our sources compiled into its first archive."""
    if lack := missing("java", "javac", "mvn"):
        raise Unavailable(lack)
    pom = _java_folder(version) / "pom.xml"
    sources = sorted(file for folder in PROGRAMS[version] for file in _java_folder(folder).glob("*.java"))
    with _alone():
        jars, classes = BUILT / f"{version}.classpath", BUILT / version
        stamp, wanted = classes / ".sources", _digest([pom, *sources])
        ours = BUILT / f"{version}.jar"
        if not _whole(jars) or not ours.exists() or not stamp.exists() or stamp.read_text() != wanted:
            jars.unlink(missing_ok=True)
            shutil.rmtree(classes, ignore_errors=True)
            classes.mkdir()
            command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath"]
            _run("Maven", [*command, f"-Dmdep.outputFile={jars}"])
            options = ["-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp", jars.read_text()]
            _run("javac", ["javac", *options, "-d", str(classes), *map(str, sources)])
            # class data can be shared if no class comes from a folder
            _run("jar", ["jar", "cf", str(ours), "-C", str(classes), "."])
            class_data(version).unlink(missing_ok=True)
            stamp.write_text(wanted)
        return f"{ours}:{jars.read_text()}"


def class_data(version: str) -> Path:
    """JVMs with this class path share the loaded classes that the first one left here (`ArchiveClassesAtExit`): they
    start in two thirds of the CPU time."""
    return BUILT / f"{version}.jsa"


def _whole(jars: Path) -> bool:
    return jars.exists() and all(Path(jar).exists() for jar in jars.read_text().split(":"))


@cache
def go_driver() -> Path:
    """The compiled Go driver."""
    return _go_program("go-driver", GO)


@cache
def go5() -> Path:
    """The compiled program with Apache's Go client of 5.x."""
    return _go_program("go5", GO5)


def _go_program(name: str, folder: Path) -> Path:
    if lack := missing("go"):
        raise Unavailable(lack)
    sources = [*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum"]
    with _alone():
        program, stamp, wanted = BUILT / name, BUILT / f"{name}.sources", _digest(sources)
        if not program.exists() or not stamp.exists() or stamp.read_text() != wanted:
            _run("go build", ["go", "build", "-mod=readonly", "-o", str(program), "."], folder)
            stamp.write_text(wanted)
        return program


@cache
def node5() -> Path:
    """The folder `node_modules` with Apache's Node.js client of 5.x."""
    if lack := missing("node", "npm"):
        raise Unavailable(lack)
    listed = [NODE5 / "package.json", NODE5 / "package-lock.json"]
    with _alone():
        folder = BUILT / "node5"
        stamp, wanted = folder / ".installed", _digest(listed)
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for path in listed:
                shutil.copy(path, folder)
            _run("npm", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
            stamp.write_text(wanted)
        return folder / "node_modules"


def run_maven(project: Path, *arguments: str) -> str:
    """Run the goal `test` in a project, offline if everything it needs was fetched before. The output, if it succeeds.

    AssertionError: a test failed, or the sources do not compile.
    """
    if lack := missing("java", "javac", "mvn"):
        raise Unavailable(lack)
    with _alone():
        for options in (("--offline",), ()):
            command = ["mvn", "-B", "-f", str(project / "pom.xml"), *options, *arguments, "test"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
            if done.returncode == 0:
                return done.stdout
            errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
            if not any("in offline mode" in line or CANNOT_FETCH.search(line) for line in errors):
                raise AssertionError(done.stdout[-4000:])
    raise Unavailable(f"Maven failed: {errors[0][:300]}")


def fetch_go_modules(module: Path) -> None:
    """What the module's `go.mod` lists, into Go's own cache."""
    if lack := missing("go"):
        raise Unavailable(lack)
    with _alone():
        _run("go mod download", ["go", "mod", "download"], module)


@cache
def cpp_python() -> Path:
    """The Python of an environment with the C++ client."""
    return _environment("cpp", CPP_PACKAGE, "rocketmq.client")


@cache
def python5() -> Path:
    """The Python of an environment with Apache's Python client of 5.x."""
    return _environment("python5", PYTHON_PACKAGE, "rocketmq")


def _environment(name: str, package: str, module: str) -> Path:
    """The Python of an environment with that package."""
    with _alone():
        folder = BUILT / name
        python = folder / "bin" / "python"
        stamp = folder / ".installed"
        if not stamp.exists() or stamp.read_text() != package:
            shutil.rmtree(folder, ignore_errors=True)
            _run("venv", [sys.executable, "-m", "venv", str(folder)])
            _run("pip", [str(python), "-m", "pip", "install", "--quiet", package])
            _run(package, [str(python), "-c", f"import {module}"])
            stamp.write_text(package)
        return python


@cache
def rust_load() -> Path:
    """The compiled Rust program. A first build takes several CPU minutes."""
    return _rust_program("rust-load", RUST, "rust")


@cache
def rust5() -> Path:
    """The compiled program with Apache's Rust client of 5.x. A first build takes several CPU minutes."""
    return _rust_program("rust5", RUST5, "rust5")


def _rust_program(name: str, folder: Path, built: str) -> Path:
    if lack := missing("cargo"):
        raise Unavailable(lack)
    target = BUILT / built
    with _alone():
        command = ["cargo", "build", "--locked", "--quiet", "--target-dir", str(target)]
        _run("cargo build", command, folder)
        return target / "debug" / name
