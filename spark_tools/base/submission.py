"""Submission: the process that submits a job parses its arguments and checks what they name, but does not run it."""

from collections.abc import Callable
from contextvars import ContextVar

CHECKS: ContextVar[Callable[[], bool] | None] = ContextVar("CHECKS", default=None)
"""Set while a job is submitted. Checks the machine, and returns whether to check also the job's source and target."""


MASTER = "FIREARROW_SPARK_MASTER"
"""Environment variable of a submitted job: Spark's master."""


class Passed(Exception):
    """Raised instead of running the job: nothing was found wrong."""
