"""The README's Python examples run as they stand, but for port and path."""

import contextlib
import io
import re
from pathlib import Path

from tests.process.running import Broker

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_examples_run(tmp_path: Path) -> None:
    talk, look = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)
    said = io.StringIO()
    with Broker(tmp_path / "store") as broker, contextlib.redirect_stdout(said):
        exec(talk.replace("10911", str(broker.address[1])), {})
        exec(look.replace("/path/to/store", str(broker.store)), {})
    sent, pulled, record = said.getvalue().splitlines()
    assert re.fullmatch(r"[0-9A-F]{32} 0", sent)
    assert re.fullmatch(r"FOUND \d+ bytes of records", pulled)
    assert record == "orders 0 42 b'hello'"
