"""`killing`: a child process ends with the test that started it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr


@contextmanager
def killing(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """As `with process`, which waits for ever for one that a failed test leaves running; this kills it first."""
    with process:
        try:
            yield process
        finally:
            process.kill()
