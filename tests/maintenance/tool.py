"""`firearrow store …` as users run it, in this process; returns its output and exit code."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from firearrow.broker.maintenance import commands


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> Any:  # noqa: ANN401 (it is JSON)
        return json.loads(self.out)


def run(*arguments: str | Path) -> Ran:
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = commands.main([str(each) for each in arguments])
        except SystemExit as end:
            code = end.code
    assert code is None or isinstance(code, int)
    buffer = out.buffer
    assert isinstance(buffer, io.BytesIO)
    return Ran(code or 0, buffer.getvalue().decode(), err.getvalue())
