"""The cost of the sink's batch bodies on one core, for three sizes: `pytest bench --benchmark-enable`."""

import numpy as np
import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.columnar.row_encoder import RowEncoder
from firearrow.spark_tools.arrow.message_columns import rows_of

ROWS = 10_000
BATCH_BYTES = 1 << 20


@pytest.fixture(scope="module", params=[128, 1024, 10240])
def batch(request: pytest.FixtureRequest) -> pa.RecordBatch:
    columns = {
        "body": ["x" * request.param] * ROWS,
        "keys": [f"order-{number:08}" for number in range(ROWS)],
        "tags": [f"tag{number % 5}" for number in range(ROWS)],
        "properties": pa.array(
            [[("colour", "red"), ("CLUSTER", "c")]] * ROWS, pa.map_(pa.string(), pa.string())
        ),
    }
    return pa.record_batch(columns)


def all_of(rows: RowEncoder) -> int:
    order, start = np.arange(rows.count, dtype=np.int64).data, 0
    while start < rows.count:
        _, start = rows.batch(order, start, bytes_max=BATCH_BYTES, count_max=1024)
    return start


def test_rows(benchmark: BenchmarkFixture, batch: pa.RecordBatch) -> None:
    """`extra_info` has millions of rows a second, at the best."""
    done = benchmark(lambda: all_of(rows_of(batch, ids=("0" * 20, 0))))
    assert done == ROWS
    if benchmark.stats is not None:
        benchmark.extra_info["million_a_second"] = ROWS / benchmark.stats.stats.min / 1e6
