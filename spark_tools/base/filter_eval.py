"""FilterEvaluator: applies a MessageFilter to records: native conditions first, then SQL92 on properties.

Created in the worker and used by one thread; keeps no records.
"""

from firearrow._native.columnar.record_spans import Spans
from firearrow._native.sql92.errors import Incomparable, InvalidExpression
from firearrow._native.sql92.expressions import names_read
from firearrow._native.sql92.parser import parse
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter

SQL_CHARS_MAX = 64 << 10


class FilterEvaluator:
    """InvalidOption when created: the filter's SQL92 expression is invalid."""

    def __init__(self, message_filter: MessageFilter) -> None:
        self._selection = message_filter.selection()
        self._filter = None if message_filter.sql is None else _SqlFilter(message_filter.sql)
        self.everything = self._selection.everything and self._filter is None
        """`keep` returns its argument."""

    def keep(self, spans: Spans) -> Spans:
        """The records that match, in their order, on the same window. RecordError: bytes changed while they
        were read."""
        kept = self._selection.keep(spans)
        if self._filter is None:
            return kept
        accepts = self._filter.accepts
        names, values = self._filter.names, kept.values
        return kept.take([index for index in range(len(kept)) if accepts(values(index, names))])


class _SqlFilter:
    """As in brokers: only True is a match; an unknown value or an impossible comparison is not."""

    def __init__(self, sql: str) -> None:
        if len(sql) > SQL_CHARS_MAX:
            raise InvalidOption(f"sql: {len(sql)} characters; an expression may have at most {SQL_CHARS_MAX}")
        try:
            expression = parse(sql)
        except InvalidExpression as error:
            raise InvalidOption(f"sql: {sql!r} is not an SQL92 filter: {error}") from None
        self._evaluate = expression.evaluate
        self.names = {name.encode(): name for name in names_read(expression)}
        """The properties that the expression reads."""

    def accepts(self, properties: dict[str, str]) -> bool:
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False
