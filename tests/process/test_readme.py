"""README's Python examples and commands run as printed, except for port and path.

Java's and Go's examples are run in tests/interop, Spark's in tests/spark.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import BrokerProcess

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_examples_run(tmp_path: Path) -> None:
    """One after the other, each in a process of its own, as a reader would."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.S)
    said = []
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        for example in examples:
            text = example.replace("9876", str(broker.name_server[1])).replace(
                "/path/to/store", str(broker.store)
            )
            done = subprocess.run(
                [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
            said.append(done.stdout.splitlines())
    assert said == [
        ["SEND_OK 0", "orders new ('42',) b'hello'"],
        ["SEND_OK"],
        ["orders 0 42 b'hello'", f"orders {said[2][1].split()[1]} None b'hello again'"],
    ]
