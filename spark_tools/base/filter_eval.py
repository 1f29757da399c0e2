"""Predicate: a Choice at work on records. First what is compared natively, then SQL92 on the properties that it names.

Made where it is used, in the thread that uses it; keeps nothing of what it sees.
"""

from firearrow._native.columnar.record_spans import Spans
from firearrow._native.sql92.expressions import names_read
from firearrow._native.sql92.parser import parse
from firearrow._native.sql92.tokens import InvalidExpression
from firearrow._native.sql92.values import Incomparable
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter

SQL_CHARS_MAX = 64 << 10


class FilterEvaluator:
    """InvalidOption when made: the choice's expression is none."""

    def __init__(self, message_filter: MessageFilter) -> None:
        self._selection = message_filter.selection()
        self._filter = None if message_filter.sql is None else _SqlFilter(message_filter.sql)
        self.everything = self._selection.everything and self._filter is None
        """`keep` gives back what it gets."""

    def keep(self, spans: Spans) -> Spans:
        """The wanted ones, in their order, on the same window. RecordError: bytes have changed meanwhile."""
        kept = self._selection.keep(spans)
        if self._filter is None:
            return kept
        accepts = self._filter.accepts
        names, values = self._filter.names, kept.values
        return kept.take([index for index in range(len(kept)) if accepts(values(index, names))])


class _SqlFilter:
    """As brokers do it: only True is a match; unknown is none, nor is a comparison that cannot be made."""

    def __init__(self, sql: str) -> None:
        if len(sql) > SQL_CHARS_MAX:
            raise InvalidOption(f"sql: an expression of {len(sql)} characters, at most {SQL_CHARS_MAX}")
        try:
            expression = parse(sql)
        except InvalidExpression as wrong:
            raise InvalidOption(f"sql: {sql!r} is no SQL92 filter: {wrong}") from None
        self._evaluate = expression.evaluate
        self.names = {name.encode(): name for name in names_read(expression)}
        """Of the properties that it reads."""

    def accepts(self, properties: dict[str, str]) -> bool:
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False
