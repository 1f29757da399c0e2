"""Translates Spark's filters, and SQL conditions, to a Pushdown. Spark applies all filters again, which costs
nanoseconds a row.

A condition is translated with Spark's own parser and optimizer, which resolves the names, inserts the casts and folds
the constants, in the session's time zone and ANSI mode, as it does for the query itself. What it would push to a source
is narrowed; nothing else is. That uses Spark's internal API, as there is no public one, and the driver.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from firearrow.spark_tools.plan.comparisons import EPOCH, compared, one_of, starts_with
from firearrow.spark_tools.plan.pushdown import Pushdown

COMPARISONS = {
    kind.__name__: kind
    for kind in (
        EqualTo,
        EqualNullSafe,
        GreaterThan,
        GreaterThanOrEqual,
        LessThan,
        LessThanOrEqual,
        StringStartsWith,
    )
}


def pushdown_of(filters: Iterable[Filter]) -> Pushdown:
    """The Pushdown of all filters together."""
    found = Pushdown()
    for each in filters:
        found = _pushed(found, each)
    return found


def _pushed(found: Pushdown, each: Filter) -> Pushdown:
    match each:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return compared(found, column, "==", value)
        case In((column,), values):
            return one_of(found, column, values)
        case StringStartsWith((column,), str(prefix)):
            return starts_with(found, column, prefix)
        case GreaterThan((column,), value):
            return compared(found, column, ">", value)
        case GreaterThanOrEqual((column,), value):
            return compared(found, column, ">=", value)
        case LessThan((column,), value):
            return compared(found, column, "<", value)
        case LessThanOrEqual((column,), value):
            return compared(found, column, "<=", value)
    return found


# ---- conditions ----


def pushdown_for(spark: SparkSession, condition: str, schema: StructType) -> Pushdown:
    """What rows of `schema` must have for the condition to hold. Spark's AnalysisException: the condition is
    invalid."""
    java = spark._jsparkSession
    no_rows = spark.sparkContext._jsc.emptyRDD()
    frame = java.createDataFrame(no_rows, java.parseDataType(schema.json())).where(condition)
    plan = frame.queryExecution().optimizedPlan()
    if plan.getClass().getSimpleName() != "Filter":  # constant, or a subquery
        return Pushdown()
    return pushdown_of(_filters_in(spark, plan.condition()))


def _filters_in(spark: SparkSession, condition: Any) -> Iterator[Filter]:  # noqa: ANN401
    """The filters that Spark can translate, of those that are joined by AND."""
    jvm = spark._jvm
    assert jvm is not None
    strategy = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy$")
    strategy = getattr(strategy, "MODULE$")
    parts = strategy.splitConjunctivePredicates(condition)
    for index in range(parts.size()):
        translated = strategy.translateFilter(parts.apply(index), False)
        found = _filter(translated.get()) if translated.isDefined() else None
        if found is not None:
            yield found


def _filter(java: Any) -> Filter | None:  # noqa: ANN401
    """The same filter in Python; None if it cannot narrow."""
    name = java.getClass().getSimpleName()
    if name == "In":
        return In((java.attribute(),), tuple(_value(each) for each in java.values()))
    kind = COMPARISONS.get(name)
    return None if kind is None else kind((java.attribute(),), _value(java.value()))


def _value(java: Any) -> Any:  # noqa: ANN401
    """py4j has translated strings and numbers already."""
    if not hasattr(java, "getClass"):
        return java
    name = java.getClass().getName()
    instant = java.toInstant() if name == "java.sql.Timestamp" else java
    if name in ("java.sql.Timestamp", "java.time.Instant"):
        return EPOCH + timedelta(seconds=instant.getEpochSecond(), microseconds=instant.getNano() // 1000)
    return java
