"""The arguments of spark-submit, and errors of one sentence before it is started."""

import os
import stat
import sys
from pathlib import Path

import pytest

from firearrow.spark_tools import submit
from firearrow.spark_tools.commands import JOBS
from firearrow.spark_tools.submit import (
    BULK_JVM,
    CannotSubmit,
    check_java,
    command,
    environment,
    spark_home,
    split,
)


def java(folder: Path, version_output: str, code: int = 0) -> str:
    """A folder with a `java` that prints this version."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{version_output}' >&2\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_options_of_spark_are_found_wherever_they_stand() -> None:
    found = split(
        ["--master", "local[2]", "replay", "--path", "s", "--conf=a=b", "--verbose", "--queues", "0"]
    )
    assert found.spark == ("--master", "local[2]", "--conf=a=b", "--verbose")
    assert found.rest == ("replay", "--path", "s", "--queues", "0")


def test_an_option_of_spark_without_a_value_is_refused() -> None:
    with pytest.raises(CannotSubmit, match="--master needs a value"):
        split(["replay", "--master"])


def test_the_command_line_has_a_master_settings_the_file_and_the_arguments(tmp_path: Path) -> None:
    words = command(Path("/jobs/replay.py"), (), ["--path", "s"], tmp_path)
    assert words[:3] == [str(tmp_path / "bin" / "spark-submit"), "--master", "local[*]"]
    assert words[-3:] == ["/jobs/replay.py", "--path", "s"]
    assert "spark.speculation=false" in words


@pytest.mark.parametrize(
    "given", [("--master", "local[2]"), ("--master=local[2]",), ("--conf", "spark.master=x")]
)
def test_a_given_master_is_the_only_one(given: tuple[str, ...]) -> None:
    words = command(Path("job.py"), given, [], Path("/spark"))
    assert "local[*]" not in words
    assert words.index(given[0]) < words.index("job.py")


def test_a_given_setting_is_not_set_again() -> None:
    words = command(Path("job.py"), ("--conf", "spark.ui.enabled=true"), [], Path("/spark"))
    assert [word for word in words if word.startswith("spark.ui.enabled")] == ["spark.ui.enabled=true"]


def test_workers_have_this_interpreter_and_a_safe_path() -> None:
    made = environment({"PATH": "/bin"}, Path("/spark"), ())
    assert made["PYSPARK_PYTHON"] == made["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert made["PYTHONSAFEPATH"] == "1"
    assert made["SPARK_HOME"] == "/spark"
    assert made["PATH"] == "/bin"


def test_the_jvm_of_bulk_jobs_compiles_once_and_that_of_a_stream_twice() -> None:
    bulk = environment({}, Path("/spark"), (), jvm=JOBS["replay"].jvm)["SPARK_SUBMIT_OPTS"]
    assert (
        bulk
        == environment({}, Path("/spark"), (), jvm=JOBS["copy"].jvm)["SPARK_SUBMIT_OPTS"] + f" {BULK_JVM}"
    )


def test_what_the_user_has_set_stays() -> None:
    given = {"PYSPARK_PYTHON": "/other/python", "SPARK_LOCAL_IP": "192.0.2.1"}
    assert environment(given, Path("/spark"), ()).items() >= given.items()


@pytest.mark.parametrize(
    ("spark", "local"),
    [
        ((), True), (("--master", "local[2]"), True), (("--master=yarn",), False),
        (("--conf", "spark.master=k8s://x"), False),
    ],
)  # fmt: skip
def test_a_local_master_stays_on_the_loopback(spark: tuple[str, ...], local: bool) -> None:
    assert ("SPARK_LOCAL_IP" in environment({}, Path("/spark"), spark)) is local


def test_no_java_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotSubmit, match="needs Java 17 or later, and there is no java in PATH"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(CannotSubmit, match=f"no java in JAVA_HOME {tmp_path}"):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


@pytest.mark.parametrize(
    "version_output", ['java version "1.8.0_392"', 'openjdk version "11.0.2" 2019-01-15', "no version"]
)
def test_a_java_too_old_is_one_sentence(tmp_path: Path, version_output: str) -> None:
    with pytest.raises(CannotSubmit, match=r"needs Java 17 or later, and .*; set JAVA_HOME to a newer one"):
        check_java({"PATH": java(tmp_path, version_output)})


@pytest.mark.parametrize(
    "version_output", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19']
)
def test_a_java_new_enough_is_taken(tmp_path: Path, version_output: str) -> None:
    check_java(
        {"PATH": "/nowhere", "JAVA_HOME": str(tmp_path)} if java(tmp_path / "bin", version_output) else {}
    )


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "NEEDED", ("numpy", "no_such_package", "nor_this_one"))
    with pytest.raises(
        CannotSubmit, match=r"no_such_package and nor_this_one cannot be imported: pip install"
    ):
        spark_home({})


def test_spark_is_found_in_the_package_or_by_its_variable(tmp_path: Path) -> None:
    assert (spark_home({}) / "bin" / "spark-submit").is_file()
    with pytest.raises(CannotSubmit, match="has no bin/spark-submit"):
        spark_home({"SPARK_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "taken"), [("3.5.6", False), ("4.1.0", False), ("4.2.0", True), ("4.10.0.dev0", True)]
)
def test_a_spark_too_old_is_one_sentence(tmp_path: Path, version: str, taken: bool) -> None:
    package = tmp_path / "python" / "pyspark"
    for folder in (tmp_path / "bin", package):
        folder.mkdir(parents=True)
    (tmp_path / "bin" / "spark-submit").touch()
    (package / "version.py").write_text(f'__version__: str = "{version}"\n')
    if taken:
        assert spark_home({"SPARK_HOME": str(tmp_path)}) == tmp_path
    else:
        with pytest.raises(
            CannotSubmit,
            match=rf"^PySpark {version} in .* is too old, 4\.2 or later is required: set SPARK_HOME",
        ):
            spark_home({"SPARK_HOME": str(tmp_path)})
