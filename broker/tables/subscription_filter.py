"""FilterCache: compiles subscriptions to the filters of the store's `get`, each expression once.

Loop thread.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from weakref import finalize

from firearrow._native.protocol import name_rules
from firearrow._native.sql92.errors import Incomparable, InvalidExpression
from firearrow._native.store.log.properties import property_values
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Property as Names
from firearrow.broker.tables.subscriptions import EXPRESSION_CHARS_MAX, Subscription

SQL92 = "SQL92"
RETRY_NAMES = {Names.RETRY_TOPIC.encode(): Names.RETRY_TOPIC}
ALIVE_MAX = 8
"""Limit of all compiled expressions, cached or in use by held pulls, in sizes of the cache (characters)."""

Accept = Callable[[memoryview], bool]


class EntryFilter(NamedTuple):
    """For `MessageStore.get`: hashes of tags, None for all; `accept` tests each record, None accepts all."""

    tags: frozenset[int] | None
    accept: Accept | None


class CompiledFilter:
    """A compiled expression: a closure, and the names of the properties that it reads. InvalidExpression."""

    def __init__(self, text: str) -> None:
        from firearrow._native.sql92.expressions import names_read  # noqa: PLC0415 (not needed for a start)
        from firearrow._native.sql92.parser import parse  # noqa: PLC0415

        expression = parse(text)
        self._evaluate = expression.evaluate
        self._names = {name.encode(): name for name in names_read(expression)}

    def accept(self, record: memoryview) -> bool:
        return self.matches(property_values(record, self._names))

    def matches(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; unknown and incomparable values do not match."""
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False


class FilterCache:
    """`subscribed(group, topic)` returns the group's subscription to a topic, None if it is unknown."""

    def __init__(self, config: Config, subscribed: Callable[[str, str], Subscription | None]) -> None:
        self._config = config
        self._subscribed = subscribed
        self._compiled: OrderedDict[str, CompiledFilter | InvalidExpression] = OrderedDict()
        self._chars = 0
        self._alive = 0

    def select(self, subscription: Subscription, group: str, *, given: bool) -> EntryFilter:
        """`given`: the request carries the subscription itself. Refusal in Apache's words."""
        if subscription.is_tag:
            return EntryFilter(None if subscription.class_filter else subscription.codes or None, None)
        if given:
            self._check_enabled(subscription)
        try:
            compiled = self.compiled(subscription)
        except InvalidExpression:
            raise _unknown(given=given) from None
        self._check_enabled(subscription)
        if subscription.class_filter:
            return EntryFilter(None, None)
        if self._config.options.filter_retries and subscription.topic.startswith(name_rules.RETRY_PREFIX):
            return EntryFilter(None, self._retry_filter(group))
        return EntryFilter(None, compiled.accept)

    def check(self, subscription: Subscription) -> None:
        """Refusal that states what is wrong with the expression, and where."""
        if subscription.is_tag:
            return
        self._check_enabled(subscription)
        try:
            self.compiled(subscription)
        except InvalidExpression as wrong:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(wrong)) from None

    def compiled(self, subscription: Subscription) -> CompiledFilter:
        """The compiled expression, cached by last use. InvalidExpression, also for cached faults."""
        text = subscription.expression
        if subscription.expression_type != SQL92:
            raise InvalidExpression(
                f"expressions of type {subscription.expression_type[:64]} are not supported"
            )
        if len(text) > EXPRESSION_CHARS_MAX:
            raise InvalidExpression(
                f"an expression of {len(text)} characters, at most {EXPRESSION_CHARS_MAX}"
            )
        found = self._compiled.get(text)
        if found is None:
            found = self._compile(text)
        else:
            self._compiled.move_to_end(text)
        if isinstance(found, InvalidExpression):
            raise found
        return found

    def _compile(self, text: str) -> CompiledFilter | InvalidExpression:
        made: CompiledFilter | InvalidExpression
        if self._alive > ALIVE_MAX * self._config.options.filter_chars_max:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY, "too many different filter expressions are in use: try again later"
            )
        try:
            made = CompiledFilter(text)
            self._alive += len(text)
            finalize(made, self._released, len(text)).atexit = False
        except InvalidExpression as wrong:
            made = InvalidExpression(str(wrong))
        self._compiled[text] = made
        self._chars += len(text) + 1
        while self._chars > self._config.options.filter_chars_max and len(self._compiled) > 1:
            self._chars -= len(self._compiled.popitem(last=False)[0]) + 1
        return made

    def _released(self, chars: int) -> None:
        """A compiled expression is neither cached nor in use any more."""
        self._alive -= chars

    def _retry_filter(self, group: str) -> Accept:
        """Filters retried messages by the group's subscription to their original topic; accepts all messages
        of topics that the group consumes by tags or not at all."""

        def accept(record: memoryview) -> bool:
            topic = property_values(record, RETRY_NAMES).get(Names.RETRY_TOPIC, "")
            subscription = self._subscribed(group, topic)
            if subscription is None or subscription.is_tag or subscription.class_filter:
                return True
            try:
                return self.compiled(subscription).accept(record)
            except InvalidExpression:
                return True

        return accept

    def _check_enabled(self, subscription: Subscription) -> None:
        if not self._config.options.property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by " + subscription.expression_type,
            )


def _unknown(*, given: bool) -> Refusal:
    if given:
        return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
    remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
