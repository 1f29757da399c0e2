"""README's Spark example runs as printed, except for the path."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firearrow.client import Message, blocking
from firearrow.client.local_broker import LocalBroker
from tests.readme_examples import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(400)
def test_the_example_counts_messages_by_tag(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the session that is there; test_sessions.py shows what a new one is."""
    store = tmp_path / "store"
    with (
        LocalBroker(store) as broker,
        blocking.Producer("orders-producer", name_server=broker.name_server) as producer,
    ):
        for tag in ("new", "new", "paid"):
            producer.send(Message("orders", b"hello", tags=tag))
    [example] = examples("Spark", "python")
    exec(compile(example.replace("/path/to/store", str(store)), "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert {"|new|2|", "|paid|1|"} <= {line.replace(" ", "") for line in lines}
