"""What PySpark's daemon prints when a worker's connection is closed."""

import sys
import traceback
from types import SimpleNamespace


def silence_closed_pipe() -> None:
    """In a worker that PySpark's daemon forked, end without a traceback when Spark has closed the connection.

    Spark closes it as soon as it has what it needs, such as the rows of a LIMIT, while the worker still writes.
    The worker's BrokenPipeError or ConnectionResetError is then no error, but the daemon, which is `__main__`
    here, prints it.
    """
    daemon = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", None) == "pyspark.daemon":
        replaced = SimpleNamespace(print_exc=_print_unless_closed, format_exc=traceback.format_exc)
        vars(daemon)["traceback"] = replaced


def _print_unless_closed() -> None:
    if not isinstance(sys.exception(), ConnectionError):
        traceback.print_exc()
