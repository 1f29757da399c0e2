"""What export refuses before anything starts, each in one sentence; and its dry run."""

from pathlib import Path

import pytest

from firearrow.spark_tools.jobs import export as job
from tests.spark.stores import KnownStore


def run(*arguments: object) -> int:
    return job.cli([*map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--to: the folder of the export is required"),
        (("--to", "x", "--columns", "topic,price"), "columns: unknown column 'price'"),
        (("--to", "x", "--partition-by", "price"), "--partition-by: unknown 'price'"),
        (("--to", "x", "--compression", "rar"), "--compression: unknown 'rar'"),
        (("--to", "x", "--topics", "Nobody"), "Nobody"),
        (("--to", "x", "--from", "2026-01-02", "--until", "2026-01-01"), "--until"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: tuple[str, ...],
    expected: str,
    store: KnownStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("--path", store.root, *arguments) in (1, 2)
    output = capsys.readouterr().err.strip()
    assert output.startswith("firearrow: ")
    assert expected in output
    assert "\n" not in output


def test_a_folder_with_something_in_it_is_left_alone(
    store: KnownStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert run("--path", store.root, "--to", tmp_path) == 2
    assert "contains notes.txt, which is not part of this export" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_is_no_store_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run("--path", tmp_path / "empty", "--to", tmp_path / "out") == 1
    assert str(tmp_path / "empty") in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_a_silent_source_is_waited_for_until_the_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--name-server", "127.0.0.1:1", "--topics", "T", "--to", tmp_path / "out")
    assert run(*command, "--timeout", "0.25") == 1
    assert "127.0.0.1:1: no answer within 0.25 s" in capsys.readouterr().err
    assert run(*command, "--timeout", "0") == 2
    assert "--timeout: 0 is not within a second and a day" in capsys.readouterr().err


def test_a_dry_run_counts_and_writes_nothing(
    store: KnownStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--path", store.root, "--to", tmp_path / "out", "--dry-run") == 0
    assert f"{len(store.messages):,}" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
