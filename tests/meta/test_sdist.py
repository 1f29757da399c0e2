"""The source distribution holds all that a build needs, and a build without a source file fails with a reason."""

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from tests.packaging.wheels import run, try_here

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("_native", "broker", "client", "spark_tools")
AT_THE_ROOT = {"setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "CHANGELOG.md"}
BUILT = shutil.ignore_patterns("*.c", "*.so", "*.pyi", "__pycache__")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return cloned(tmp_path)


def cloned(folder_of_it: Path) -> Path:
    """The sources without anything built: what a fresh clone has of them."""
    clone = folder_of_it / "clone"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, clone / folder, ignore=BUILT)
    shutil.copytree(ROOT / "docs", clone / "docs")
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in ("", ".py", ".toml", ".md", ".in"):
            shutil.copy(path, clone)
    (clone / "packaging").mkdir()
    for path in (ROOT / "packaging").glob("*.py"):
        shutil.copy(path, clone / "packaging")
    return clone


def build(clone: Path, what: str, to: Path) -> subprocess.CompletedProcess[str]:
    """As pip does: through the build backend."""
    program = f"from setuptools import build_meta; print(build_meta.build_{what}({str(to)!r}))"
    return subprocess.run(
        [sys.executable, "-c", program], cwd=clone, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of a fresh clone, which is beside it."""
    folder = tmp_path_factory.mktemp("sdist")
    done = build(cloned(folder), "sdist", folder)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


def test_a_build_without_a_compiler_fails_at_once_in_one_sentence(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-cc -pthread")
    done = build(clone, "wheel", tmp_path)
    assert done.returncode != 0
    reason = done.stderr.splitlines()[-1]
    assert "this build needs a C compiler, and there is no no-such-cc; install one" in reason
    assert "Cythonizing" not in done.stdout + done.stderr


def files_below(clone: Path) -> set[str]:
    return {
        path.relative_to(clone).as_posix()
        for folder in FOLDERS
        for path in (clone / folder).rglob("*")
        if path.is_file()
    }


def test_the_sdist_holds_every_source_and_nothing_built(sdist: Path) -> None:
    wanted = files_below(sdist.parent / "clone")
    assert {PurePosixPath(name).suffix for name in wanted} >= {".py", ".pyx", ".pxd", ".h", ".typed"}
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name for name in held if name.partition("/")[0] in FOLDERS} == wanted
    assert held >= AT_THE_ROOT | {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert not {name for name in held if name.startswith(("tests/", "bench/", "build/"))}


@pytest.mark.parametrize(
    "lost", ["_native/base/hash.pyx", pytest.param("_native/**/*.pyx", marks=pytest.mark.long)]
)
def test_a_build_without_sources_fails_with_a_reason(clone: Path, tmp_path: Path, lost: str) -> None:
    """Without its .pyx a module is not compiled: the wheel would install and then not start."""
    for path in list(clone.glob(lost)):
        path.unlink()
    for what in ("wheel", "sdist"):
        done = build(clone, what, tmp_path)
        assert done.returncode != 0
        reason = done.stderr.splitlines()[-1]
        assert "source files are missing, such as _native/base/" in reason
        assert "Build from a whole clone" in reason


def take_built(to: Path) -> None:
    """What `make build` compiled here but for one module, as if it had been compiled there: the build translates what
    is missing or was made from other sources, and compiles what is older than its C file."""
    platform = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for path in (ROOT / "_native").rglob("*"):
        place = path.relative_to(ROOT)
        if path.suffix == ".so":
            place = Path("build", platform, "firearrow", place)
        if path.suffix in (".c", ".so") and not path.name.startswith("hash."):
            (to / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to / place)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("all_again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_wheel_of_an_sdist_runs_the_readmes_program(
    sdist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_again: bool
) -> None:
    """In a fresh environment. All of it is built without optimisation, which takes a third of the time."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (sources,) = tmp_path.glob("firearrow-*/")
    if all_again:
        monkeypatch.setenv("FIREARROW_DEBUG", "1")
    else:
        take_built(sources)  # which counts with the same settings only
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, sources)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert (
        len([name for name in names if name.endswith(".so")]) == len(list(ROOT.glob("_native/**/*.pyx"))) + 1
    )
    assert not [name for name in names if name.endswith((".c", ".pyx"))]
    assert len([name for name in names if name.endswith(".pyi")]) == len(list(ROOT.glob("_native/**/*.pyx")))
    try_here(wheel, sys.executable, tmp_path)
