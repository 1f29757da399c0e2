"""Reads a table through `mapInArrow`, with one copy less of each row.

Spark adds a projection that copies each row after a data source, but none after `mapInArrow`. In return, the
splits are planned when the data frame is created, and no filter is pushed. Spark's public `mapInArrow`
requires pandas although it does not use it here, so this calls the internal one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from firearrow.spark_tools.datasource.source import RocketMQSource, schema_of


@dataclass(frozen=True, slots=True)
class TableScan:
    """In the worker: partition numbers → their rows."""

    reader: DataSourceReader
    parts: Sequence[InputPartition]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.parts[number])


def scanned(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The table that the options describe, planned now. InvalidOption, TopicNotFound, DataLoss."""
    schema = schema_of(options)
    reader = RocketMQSource(CaseInsensitiveDict(options)).reader(schema)
    parts = reader.partitions()
    numbers = spark.range(len(parts), numPartitions=max(1, len(parts)))
    function = UserDefinedFunction(
        TableScan(reader, parts), schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    rows = numbers._jdf.mapInArrow(function(numbers["id"])._jc, False, None)
    return DataFrame(rows, spark)
