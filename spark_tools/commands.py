"""The command `firearrow spark NAME …`: bulk jobs with Apache Spark, and `pack`.

An entry point of `firearrow.commands`. Checks a job's arguments before it starts a JVM.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from firearrow._native.base.command_line import HELP, nearest
from firearrow._native.base.verbs import REQUIRED, Command, argument, call
from firearrow.spark_tools import submit
from firearrow.spark_tools.base.errors import REFUSALS
from firearrow.spark_tools.submit import CannotSubmit

FAILED = 1
WRONG_USAGE = 2


@dataclass(frozen=True, slots=True)
class Job:
    module: str
    """Module in firearrow.spark_tools.jobs that has the program `cli`."""
    line: str
    jvm: str = submit.BULK_JVM

    @property
    def file(self) -> Path:
        return Path(__file__).parent.joinpath("jobs", *self.module.split(".")).with_suffix(".py")


JOBS = {
    "replay": Job("replay", "Send messages of stores or of a live cluster again."),
    "redrive": Job("redrive", "Send dead letters back to the topics they came from."),
    "export": Job("export", "Write messages to Parquet files."),
    "import": Job("import_", "Send messages from Parquet files."),
    "copy": Job("copy_", "Copy topics between clusters, continuously.", jvm=""),
    "audit": Job("audit.audit", "Check stores in bulk: records, queues, index; count what is in them."),
}


@dataclass(frozen=True, kw_only=True)
class PackArguments:
    file: Path = argument("file", REQUIRED, "the archive, such as firearrow.tar.gz", type=Path)


def pack(given: PackArguments) -> int:
    """Make an archive of FireArrow for executors that do not have it. Pass the printed options to spark-submit.

    firearrow spark pack firearrow.tar.gz
    firearrow spark pack /shared/firearrow.tgz
    """
    from firearrow.spark_tools import pack as archive  # noqa: PLC0415 (rarely used)

    packed = archive.pack(given.file)
    print(f"{packed.path}: {packed.files} files, {packed.bytes / 1e6:.1f} MB; pass to spark-submit:")
    print(" ".join(packed.arguments()))
    return 0


def _pack_command() -> Command:
    command = Command("spark pack", None)
    command.only(pack).group(PackArguments)
    return command


def main(arguments: Sequence[str]) -> int:
    """Run bulk jobs with Apache Spark: replay, redrive, export, import, copy, audit and pack.

    The exit code; does not return if a job is submitted.
    """
    try:
        given = submit.split(arguments)
        if not given.rest or given.rest[0] in ("--help", "-h") or list(given.rest) == [HELP]:
            print(usage())
            return 0 if given.rest else WRONG_USAGE
        name, *rest = [*given.rest[1:2], "--help"] if given.rest[0] == HELP else given.rest
        if name == "pack":
            return int(call(_pack_command().parse(rest, any_value=True)))
        job = JOBS.get(name)
        if job is None:
            raise CannotSubmit(_unknown(name))
        return _submit(job, given.spark, rest)
    except REFUSALS as error:
        print(f"firearrow spark: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, CannotSubmit) else FAILED


def run_job(name: str, *arguments: object) -> int:
    """Run a job in this process, with its Spark session if there is one; the exit code. Arguments are those of
    `firearrow spark NAME`. CannotSubmit: there is no such job, or the session is one of Spark Connect."""
    job = JOBS.get(name)
    if job is None:
        raise CannotSubmit(_unknown(name))
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 (the command line does without)

    if is_remote():
        raise CannotSubmit(
            f"jobs do not run through Spark Connect: run `firearrow spark {name}`, with --master for a cluster"
        )
    try:
        return int(_program(job)([str(argument) for argument in arguments]))
    except SystemExit as end:  # after help or a usage error
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def usage() -> str:
    lines = {name: job.line for name, job in JOBS.items()} | {"pack": _pack_command().verbs()[0].summary}
    width = max(map(len, lines))
    return "\n".join(
        [
            "Usage: firearrow spark [OPTIONS OF spark-submit] NAME [OPTIONS]",
            "",
            "  Bulk jobs with Apache Spark. Options of spark-submit may be anywhere on the line:",
            "  --master (default local[*]), --conf, --driver-memory, --archives, …",
            "",
            "Jobs (NAME --help lists their options):",
            *(f"  {name:{width}}  {line}" for name, line in lines.items()),
        ]
    )


def _submit(job: Job, spark: Sequence[str], arguments: Sequence[str]) -> int:
    submit.check_packages()

    def checks() -> bool:
        submit.spark_home(os.environ)
        submit.check_java(os.environ)
        return not _runs_elsewhere(spark)

    program = _program(job)
    return int(
        program.check(arguments, checks, lambda: submit.submit(job.file, spark, arguments, jvm=job.jvm))
    )


def _program(job: Job) -> Any:  # noqa: ANN401 (a Program, of a package above this one)
    return import_module(f"firearrow.spark_tools.jobs.{job.module}").cli


def _runs_elsewhere(spark: Sequence[str]) -> bool:
    """Whether the driver runs on a machine that may see other folders and brokers."""
    return "--deploy-mode=cluster" in spark or any(
        pair == ("--deploy-mode", "cluster") for pair in pairwise(spark)
    )


def _unknown(name: str) -> str:
    if name.startswith("-"):
        return f"{name}: unknown option of spark-submit; put a job's own options after its name"
    names = [*JOBS, "pack"]
    return f"{name}: unknown job{nearest(name, names)}; the jobs are {', '.join(names)}"
