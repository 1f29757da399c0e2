"""Runs a job's program in this process, as spark-submit runs it in another one."""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

from firearrow.spark_tools.jobs.program import Program


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(program: Program, *words: object) -> Ran:
    """The exit code, and what the job printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = program([*map(str, words)])
        except SystemExit as end:  # help, or wrong usage
            code = int(end.code or 0)
    return Ran(code, out.getvalue(), err.getvalue())
