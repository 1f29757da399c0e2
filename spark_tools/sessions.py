"""Sessions of Spark that know the format `rocketmq`. PySpark is imported when asked for: the rest needs none."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    " -XX:-UseG1GC -XX:+UseParallelGC"
)
SETTINGS: Mapping[str, str] = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.speculation": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
"""Filters reach the source; a sink's batches stay small; JVM and Python workers speak over Unix sockets, a sixth
cheaper for tables; no task is run twice at a time, which would send twice; the JVM does not look anew at the bounds of
each value of a batch that our own worker made, a tenth cheaper; its parallel collector instead of G1, as measured
another tenth. Who wants another collector gives both Java options himself."""


def register(spark: "SparkSession") -> None:
    """Makes `format("rocketmq")` known to this session, and to none made from it by `newSession`. CannotSubmit."""
    _check()
    from firearrow.spark_tools.datasource.source import RocketMQSource  # noqa: PLC0415

    spark.dataSource.register(RocketMQSource)


def read_where(spark: "SparkSession", condition: str, **options: str) -> "DataFrame":
    """A load of its own for one condition in SQL, which narrows what is read. Load again for the next condition: what
    is scanned twice, as the halves of a union, gets the narrower plan in both places."""
    return spark.read.format("rocketmq").options(**{**options, "pushDown": "true"}).load().where(condition)


def scan(spark: "SparkSession", **options: str) -> "DataFrame":
    """The format's table, as it is now, in a quarter less time where most columns of most rows are wanted. Planned here
    and not when it is used; conditions narrow nothing. With Spark Connect it is the format's own load. CannotSubmit."""
    _check()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if is_remote():
        return spark.read.format("rocketmq").options(**options).load()
    from firearrow.spark_tools.datasource.scan import scanned  # noqa: PLC0415

    return scanned(spark, options)


def session(
    name: str = "firearrow", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """The session of this process, or a new one, with SETTINGS and yours, the format registered. CannotSubmit."""
    _check()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else sources are planned by whatever is python3
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _check() -> None:
    """CannotSubmit: what Spark needs is not installed, or too old."""
    from firearrow.spark_tools.submit import check_packages  # noqa: PLC0415 (whoever reads a table needs no more of it)

    check_packages()
