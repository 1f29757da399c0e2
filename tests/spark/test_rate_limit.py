"""Configured rates are kept, measured by a clock that advances only in pauses."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firearrow.spark_tools.jobs import import_, import_task, parquet_input, replay, send_task
from firearrow.spark_tools.jobs.rate_limit import BURST_S, TokenBucket
from tests.spark.replaying import job
from tests.spark.stores import KnownStore
from tests.support.clock import ManualClock

if TYPE_CHECKING:
    from firearrow.client.local_broker import LocalBroker

STEP_BYTES = 2000
STEP_ROWS = 10


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], ManualClock]:
    """`paced(module)`: the clock of all buckets that the module makes from now on."""

    def paced(module: ModuleType) -> ManualClock:
        clock = ManualClock(100_000)
        monkeypatch.setattr(module, "TokenBucket", lambda rate: TokenBucket(rate, clock, clock.sleep))
        return clock

    return paced


def check(clock: ManualClock, amount: float, rate: float, step: float) -> None:
    """It does not wait after the last step, nor for what is allowed at once."""
    assert (amount - 2 * step) / rate - BURST_S <= clock.elapsed <= amount / rate


@pytest.mark.parametrize("limit", [("--rate", "messages", 10), ("--bytes-rate", "bytes", 1000)])
def test_a_replay_keeps_its_rates(
    store: KnownStore,
    broker: "LocalBroker",
    topics: Callable[..., str],
    paced: Callable[[ModuleType], ManualClock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: tuple[str, str, int],
) -> None:
    option, count, rate = limit
    monkeypatch.setattr(send_task, "BATCH_BYTES", STEP_BYTES)
    run, clock = job(replay.cli, tmp_path, monkeypatch), paced(send_task)
    ran = run(
        "--path",
        str(store.root),
        "--topics",
        "Readings",
        "--target",
        broker.name_server,
        "--to-topic",
        topics(1),
        option,
        str(rate),
    )
    assert ran.code == 0, ran.err
    amount = ran.report["totals"][count]
    step = STEP_BYTES if count == "bytes" else STEP_BYTES // 100
    check(clock, amount, rate, step)


@pytest.mark.parametrize(("option", "rate"), [("--rate", 10), ("--bytes-rate", 1000)])
def test_an_import_keeps_its_rates(
    broker: "LocalBroker",
    topics: Callable[..., str],
    paced: Callable[[ModuleType], ManualClock],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    rate: int,
) -> None:
    table = pa.table({"body": ["x" * 100] * 300})
    pq.write_table(table, tmp_path / "x.parquet")
    monkeypatch.setattr(parquet_input, "BATCH_ROWS", STEP_ROWS)
    run, clock = job(import_.cli, tmp_path, monkeypatch), paced(import_task)
    ran = run(
        "--parquet",
        str(tmp_path / "x.parquet"),
        "--target",
        broker.name_server,
        "--to-topic",
        topics(1),
        option,
        str(rate),
    )
    assert ran.code == 0, ran.err
    amount = len(table) if option == "--rate" else table.nbytes
    check(clock, amount, rate, STEP_ROWS * amount / len(table))
