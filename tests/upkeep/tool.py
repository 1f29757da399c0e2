"""`firearrow store …` as a process, as people run it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = "from firearrow.broker.cli import main; main()"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def told(self) -> Any:  # noqa: ANN401 (it is JSON)
        return json.loads(self.out)


def run(*arguments: str | Path, within_s: float = 60) -> Ran:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "store", *map(str, arguments)],
        capture_output=True, text=True, timeout=within_s, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)
