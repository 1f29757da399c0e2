"""The data source that Spark imports for the format `rocketmq`.

Spark imports this module for every user of any Python source, so it imports the rest of the package only when
it is used. Spark creates one in each process that needs it and pickles it: it has options only.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from firearrow.spark_tools.base.closed_pipe import silence_closed_pipe

if TYPE_CHECKING:
    from firearrow.spark_tools.plan.options import SourceOptions

silence_closed_pipe()  # of the workers that look for sources and those that plan: both import this module


class RocketMQSource(DataSource):
    """Each method raises InvalidOption for malformed options before it opens anything."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        """All columns, or those that the options name."""
        from firearrow.spark_tools.arrow import columns  # noqa: PLC0415 (see above; so are the imports below)

        options = self._options(None)
        return columns.spark_schema(options.columns or columns.ALL, options.properties)

    def reader(self, schema: StructType) -> DataSourceReader:
        from firearrow.spark_tools.datasource.reader import TableReader  # noqa: PLC0415
        from firearrow.spark_tools.datasource.rows import asked_columns  # noqa: PLC0415
        from firearrow.spark_tools.plan.batch import BatchPlan  # noqa: PLC0415
        from firearrow.spark_tools.plan.options import BATCH  # noqa: PLC0415
        from firearrow.spark_tools.plan.source import source_of  # noqa: PLC0415

        options = self._options(BATCH)
        return TableReader(BatchPlan(source_of(options, self.options), options), asked_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from firearrow.spark_tools.datasource.rows import asked_columns  # noqa: PLC0415
        from firearrow.spark_tools.datasource.stream import StreamReader  # noqa: PLC0415
        from firearrow.spark_tools.live.cluster import Cluster  # noqa: PLC0415
        from firearrow.spark_tools.plan.options import STREAM  # noqa: PLC0415
        from firearrow.spark_tools.plan.source import source_of  # noqa: PLC0415

        options = self._options(STREAM)
        target = Cluster.of(self.options) if options.commit_group is not None else None
        return StreamReader(source_of(options, self.options), options, asked_columns(schema), target)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from firearrow.spark_tools.datasource.sink import table_writer  # noqa: PLC0415

        return table_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from firearrow.spark_tools.datasource.stream_sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)

    def _options(self, use: str | None) -> "SourceOptions":
        """`use`: None if Spark does not report whether it is a batch or a stream."""
        from firearrow.spark_tools.plan.options import SourceOptions  # noqa: PLC0415

        return SourceOptions.of(self.options, use)


def schema_of(options: Mapping[str, str]) -> StructType:
    """The columns of a load with these options, without a round trip through Spark. InvalidOption."""
    schema = StructType.fromDDL(RocketMQSource(CaseInsensitiveDict(options)).schema())
    assert isinstance(schema, StructType)
    return schema
