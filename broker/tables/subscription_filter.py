"""Filters: what a subscription lets through, as the store's `get` takes it. Compiles each text once. Loop thread."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple
from weakref import finalize

from firearrow._native.sql92.expressions import Expression, names_read
from firearrow._native.sql92.parser import parse
from firearrow._native.sql92.tokens import InvalidExpression
from firearrow._native.sql92.values import Incomparable
from firearrow._native.store.log.properties import property_values
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Property as Names
from firearrow.broker.tables import name_rules
from firearrow.broker.tables.subscriptions import EXPRESSION_CHARS_MAX, Subscription

SQL92 = "SQL92"
RETRY_NAMES = {Names.RETRY_TOPIC.encode(): Names.RETRY_TOPIC}
ALIVE_MAX = 8
"""Texts compiled at once, kept here or used by held pulls, may have so many times the characters of those kept."""

Accept = Callable[[memoryview], bool]


class EntryFilter(NamedTuple):
    """For `MessageStore.get`: hashes of tags, None for all; what else is asked of each record, None for nothing."""

    tags: frozenset[int] | None
    accept: Accept | None


class CompiledFilter:
    """A compiled expression: what remains of it is a closure, and the names of the properties that it reads."""

    def __init__(self, expression: Expression) -> None:
        self._evaluate = expression.evaluate
        self._names = {name.encode(): name for name in names_read(expression)}

    def accept(self, record: memoryview) -> bool:
        return self.matches(property_values(record, self._names))

    def matches(self, properties: dict[str, str]) -> bool:
        """Unknown is no match, nor is a comparison that cannot be made."""
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False


class FilterCache:
    """`subscribed(group, topic)` is what a group wants of a topic, None if nothing is known of it."""

    def __init__(self, config: Config, subscribed: Callable[[str, str], Subscription | None]) -> None:
        self._config = config
        self._subscribed = subscribed
        self._compiled: OrderedDict[str, CompiledFilter | InvalidExpression] = OrderedDict()
        self._chars = 0
        self._alive = 0

    def select(self, subscription: Subscription, group: str, *, given: bool) -> EntryFilter:
        """`given`: the subscription came with the request, not with a heartbeat. Refusal in Apache's words."""
        if subscription.is_tag:
            return EntryFilter(None if subscription.class_filter else subscription.codes or None, None)
        if given:
            self._must_be_on(subscription)
        try:
            found = self.compiled(subscription)
        except InvalidExpression:
            raise _unknown(given=given) from None
        self._must_be_on(subscription)
        if subscription.class_filter:
            return EntryFilter(None, None)
        if self._config.options.filter_retries and subscription.topic.startswith(name_rules.RETRY_PREFIX):
            return EntryFilter(None, self._retried(group))
        return EntryFilter(None, found.accept)

    def check(self, subscription: Subscription) -> None:
        """Refusal with the words that say what is wrong with the expression, and where."""
        if subscription.is_tag:
            return
        self._must_be_on(subscription)
        try:
            self.compiled(subscription)
        except InvalidExpression as wrong:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(wrong)) from None

    def compiled(self, subscription: Subscription) -> CompiledFilter:
        """InvalidExpression, again for every caller; the texts used last are kept."""
        text = subscription.expression
        if subscription.expression_type != SQL92:
            raise InvalidExpression(
                f"no filter reads expressions of type {subscription.expression_type[:64]}"
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
            raise Refusal(ResponseCode.SYSTEM_BUSY, "too many different expressions are in use")
        try:
            made = CompiledFilter(parse(text))
            self._alive += len(text)
            finalize(made, self._ended, len(text)).atexit = False
        except InvalidExpression as wrong:
            made = InvalidExpression(str(wrong))
        self._compiled[text] = made
        self._chars += len(text) + 1
        while self._chars > self._config.options.filter_chars_max and len(self._compiled) > 1:
            self._chars -= len(self._compiled.popitem(last=False)[0]) + 1
        return made

    def _ended(self, chars: int) -> None:
        """A filter is neither kept nor used by a held pull any more."""
        self._alive -= chars

    def _retried(self, group: str) -> Accept:
        """A message that comes again is asked what the group asks of the topic that it was sent to; of a topic that
        the group consumes by tags, or not at all, nothing is asked."""

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

    def _must_be_on(self, subscription: Subscription) -> None:
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
