"""A table read without a session: parts, batches of rows, narrow schemas, pickles, and Spark's pitfalls."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from firearrow.spark_tools.arrow import columns
from firearrow.spark_tools.base.errors import DataLoss, InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.datasource.filters import pushdown_of
from firearrow.spark_tools.datasource.reader import TableReader
from firearrow.spark_tools.datasource.rows import RangePartition, TaskReader, asked_columns
from firearrow.spark_tools.datasource.source import RocketMQSource
from firearrow.spark_tools.plan.batch import BatchPlan
from firearrow.spark_tools.plan.options import BATCH, SourceOptions
from tests.spark.fakes import FakeLog, queue_of


@pytest.fixture
def log() -> FakeLog:
    log = FakeLog()
    log.add(queue_of(0), 100, tags="A")
    log.add(queue_of(1), 50, tags="B")
    return log


NAMES = ("queueId", "queueOffset")


def plan(log: FakeLog, **options: str) -> BatchPlan:
    return BatchPlan(log, SourceOptions.of({"path": "/memory", "topic": "Orders", **options}, BATCH))


def reader(log: FakeLog, **options: str) -> TableReader:
    return TableReader(plan(log, **options), NAMES)


def rows(reader: TableReader) -> list[dict[str, Any]]:
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def offsets(reader: TableReader) -> list[tuple[int, int]]:
    return [(row["queueId"], row["queueOffset"]) for row in rows(reader)]


WHOLE = [(0, offset) for offset in range(100)] + [(1, offset) for offset in range(50)]


def test_every_row_once_and_in_the_queue_s_order(log: FakeLog) -> None:
    assert offsets(reader(log)) == WHOLE
    assert offsets(reader(log, minPartitions="7")) == WHOLE
    assert offsets(reader(log, batchRows="1")) == WHOLE


def test_batches_hold_their_rows_and_bytes(log: FakeLog) -> None:
    (part,) = (each := reader(log, batchRows="30")).partitions()
    assert [batch.num_rows for batch in each.read(part)] == [30, 30, 30, 10, 30, 20]
    log.add(queue_of(2), 10, body=bytes(30_000))
    few = reader(log, batchBytes="65536")
    batches = [batch for part in few.partitions() for batch in few.read(part)]
    assert max(batch.num_rows for batch in batches[-4:]) <= 3


def test_a_partition_that_is_not_ours_gives_nothing(log: FakeLog) -> None:
    """Spark makes InputPartition(None) of an empty list of parts."""
    assert list(reader(log).read(InputPartition(None))) == []


def pushed(log: FakeLog, *filters: Filter, **options: str) -> TableReader:
    return reader(log, pushedFilters=pushdown_of(filters).to_json(), **options)


def test_filters_narrow_ranges_and_messages(log: FakeLog) -> None:
    narrowed = pushed(log, EqualTo(("queueId",), 0), EqualTo(("tags",), "B"))
    parts = narrowed.partitions()
    assert [each.queue.queue_id for part in parts for each in part.value] == [0]
    assert offsets(narrowed) == []
    assert offsets(pushed(log, EqualTo(("tags",), "B"))) == WHOLE[100:]


def test_filters_that_exclude_each_other_read_nothing(log: FakeLog) -> None:
    none = pushed(log, EqualTo(("tags",), "B"), tags="A")
    assert none.partitions() == []
    assert log.asked_bounds == 0
    assert list(none.read(RangePartition((QueueRange(queue_of(0), 0, 5),)))) == []


def test_spark_pushes_no_filters() -> None:
    """It keeps one plan for each load, and would use the filters of one scan for all of them."""
    source = RocketMQSource({"path": "/memory"})
    made = source.reader(StructType([StructField("topic", StringType())]))
    assert type(made).pushFilters is DataSourceReader.pushFilters


def test_what_travels_can_be_pickled(log: FakeLog) -> None:
    pickle = CloudPickleSerializer()
    there = pickle.loads(pickle.dumps(reader(log)))
    (part,) = pickle.loads(pickle.dumps(there.partitions()))
    assert sum(batch.num_rows for batch in there.read(part)) == 150
    source = pickle.loads(pickle.dumps(RocketMQSource({"path": "/memory", "topic": "Orders"})))
    assert source.schema() == columns.spark_schema()


def test_loss_while_reading_ends_it_or_is_counted(log: FakeLog) -> None:
    failing = reader(log)
    (part,) = failing.partitions()
    log.expire(queue_of(0), 10)
    with pytest.raises(DataLoss, match=r"0\[0\.\.10\): expired"):
        list(failing.read(part))
    assert log.opened == 0
    assert sum(batch.num_rows for batch in reader(log, failOnDataLoss="false").read(part)) == 140


def test_stopping_early_closes_the_reader(log: FakeLog) -> None:
    early = reader(log, batchRows="1")
    batches = early.read(early.partitions()[0])
    assert next(batches).num_rows == 1
    assert log.opened == 1
    batches.close()  # type: ignore[attr-defined]
    assert log.opened == 0


def test_batches_are_of_the_schema_that_spark_demands(log: FakeLog) -> None:
    fields = [StructField("queueOffset", LongType()), StructField("topic", StringType())]
    schema = StructType(fields)
    names = asked_columns(schema)
    assert names == ("queueOffset", "topic")
    options = SourceOptions.of({"path": "/memory", "topic": "Orders"}, BATCH)
    part = RangePartition((QueueRange(queue_of(0), 0, 1),))
    (batch,) = TaskReader(log, MessageFilter(), names, options).of(part)
    assert to_arrow_schema(schema, timezone="UTC").equals(batch.schema)
    assert isinstance(batch, pa.RecordBatch)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (StructField("offset", LongType()), "unknown column 'offset'"),
        (StructField("queueId", LongType()), "schema: queueId is int32, not int64; cast it"),
        (StructField("topic", StringType(), nullable=False), "schema: topic cannot be `not null`"),
    ],
)
def test_a_schema_that_cannot_be_given_is_refused(field: StructField, expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        asked_columns(StructType([field]))


def test_the_schema_follows_columns_and_properties() -> None:
    def schema(**options: str) -> str:
        return RocketMQSource({"path": "/memory", **options}).schema()

    assert schema() == columns.spark_schema()
    assert schema(columns="queueId,body") == "queueId int, body binary"
    assert "properties" not in schema(includeProperties="false")
    with pytest.raises(InvalidOption, match="unknown column 'bdy'"):
        schema(columns="bdy")
    assert schema(maxOffsetsPerTrigger="5") == columns.spark_schema()
