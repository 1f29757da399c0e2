"""The archive for executors: whole, small, the same each time, and enough to import the tools in a bare Python."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from firearrow.spark_tools.commands import main
from firearrow.spark_tools.pack import LIBRARY, Packed, PackFailed, pack

BYTES_MAX = 10 << 20


def test_it_is_small_and_holds_no_sources_of_compiled_modules(packed: Packed) -> None:
    assert packed.bytes == packed.path.stat().st_size < BYTES_MAX
    with tarfile.open(packed.path) as archive:
        names = archive.getnames()
    assert len(names) == packed.files == len(set(names))
    assert {name.rpartition(".")[2] for name in names} <= {"py", "so", "dylib"}
    assert {"firearrow/__init__.py", "pyspark_firearrow/__init__.py"} <= set(names)
    assert any(name.startswith("firearrow/_native/columnar/record_spans.") for name in names)
    assert not any("__pycache__" in name or name.startswith(("/", "..")) for name in names)


def test_the_command_writes_the_same_bytes(
    packed: Packed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = tmp_path / "again.tgz"
    assert main(["pack", str(again)]) == 0
    assert again.read_bytes() == packed.path.read_bytes()
    assert "--archives" in capsys.readouterr().out


def test_a_python_without_the_package_imports_it_from_there(packed: Packed, tmp_path: Path) -> None:
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path / LIBRARY, filter="data")
    program = (
        "import firearrow._native.columnar.record_spans as spans;"
        "import firearrow.client.base.message, firearrow.client.blocking;"
        "print(spans.walk(bytes(64), 0, 64)[2].name, spans.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {LIBRARY!r}); {program}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    end, file = done.stdout.split()
    assert end == "UNWRITTEN"
    assert LIBRARY in file


def test_it_says_how_spark_submit_uses_it(packed: Packed) -> None:
    assert packed.arguments() == (
        "--archives",
        f"{packed.path}#{LIBRARY}",
        "--conf",
        f"spark.executorEnv.PYTHONPATH={LIBRARY}",
    )


def test_a_name_that_spark_would_not_unpack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackFailed, match=r"use \.tar\.gz"):
        pack(tmp_path / "firearrow.7z")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackFailed, match="No such file"):
        pack(tmp_path / "nowhere" / "firearrow.tgz")
