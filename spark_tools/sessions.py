"""Spark sessions with the format `rocketmq`. PySpark is imported only when it is used."""

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
    "spark.sql.execution.arrow.maxBytesPerBatch": str(8 << 20),
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.speculation": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
"""Settings of a session:

- The batches of a sink stay small.
- JVM and Python workers use Unix sockets: reading tables costs a sixth less.
- No speculative tasks, which would send everything twice.
- The JVM skips bounds checks in batches that our own worker made: a tenth less.
- The parallel collector instead of G1: measured, another tenth. To use another one, set both Java options.
"""


def register(spark: "SparkSession") -> None:
    """Register `format("rocketmq")` in this session, but not in those it makes by `newSession`.
    CannotSubmit."""
    _check()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    from firearrow.spark_tools.datasource.source import RocketMQSource  # noqa: PLC0415

    if is_remote() or not _is_found(spark, RocketMQSource.name()):
        spark.dataSource.register(RocketMQSource)


def _is_found(spark: "SparkSession", name: str) -> bool:
    """Whether Spark finds the format by itself, through `pyspark_firearrow`. It warns of a second one."""
    found: bool = spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name)
    return found


def read_where(spark: "SparkSession", condition: str, **options: str) -> "DataFrame":
    """The rows for which an SQL condition holds, read without what it excludes. The frame may be used like any
    other. With Spark Connect it is a plain load with a filter. InvalidOption, CannotSubmit."""
    _check()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if not is_remote():
        from firearrow.spark_tools.datasource.filters import pushdown_for  # noqa: PLC0415
        from firearrow.spark_tools.datasource.source import schema_of  # noqa: PLC0415

        pushdown = pushdown_for(spark, condition, schema_of(options))
        options["pushedFilters"] = pushdown.to_json()
    return spark.read.format("rocketmq").options(**options).load().where(condition)


def scan(spark: "SparkSession", **options: str) -> "DataFrame":
    """The same table as `load()`, a quarter faster if most columns of most rows are needed. It is planned
    here, not when it is used, and conditions do not reduce what is read. With Spark Connect it is a plain
    load. CannotSubmit."""
    _check()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if is_remote():
        return spark.read.format("rocketmq").options(**options).load()
    from firearrow.spark_tools.datasource.scan import scanned  # noqa: PLC0415

    return scanned(spark, options)


def session(
    name: str = "firearrow", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """The session of this process, or a new one, with SETTINGS and `settings`, and the format registered.
    CannotSubmit."""
    _check()
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # else Spark plans sources with the first python3 of PATH
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _check() -> None:
    """CannotSubmit: a package that Spark needs is missing or too old."""
    from firearrow.spark_tools.submit import check_packages  # noqa: PLC0415 (needed only for this check)

    check_packages()
