"""The cost of batch bodies made of records: `pytest bench/test_bulk_batches.py --benchmark-enable`."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from firearrow._native.columnar.batch_encoder import PropertyEdits, batch_body
from firearrow._native.columnar.record_spans import Spans
from tests.spark.record_bytes import properties_bytes, record_bytes, spans_of

OF_BATCHES = {"UNIQ_KEY": "7F000001" * 4, "WAIT": "true", "TAGS": "TagA"}
OF_SINGLES = OF_BATCHES | {"MSG_REGION": "DefaultRegion", "CLUSTER": "DefaultCluster", "TRACE_ON": "true"}
BATCH_BYTES = 1 << 20


def encode(spans: Spans, edits: PropertyEdits) -> int:
    """All of them, in batches; how many."""
    at = 0
    while at < len(spans):
        at = batch_body(spans, at, edits, bytes_max=BATCH_BYTES).next
    return at


@pytest.mark.parametrize("provenance", [None, ("job", "broker-a")], ids=["plain", "provenance"])
@pytest.mark.parametrize("properties", [OF_BATCHES, OF_SINGLES], ids=["kept", "dropped"])
@pytest.mark.parametrize("body_bytes", [128, 1024])
def test_encoding(
    benchmark: BenchmarkFixture,
    body_bytes: int,
    properties: dict[str, str],
    provenance: tuple[str, str] | None,
) -> None:
    count = (16 << 20) // body_bytes
    text = properties_bytes(properties)
    spans = spans_of(*(record_bytes(b"x" * body_bytes, text, queue_offset=n) for n in range(count)))
    assert benchmark(encode, spans, PropertyEdits(provenance=provenance)) == count
