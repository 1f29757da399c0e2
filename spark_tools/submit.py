"""Runs a job with spark-submit, after checking Spark, Java and the Python packages.

Never imports pyspark; a missing requirement gives one sentence before a JVM starts. Replaces this process.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firearrow.spark_tools.base.errors import SparkToolsError

LOGGING = Path(__file__).parent / "jobs" / "log4j2.properties"
MASTER = "FIREARROW_SPARK_MASTER"
"""Environment variable of a submitted job: Spark's master."""
JAVA_MIN = 17
JAVA_S = 30.0
PYSPARK_MIN = (4, 2)
VERSION = re.compile(r"""^__version__\b[^=\n]*=\s*["']((\d{1,9})\.(\d{1,9})[^"']*)""", re.M)
INSTALL = "pip install 'firearrow[spark]'"
NEEDED = ("pyspark", "pyarrow", "numpy", "rich")
VALUED = frozenset(
    {
        "--master",
        "--deploy-mode",
        "--conf",
        "--driver-memory",
        "--driver-cores",
        "--driver-java-options",
        "--driver-class-path",
        "--driver-library-path",
        "--executor-memory",
        "--executor-cores",
        "--num-executors",
        "--total-executor-cores",
        "--archives",
        "--files",
        "--jars",
        "--packages",
        "--repositories",
        "--py-files",
        "--properties-file",
        "--proxy-user",
        "--principal",
        "--keytab",
        "--queue",
        "--name",
    }
)
"""Options of spark-submit that are passed on, each with a value. No job option has one of these names."""
FLAGS = frozenset({"--verbose", "--supervise"})
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "false",
}
"""Defaults. A speculative copy of a task would send everything twice."""
BULK_JVM = "-XX:TieredStopAtLevel=1"
"""The JVM of a bulk job handles no data; its second compiler would use a third of the job's CPU without
benefit."""

LAUNCHER_JVM = f"{BULK_JVM} -XX:+UseSerialGC"
"""Of the JVM that only composes the command line of the other one: a second less."""


class CannotSubmit(SparkToolsError):
    """A requirement of Spark is missing; the message states what to do."""


@dataclass(frozen=True, slots=True)
class SplitArguments:
    spark: tuple[str, ...]
    """Options of spark-submit, each with its value."""
    rest: tuple[str, ...]


def split(arguments: Sequence[str]) -> SplitArguments:
    """Separate the options of spark-submit, in any position, from the rest."""
    spark: list[str] = []
    rest: list[str] = []
    left = list(arguments)
    while left:
        text = left.pop(0)
        name, equals, _ = text.partition("=")
        if text in FLAGS or (equals and name in VALUED):
            spark.append(text)
        elif text in VALUED:
            if not left:
                raise CannotSubmit(f"{text} needs a value")
            spark += (text, left.pop(0))
        else:
            rest.append(text)
    return SplitArguments(tuple(spark), tuple(rest))


def command(job: Path, spark: Sequence[str], arguments: Sequence[str], home: Path) -> list[str]:
    """The whole command line of spark-submit."""
    given = {text.partition("=")[0] for text in spark}
    confs = {text.removeprefix("--conf=").partition("=")[0] for text in spark}
    master = [] if "--master" in given or "spark.master" in confs else ["--master", "local[*]"]
    settings = [
        word
        for name, value in SETTINGS.items()
        if name not in confs
        for word in ("--conf", f"{name}={value}")
    ]
    return [str(home / "bin" / "spark-submit"), *master, *settings, *spark, str(job), *arguments]


def environment(
    given: Mapping[str, str], home: Path, spark: Sequence[str], *, jvm: str = ""
) -> dict[str, str]:
    """Environment of spark-submit: this interpreter by default; a local master uses the loopback only.

    PYTHONSAFEPATH: the folder of a job's file must not come before the standard library.
    """
    words = " ".join(spark)
    master = re.search(r"(?:--master[ =]|spark\.master=)(\S+)", words)
    local = {"SPARK_LOCAL_IP": "127.0.0.1"} if master is None or master[1].startswith("local") else {}
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_LAUNCHER_OPTS": LAUNCHER_JVM,
        "SPARK_SUBMIT_OPTS": f"-Dlog4j2.configurationFile={LOGGING.as_uri()} {jvm}".strip(),
    }
    return {
        **ours,
        **local,
        **given,
        "SPARK_HOME": str(home),
        MASTER: "local" if master is None else master[1],
    }


def spark_home(given: Mapping[str, str]) -> Path:
    """SPARK_HOME if it is set, else the pyspark that is installed. CannotSubmit."""
    check_packages()
    home = given.get("SPARK_HOME") or _pyspark()
    if not (Path(home) / "bin" / "spark-submit").is_file():
        raise CannotSubmit(
            f"SPARK_HOME: {home} has no bin/spark-submit; unset it, or set it to the folder of a Spark"
        )
    _check_version(Path(home) / "python" / "pyspark", "set SPARK_HOME to such a Spark, or unset it")
    return Path(home)


def check_packages() -> None:
    """CannotSubmit: a package of the extra is missing, or PySpark is too old. Imports none of them."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotSubmit(f"{' and '.join(missing)} cannot be imported: {INSTALL}")
    _check_version(_pyspark(), INSTALL)


def _pyspark() -> Path:
    """The folder of the package that would be imported."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def _check_version(package: Path, advice: str) -> None:
    """Reads version.py, which every installed PySpark has."""
    file = package / "version.py"
    found = VERSION.search(file.read_text()) if file.is_file() else None
    if found is not None and (int(found[2]), int(found[3])) < PYSPARK_MIN:
        least = ".".join(map(str, PYSPARK_MIN))
        raise CannotSubmit(
            f"PySpark {found[1]} in {package} is too old, {least} or later is required: {advice}"
        )


def check_java(given: Mapping[str, str]) -> None:
    """CannotSubmit: no Java, one that does not run, or one that is too old."""
    home = given.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else given.get("PATH"))
    where = f"JAVA_HOME {home}" if home else "PATH"
    if java is None:
        raise CannotSubmit(
            f"Spark needs Java {JAVA_MIN} or later, and there is no java in {where}; install one (Debian: "
            "openjdk-17-jre-headless) or set JAVA_HOME"
        )
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotSubmit(
            f"{java} does not run: {error}; set JAVA_HOME to a Java {JAVA_MIN} or later"
        ) from None
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < JAVA_MIN:
        first = output.strip().partition("\n")[0][:100] or "of an unknown version"
        raise CannotSubmit(
            f"Spark needs Java {JAVA_MIN} or later, and {java} is {first}; set JAVA_HOME to a newer one"
        )


def submit(job: Path, spark: Sequence[str], arguments: Sequence[str], *, jvm: str) -> None:
    """Run it in place of this process, in a JVM with these options; the exit code is the job's.
    CannotSubmit."""
    home = spark_home(os.environ)
    words = command(job, spark, arguments, home)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(words[0], words, environment(os.environ, home, spark, jvm=jvm))
