"""README's Spark example runs as printed, except for the path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.client import Message, blocking
from firearrow.client.local_broker import LocalBroker
from tests.readme_examples import examples


@pytest.mark.timeout(400)
def test_the_example_counts_messages_by_tag(spark_environment: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "store"
    with (
        LocalBroker(store) as broker,
        blocking.Producer("orders-producer", name_server=broker.name_server) as producer,
    ):
        for tag in ("new", "new", "paid"):
            producer.send(Message("orders", b"hello", tags=tag))
    [example] = examples("Spark", "python")
    done = subprocess.run(
        [sys.executable, "-c", example.replace("/path/to/store", str(store))],
        env=os.environ | spark_environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"|new|2|", "|paid|1|"} <= {line.replace(" ", "") for line in done.stdout.splitlines()}
