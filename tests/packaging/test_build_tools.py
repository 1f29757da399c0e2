"""`make deb` and `make image` where their tools are missing: one sentence with the packages to install, at once."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("sh", "dirname", "id", "cut", "tr", "sed", "date", "make", "printf", "uname", "find")


def folder_of(tmp_path: Path, *tools: str) -> Path:
    """A folder for PATH with these programs only."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in (*SHELL, *tools):
        if (found := shutil.which(tool)) is not None:
            (folder / tool).symlink_to(found)
    return folder


def ended(path: Path, *command: str, **environment: str) -> str:
    """stderr of a command that fails with these programs alone."""
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": str(path), **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    return done.stderr


def test_an_image_without_its_tools(tmp_path: Path) -> None:
    """`make image` says so before the package is built."""
    error = ended(folder_of(tmp_path), "make", "image", "PYTHON=none", KEYRINGS=str(tmp_path))
    lacking = "mmdebstrap umoci dpkg debian-archive-keyring"
    assert f"make image: this machine lacks {lacking}: apt install {lacking}" in error
    assert "docker build -f packaging/Dockerfile" in error


def test_an_image_without_root(tmp_path: Path) -> None:
    path = folder_of(tmp_path)
    (tmp_path / "debian-archive-keyring.gpg").touch()
    for tool in ("mmdebstrap", "umoci", "dpkg-deb"):
        (path / tool).write_text("#!/bin/sh\n")
        (path / tool).chmod(0o755)
    (path / "id").unlink()
    (path / "id").write_text("#!/bin/sh\necho 1000\n")
    (path / "id").chmod(0o755)
    error = ended(path, "packaging/image/build.sh", "--check", KEYRINGS=str(tmp_path))
    assert "sudo packaging/image/build.sh" in error
    (path / "id").write_text("#!/bin/sh\necho 0\n")
    done = subprocess.run(
        ["packaging/image/build.sh", "--check"],
        cwd=ROOT,
        env={"PATH": str(path), "KEYRINGS": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0


def test_a_package_without_its_tools(tmp_path: Path) -> None:
    error = ended(folder_of(tmp_path), "packaging/deb/build.sh")
    assert "make deb: this machine lacks dpkg binutils gzip: apt install dpkg binutils gzip" in error


def test_the_package_takes_the_dependencies_alone() -> None:
    """They have none themselves, so that nothing else comes in (`check_imports.py` has the list)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["acl"]]
    names = [re.split(r"[>=;\[]", each)[0].lower() for each in wanted]
    assert names == ["uvloop", "orjson", "protobuf", "pyyaml"]
    script = (ROOT / "packaging" / "deb" / "build.sh").read_text()
    assert "--no-deps --no-compile" in script
    assert os.access(ROOT / "packaging" / "deb" / "build.sh", os.X_OK)


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man")
def test_the_man_page_is_read_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-l", str(ROOT / "packaging" / "deb" / "firearrow.1")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "firearrow broker" in done.stdout
