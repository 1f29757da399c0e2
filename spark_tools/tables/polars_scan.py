"""A topic as a lazy frame of Polars, which pushes columns, filters and limits into the read. Any thread."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.plan.comparisons import compared, one_of, starts_with
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.tables.dataset import RocketMQDataset, Where, dataset

if TYPE_CHECKING:
    import polars as pl

OPERATORS = {"Eq": "==", "Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<="}
"""Of Polars."""
TURNED = {"==": "==", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
DEPTH_MAX = 100


def scan_polars(source: Where, topic: str | Sequence[str] | None = None, **options: Any) -> "pl.LazyFrame":  # noqa: ANN401
    """Arguments as for `dataset`. The column `properties` is a list of structs, `key` and `value`. InvalidOption."""
    try:
        from polars.io.plugins import register_io_source  # noqa: PLC0415
    except ImportError:
        raise InvalidOption("scan_polars needs the package polars: pip install polars") from None

    found = dataset(source, topic, **options)
    schema = _frame(found.schema.empty_table()).schema

    def scan(
        with_columns: list[str] | None,
        predicate: "pl.Expr | None",
        n_rows: int | None,
        _batch_size: int | None,
    ) -> Iterator["pl.DataFrame"]:
        yield from _frames(found, with_columns, predicate, n_rows)

    return register_io_source(scan, schema=schema, explain_name=str(found))


def _frames(
    found: RocketMQDataset, with_columns: list[str] | None, predicate: "pl.Expr | None", n_rows: int | None
) -> Iterator["pl.DataFrame"]:
    needed = list(found.names if with_columns is None else with_columns)
    if predicate is not None:
        needed += [name for name in predicate.meta.root_names() if name not in needed]
    pushdown = None if predicate is None else pushdown_of_polars(predicate)
    left = n_rows
    for batch in found.scan(needed, pushdown).batches():
        frame = _frame(batch)
        if predicate is not None:
            frame = frame.filter(predicate)
        if left is not None:
            frame = frame.head(left)
            left -= len(frame)
        yield frame if with_columns is None else frame.select(with_columns)
        if left == 0:
            return


def _frame(table: Any) -> "pl.DataFrame":  # noqa: ANN401 (a batch or a table)
    import polars as pl  # noqa: PLC0415 (an extra)

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


# ---- filters ----


def pushdown_of_polars(predicate: "pl.Expr") -> Pushdown:
    found = Pushdown()
    for condition, tree in _polars_conditions(predicate):
        found = _polars_narrowed(found, condition, tree)
    return found


def _polars_conditions(expr: "pl.Expr", depth: int = 0) -> Iterator[tuple["pl.Expr", Any]]:
    """The parts that are joined by `&`, each with its structure."""
    try:
        tree = json.loads(expr.meta.serialize(format="json"))
    except Exception:  # Polars has several, and its structure is not public
        return
    if _member(tree, "BinaryExpr", "op") in ("And", "LogicalAnd") and depth <= DEPTH_MAX:
        for part in expr.meta.pop():
            yield from _polars_conditions(part, depth + 1)
    else:
        yield expr, tree


def _polars_narrowed(found: Pushdown, condition: "pl.Expr", tree: object) -> Pushdown:
    operator = OPERATORS.get(str(_member(tree, "BinaryExpr", "op")), "")
    is_in = _member(tree, "Function", "function", "Boolean", "IsIn") is not None
    prefix = _member(tree, "Function", "function", "StringExpr") == "StartsWith"
    if not (operator or is_in or prefix):
        return found
    parts = condition.meta.pop()
    if len(parts) != 2:
        return found
    first, second = reversed(parts)  # `pop` has the last one first
    if _member(tree, "BinaryExpr", "right", "Column") is not None:
        first, second, operator = second, first, TURNED[operator]
    if not (first.meta.is_column() and second.meta.is_literal()):
        return found
    column, value = first.meta.output_name(), _value(second)
    if is_in:
        is_list = isinstance(value, list) and None not in value  # with `nulls_equal`, null is one of them
        return one_of(found, column, value) if is_list else found
    if prefix:
        return starts_with(found, column, value) if isinstance(value, str) else found
    return found if value is None else compared(found, column, operator, value)


def _value(literal: "pl.Expr") -> Any:  # noqa: ANN401
    import polars as pl  # noqa: PLC0415 (an extra)

    series = pl.select(literal).to_series()
    return series.to_list()[0] if len(series) == 1 else series.to_list()


def _member(tree: object, *names: str) -> object:
    for name in names:
        if not isinstance(tree, dict) or name not in tree:
            return None
        tree = tree[name]
    return tree
