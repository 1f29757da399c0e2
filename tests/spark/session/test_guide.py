"""The examples of docs/SPARK.md run as they are printed, with other folders and ports."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firearrow.client.local_broker import LocalBroker
from tests.spark.stores import KnownStore, send_known

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).resolve().parents[3] / "docs/SPARK.md"
Adapt = Callable[[str], str]


@pytest.fixture
def adapt(store: KnownStore, tmp_path: Path) -> Adapt:
    def adapt(text: str) -> str:
        return text.replace("/data/store", str(store.root)).replace("/data/", f"{tmp_path}/")

    return adapt


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    assert found
    return found


@pytest.mark.timeout(300)
def test_the_programs_run(
    spark: "SparkSession",
    fresh_broker: LocalBroker,
    store: KnownStore,
    adapt: Adapt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All in one session, one after the other."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    send_known(fresh_broker.name_server)
    for block in blocks("python"):
        text = adapt(block).replace("127.0.0.1:9876", fresh_broker.name_server)
        exec(compile(text, str(GUIDE), "exec"), names)
    keys = [row[0] for row in spark.table("orders_once").select("uniqKey").collect()]
    spark.sql("DROP TABLE orders_once")
    assert len(keys) == len(set(keys)) > 0
    assert names["orders"].count() == len(store.of("Orders"))
    assert spark.read.parquet(str(tmp_path / "orders")).columns == names["live"].columns
