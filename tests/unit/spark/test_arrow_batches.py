"""Columns as Arrow batches: valid, freed if they are not used, empty if there is nothing. No session."""

import resource
from pathlib import Path

import pytest

from firearrow._native.columnar.columns import Columns
from firearrow.spark_tools.arrow.columns import ALL, arrays, record_batch, record_batches
from firearrow.spark_tools.tables.dataset import even
from tests.spark.record_bytes import record_bytes, spans_of

BROKER = "broker"


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_without_properties_there_are_none() -> None:
    found = Columns(spans_of(record_bytes(b"", b"TAGS\x01t")), properties=False)
    for field in ("properties", b"TAGS"):
        with pytest.raises(ValueError, match="made without properties"):
            found.batch([field])


def test_an_unknown_column_is_refused() -> None:
    with pytest.raises(KeyError, match="colour"):
        Columns(spans_of(record_bytes(b""))).batch(["topic", "colour"])


def test_properties_by_name_are_texts_or_null() -> None:
    spans = spans_of(
        record_bytes(b"", b"a\x01x\x02b\x01\xc3\xa4"), record_bytes(b"", b"b\x01y"), record_bytes(b"")
    )
    queues, first, second, none = arrays(spans, ["queueId"], ["a", "b", "c"])
    assert (
        queues.to_pylist()
        == record_batch(spans, ["queueId"], BROKER, open_bodies=False)["queueId"].to_pylist()
    )
    assert (first.to_pylist(), second.to_pylist()) == (["x", None, None], ["ä", "y", None])
    assert (first.null_count, second.null_count, none.null_count) == (2, 1, 3)


@pytest.mark.parametrize("size", [1000, 1001, 1400, 1501, 2015, 2600, 9000])
def test_a_range_is_cut_evenly(size: int) -> None:
    """What `about` 1000 means: none is larger by half, the last one not much smaller than the others."""
    each = even(size, 1000)
    assert 1000 <= each <= 1500 * 1.02
    assert (size - 1) % each + 1 >= each / 2


def test_a_range_of_unknown_size_is_cut_by_what_is_asked_for() -> None:
    assert even(0, 1000) == 1000


def test_batches_are_valid_and_say_how_many_are_null() -> None:
    spans = spans_of(
        *(record_bytes(bytes(number), b"TAGS\x01t" * (number % 3 == 0)) for number in range(100))
    )
    for batch in record_batches(spans, ALL, BROKER, open_bodies=False, count_max=33):
        batch.validate(full=True)
        assert batch["tags"].null_count == batch["tags"].to_pylist().count(None)
        assert batch["topic"].buffers()[0] is None, "all are there"


def test_a_column_outlives_its_batch_and_an_unused_batch_is_freed() -> None:
    """Enough batches to show in the process's memory."""
    spans = spans_of(*(record_bytes(b"b" * 1000) for _ in range(1000)))
    body = record_batch(spans, ALL, BROKER, open_bodies=False)["body"].slice(10, 2)
    before = resident()
    for _ in range(200):
        Columns(spans).batch(["body"])
        record_batch(spans, ["body", "properties"], BROKER, open_bodies=False)
    assert resident() - before < 100 << 20
    assert body.to_pylist() == [b"b" * 1000] * 2
