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
from typing import Annotated

import typer

from firearrow.spark_tools import submit
from firearrow.spark_tools.base.errors import REFUSALS
from firearrow.spark_tools.base.submission import CHECKS, Passed
from firearrow.spark_tools.submit import CannotSubmit

FAILED = 1
WRONG_USAGE = 2


@dataclass(frozen=True, slots=True)
class Job:
    module: str
    """Module in firearrow.spark_tools.jobs that has the Typer program `cli`."""
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
PACK_LINE = "Make an archive of FireArrow for executors that do not have it."
packing = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@packing.command(help=PACK_LINE)
def pack(file: Annotated[Path, typer.Argument(help="The archive, e.g. firearrow.tar.gz")]) -> None:
    from firearrow.spark_tools import pack as archive  # noqa: PLC0415 (rarely used)

    packed = archive.pack(file)
    print(f"{packed.path}: {packed.files} files, {packed.bytes / 1e6:.1f} MB; pass to spark-submit:")
    print(" ".join(packed.arguments()))


def main(arguments: Sequence[str]) -> int:
    """Bulk jobs with Apache Spark, and `pack`.

    The exit code; does not return if a job is submitted.
    """
    try:
        given = submit.split(arguments)
        if not given.rest or given.rest[0] in ("--help", "-h"):
            print(usage())
            return 0 if given.rest else WRONG_USAGE
        name, *rest = given.rest
        if name == "pack":
            return _exit_code(packing, name, rest)
        job = JOBS.get(name)
        if job is None:
            raise CannotSubmit(_unknown(name))
        return _submit(job, name, given.spark, rest)
    except REFUSALS as error:
        print(f"firearrow spark: {error}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, CannotSubmit) else FAILED


def run_job(name: str, *arguments: object) -> int:
    """Run a job in this process, with its Spark session if there is one; the exit code. Arguments are those of
    `firearrow spark NAME`. CannotSubmit: there is no such job."""
    job = JOBS.get(name)
    if job is None:
        raise CannotSubmit(_unknown(name))
    return _exit_code(_cli(job), name, [str(argument) for argument in arguments])


def usage() -> str:
    lines = {name: job.line for name, job in JOBS.items()} | {"pack": PACK_LINE}
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


def _exit_code(program: typer.Typer, name: str, arguments: Sequence[str]) -> int:
    """Run the program."""
    try:
        typer.main.get_command(program).main(list(arguments), prog_name=f"firearrow spark {name}")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _cli(job: Job) -> typer.Typer:
    program: typer.Typer = import_module(f"firearrow.spark_tools.jobs.{job.module}").cli
    return program


def _submit(job: Job, name: str, spark: Sequence[str], arguments: Sequence[str]) -> int:
    submit.check_packages()

    def checks() -> bool:
        submit.spark_home(os.environ)
        submit.check_java(os.environ)
        return not _runs_elsewhere(spark)

    before = CHECKS.set(checks)
    try:
        return _exit_code(_cli(job), name, arguments)
    except Passed:
        submit.submit(job.file, spark, arguments, jvm=job.jvm)
    finally:
        CHECKS.reset(before)
    raise AssertionError("the process was replaced")


def _runs_elsewhere(spark: Sequence[str]) -> bool:
    """Whether the driver runs on a machine that may see other folders and brokers."""
    return "--deploy-mode=cluster" in spark or any(
        pair == ("--deploy-mode", "cluster") for pair in pairwise(spark)
    )


def _unknown(name: str) -> str:
    if name.startswith("-"):
        return f"{name}: unknown option of spark-submit; put a job's own options after its name"
    return f"{name}: unknown job; the jobs are {', '.join([*JOBS, 'pack'])}"
