"""`firearrow spark`: jobs by name, their arguments checked before a JVM is started."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow import spark_tools
from firearrow.spark_tools import commands, submit
from firearrow.spark_tools.commands import JOBS, main
from tests.spark.stores import KnownStore

FIREARROW = [sys.executable, "-c", "from firearrow.client.cli.main import main; main()", "spark"]

Submitted = tuple[Path, tuple[str, ...], list[str], str]


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[Submitted]:
    """What would have been run."""
    found: list[Submitted] = []

    def take(job: Path, spark: tuple[str, ...], arguments: list[str], *, jvm: str) -> None:
        found.append((job, spark, arguments, jvm))
        raise SystemExit(0)

    monkeypatch.setattr(submit, "submit", take)
    return found


def test_help_lists_every_job_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, job in JOBS.items():
        assert [line for line in lines if line.split()[:1] == [name]] == [f"  {name:7}  {job.line}"]
    assert lines[-1] == "  pack     Make an archive of FireArrow for executors that do not have it."


def test_every_job_has_a_file_with_a_program() -> None:
    missing = [name for name, job in JOBS.items() if not job.file.is_file()]
    assert not missing


@pytest.mark.parametrize("name", ["replay", "redrive"])
def test_a_job_shows_its_options_without_java(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    output = capsys.readouterr().out
    for option in (
        "--path",
        "--name-server",
        "--from",
        "--until",
        "--sql",
        "--target",
        "--checkpoint",
        "--dry-run",
    ):
        assert option in output


def test_an_unknown_job_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repaly"]) == 2
    assert "repaly: unknown job, but there is replay; the jobs are replay, redrive" in capsys.readouterr().err


def test_an_unknown_option_before_the_name_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--path", "store", "replay"]) == 2
    assert "--path: unknown option of spark-submit" in capsys.readouterr().err


def test_a_wrong_option_is_reported_before_anything_is_submitted(
    submitted: list[Submitted], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["replay", "--pathh", "store"])
    assert "--pathh" in capsys.readouterr().err
    assert not submitted


def test_a_job_is_submitted_with_its_file_and_arguments(
    submitted: list[Submitted], store: KnownStore
) -> None:
    with pytest.raises(SystemExit):
        main(
            [
                "--master",
                "local[2]",
                "replay",
                "--path",
                f"a={store.root}",
                "--path",
                f"b={store.root}",
                "--driver-memory",
                "2g",
                "--unordered",
            ]
        )
    job, spark, arguments, jvm = submitted[0]
    assert jvm == submit.BULK_JVM
    assert job == Path(commands.__file__).parent / "jobs" / "replay.py"
    assert tuple(spark) == ("--master", "local[2]", "--driver-memory", "2g")
    assert arguments == ["--path", f"a={store.root}", "--path", f"b={store.root}", "--unordered"]


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (
            ["--path", "no-such-folder"],
            1,
            "no-such-folder is not a folder: give the store folder of a broker",
        ),
        (["--topics", "NoSuch"], 1, "has no topic 'NoSuch'"),
        (["--target", "127.0.0.1:9", "--timeout", "0.1"], 1, "no answer within 0.1 s"),
        (["--target-option", "secret=1", "--target", "127.0.0.1:9"], 2, "--target-option: secret is not"),
    ],
)
def test_what_cannot_work_is_found_before_anything_is_submitted(
    submitted: list[Submitted],
    store: KnownStore,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    expected: str,
) -> None:
    given = arguments if "--path" in arguments else ["--path", str(store.root), *arguments]
    assert main(["replay", *given]) == code
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1
    assert not submitted
    with pytest.raises(SystemExit):
        main(["replay", "--deploy-mode", "cluster", *given])


def test_without_java_the_command_says_so(tmp_path: Path) -> None:
    found = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    ran = subprocess.run(
        [*FIREARROW, "replay", "--path", "s"],
        env=found,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert "needs Java 17 or later, and there is no java in PATH" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_job_replaces_the_command(tmp_path: Path) -> None:
    """A Spark whose spark-submit prints its arguments."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\necho "$PYSPARK_PYTHON"\nexit 7\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    found = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    found |= {"SPARK_HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [*FIREARROW, "redrive", "--name-server", "127.0.0.1:1", "--group", "G", "--master", "local[1]"],
        env=found,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 7
    lines = ran.stdout.splitlines()
    assert lines[-1] == sys.executable
    assert lines[-3:-1] == ["--group", "G"]
    assert lines[lines.index("--master") :][:2] == ["--master", "local[1]"]


def test_a_job_runs_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert spark_tools.run_job("replay", "--help") == 0
    assert "firearrow spark replay" in capsys.readouterr().out
    with pytest.raises(submit.CannotSubmit, match="rewind: unknown job; the jobs are replay, redrive"):
        spark_tools.run_job("rewind")
