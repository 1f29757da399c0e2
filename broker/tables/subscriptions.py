"""Subscription: what a consumer subscribes to (SubscriptionData). An immutable value.

HeartbeatData: the body of HEART_BEAT as clients in every language send it. Only parses; registers nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from firearrow._native.base.hash import java_hash
from firearrow._native.protocol.fastjson import loads_body
from firearrow.broker.tables import json_fields

ALL = "*"
TAG = "TAG"
EXPRESSION_CHARS_MAX = 64 << 10


class InvalidSubscription(ValueError):
    """An expression that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`version` grows with each change at the client; `codes` are Java's hashes of the tags (none for
    `*`)."""

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
        """Approximate memory, in units of 100 bytes."""
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
        """As heartbeats carry it; C++ and Go omit members and send strings for numbers. ValueError."""
        of = json_fields.members(value, "subscriptionData")
        tags = json_fields.items(of.get("tagsSet"), "tagsSet")
        if not all(isinstance(tag, str) for tag in tags):
            raise ValueError("tagsSet contains a value that is not a string")
        codes = json_fields.items(of.get("codeSet"), "codeSet")
        expression = json_fields.text(of, "subString", ALL)
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise ValueError(f"subString of {len(expression)} characters, at most {EXPRESSION_CHARS_MAX}")
        return Subscription(
            topic=json_fields.text(of, "topic"),
            expression=expression,
            tags=tuple(tags),
            codes=frozenset(json_fields.whole(code, "codeSet") for code in codes),
            version=json_fields.number(
                of, "subVersion", 0, low=-json_fields.LONG_MAX, high=json_fields.LONG_MAX
            ),
            expression_type=json_fields.text(of, "expressionType", TAG),
            class_filter=json_fields.boolean(of, "classFilterMode", False),
        )

    @staticmethod
    def of_expression(
        topic: str, expression: str, version: int = 0, expression_type: str = TAG
    ) -> "Subscription":
        """From the expression of a pull: `*`, or tags joined by `||`. InvalidSubscription."""
        if len(expression) > EXPRESSION_CHARS_MAX:
            raise InvalidSubscription(
                f"subscription of {len(expression)} characters, at most {EXPRESSION_CHARS_MAX}"
            )
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


DIGEST_CHARS_MAX = 200
DIGEST_MASK = (1 << 62) - 1


class SubscriptionDigest:
    """What one member subscribes to, as a number and as a short text. Members of a group should have equal ones.

    The order does not matter. The retry topic is left out: clients of one group may subscribe to it or not.
    """

    def __init__(self, message_model: str) -> None:
        self._model = message_model
        self._sum = 0
        self._count = 0
        self._texts: list[str] = []
        self._chars = 0

    def add(self, subscription: Subscription) -> None:
        if subscription.topic.startswith("%RETRY%"):
            return
        kind, expression = subscription.expression_type, subscription.expression or ALL
        tags: frozenset[str] = frozenset()
        if subscription.is_tag:  # some clients leave out `tagsSet`
            kind, tags = TAG, frozenset(tag.strip() for tag in expression.split("||"))
        self._sum += hash((subscription.topic, kind, tags or expression))
        self._count += 1
        if self._chars < DIGEST_CHARS_MAX:
            text = f"{subscription.topic} {subscription.expression or ALL}"
            self._texts.append(text)
            self._chars += len(text) + 2

    @property
    def number(self) -> int:
        """0: it subscribes to nothing."""
        if not self._count:
            return 0
        return (hash((self._model, self._sum)) & DIGEST_MASK) or 1

    @property
    def text(self) -> str:
        """Such as `CLUSTERING orders TagA, bills *`."""
        text = f"{self._model} {', '.join(sorted(self._texts))}"
        cut = len(text) > DIGEST_CHARS_MAX or len(self._texts) < self._count
        return f"{text[:DIGEST_CHARS_MAX]} …" if cut else text


BYTES_MAX = 4 << 20
CLIENT_ID_CHARS_MAX = 1024

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ConsumerData(NamedTuple):
    """One consumer group of a heartbeat; its subscriptions are parsed one by one, since there may be many."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    unit_mode: bool
    raw_subscriptions: list[Any]

    def subscriptions(self) -> Iterator[Subscription]:
        """ValueError names the member that is wrong."""
        return map(Subscription.from_object, self.raw_subscriptions)


class HeartbeatData(NamedTuple):
    """`fingerprint` 0: a heartbeat of version 1; `without_sub`: unchanged subscriptions are not sent."""

    client_id: str
    consumers: list[ConsumerData]
    producers: list[str]
    fingerprint: int
    without_sub: bool

    @staticmethod
    def read(body: bytes) -> "HeartbeatData":
        """ValueError names the member that is wrong."""
        of = json_fields.members(loads_body(body, BYTES_MAX), "heartbeat")
        client_id = json_fields.text(of, "clientID")
        if len(client_id) > CLIENT_ID_CHARS_MAX:
            raise ValueError(f"clientID of {len(client_id)} characters, at most {CLIENT_ID_CHARS_MAX}")
        producers = json_fields.items(of.get("producerDataSet"), "producerDataSet")
        consumers = json_fields.items(of.get("consumerDataSet"), "consumerDataSet")
        return HeartbeatData(
            client_id,
            [_consumer(value) for value in consumers],
            [
                json_fields.text(json_fields.members(value, "producerDataSet"), "groupName")
                for value in producers
            ],
            json_fields.number(of, "heartbeatFingerprint", 0, low=-json_fields.INT_MAX - 1),
            json_fields.boolean(of, "withoutSub", False),
        )


def _consumer(value: object) -> ConsumerData:
    of = json_fields.members(value, "consumerDataSet")
    return ConsumerData(
        json_fields.text(of, "groupName"),
        _name(of, "consumeType", CONSUME_TYPES, "CONSUME_PASSIVELY"),
        _name(of, "messageModel", MESSAGE_MODELS, "CLUSTERING"),
        _name(of, "consumeFromWhere", CONSUME_FROM_WHERE, "CONSUME_FROM_LAST_OFFSET"),
        json_fields.boolean(of, "unitMode", False),
        json_fields.items(of.get("subscriptionDataSet"), "subscriptionDataSet"),
    )


def _name(of: json_fields.Members, member: str, names: tuple[str, ...], default: str) -> str:
    """The name of an enum value; C++ sends its ordinal. ValueError."""
    value = of.get(member)
    if value is None:
        return default
    if type(value) is int and 0 <= value < len(names):
        return names[value]
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    raise ValueError(f"{member} is unknown: {str(value)[:64]}")
