"""Subscription: what a consumer wants of a topic (SubscriptionData). An immutable value."""

from dataclasses import dataclass

from firearrow._native.base.hash import java_hash
from firearrow.broker.tables import reading

ALL = "*"
TAG = "TAG"
EXPRESSION_CHARS_MAX = 64 << 10


class InvalidSubscription(ValueError):
    """An expression that cannot be read."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`version` grows with each change at the client; `codes` are Java's hashes of the tags, none for `*`."""

    topic: str
    expression: str = ALL
    tags: tuple[str, ...] = ()
    codes: frozenset[int] = frozenset()
    version: int = 0
    expression_type: str = TAG
    class_filter: bool = False

    @property
    def is_tag(self) -> bool:
        return self.expression_type in (TAG, "")

    @property
    def weight(self) -> int:
        """About how much memory it takes, in hundreds of bytes."""
        return 3 + len(self.tags) + len(self.codes) + len(self.expression) // 64

    def to_object(self) -> dict[str, object]:
        return {
            "classFilterMode": self.class_filter,
            "codeSet": sorted(self.codes),
            "expressionType": self.expression_type,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }

    @staticmethod
    def from_object(value: object) -> "Subscription":
        """As heartbeats carry it; C++ and Go leave members out, send texts for numbers. ValueError."""
        of = reading.members(value, "subscriptionData")
        tags = reading.items(of.get("tagsSet"), "tagsSet")
        if not all(isinstance(tag, str) for tag in tags):
            raise ValueError("tagsSet holds something that is no text")
        codes = reading.items(of.get("codeSet"), "codeSet")
        expression = reading.text(of, "subString", ALL)
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise ValueError(f"subString of {len(expression)} characters, at most {EXPRESSION_CHARS_MAX}")
        return Subscription(
            topic=reading.text(of, "topic"),
            expression=expression,
            tags=tuple(tags),
            codes=frozenset(reading.whole(code, "codeSet") for code in codes),
            version=reading.number(of, "subVersion", 0, low=-reading.LONG_MAX, high=reading.LONG_MAX),
            expression_type=reading.text(of, "expressionType", TAG),
            class_filter=reading.boolean(of, "classFilterMode", False),
        )

    @staticmethod
    def of_expression(
        topic: str, expression: str, version: int = 0, expression_type: str = TAG
    ) -> "Subscription":
        """From the text of a pull: `*`, or tags joined by `||`. InvalidSubscription."""
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise InvalidSubscription(f"subscription of {len(expression)} characters")
        if expression_type not in (TAG, ""):
            if not expression:
                raise InvalidSubscription(f"Expression can't be null! {expression_type}")
            return Subscription(topic, expression, version=version, expression_type=expression_type)
        if expression in ("", ALL):
            return Subscription(topic, ALL, version=version)
        tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))
        if not tags:
            raise InvalidSubscription("subString split error")
        return Subscription(topic, expression, tags, frozenset(map(java_hash, tags)), version)
