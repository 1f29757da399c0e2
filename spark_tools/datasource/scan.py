"""The table as a function from batches to batches: one copy of each row less than the format's.

Behind every source of rows Spark puts a projection that copies each row again; behind `mapInArrow` it puts none. For
that the parts are planned when the frame is made, and no filter is pushed. Spark's public `mapInArrow` asks for pandas,
which it does not use here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from firearrow.spark_tools.datasource.source import RocketMQSource


@dataclass(frozen=True, slots=True)
class TableScan:
    """In the worker: numbers of parts → their rows."""

    reader: DataSourceReader
    parts: Sequence[InputPartition]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reader.read(self.parts[number])


def scanned(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """What the options of the format ask for, as it is now. OptionWrong, TopicMissing, DataLoss."""
    source = RocketMQSource(CaseInsensitiveDict(options))
    schema = StructType.fromDDL(source.schema())
    assert isinstance(schema, StructType)
    reader = source.reader(schema)
    parts = reader.partitions()
    numbers = spark.range(len(parts), numPartitions=max(1, len(parts)))
    function = UserDefinedFunction(
        TableScan(reader, parts), schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    rows = numbers._jdf.mapInArrow(function(numbers["id"])._jc, False, None)
    return DataFrame(rows, spark)
