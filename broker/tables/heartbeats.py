"""Heartbeat: the body of HEART_BEAT as clients in every language send it. Reads, registers nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firearrow.broker.base.fastjson import loads_body
from firearrow.broker.tables import reading
from firearrow.broker.tables.subscriptions import Subscription

BYTES_MAX = 4 << 20
CLIENT_ID_CHARS_MAX = 1024

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """One consumer group of a heartbeat; its subscriptions are read one by one, for they may be many."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    unit_mode: bool
    raw_subscriptions: list[Any]

    def subscriptions(self) -> Iterator[Subscription]:
        """ValueError names the member that is wrong."""
        return map(Subscription.from_object, self.raw_subscriptions)


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """`fingerprint` 0 is the first form; `without_sub` says that the subscriptions are as before."""

    client_id: str
    consumers: list[ConsumerData]
    producers: list[str]
    fingerprint: int
    without_sub: bool

    @staticmethod
    def read(body: bytes) -> "HeartbeatData":
        """ValueError names the member that is wrong."""
        of = reading.members(loads_body(body, BYTES_MAX), "heartbeat")
        client_id = reading.text(of, "clientID")
        if len(client_id) > CLIENT_ID_CHARS_MAX:
            raise ValueError(f"clientID of {len(client_id)} characters, at most {CLIENT_ID_CHARS_MAX}")
        producers = reading.items(of.get("producerDataSet"), "producerDataSet")
        consumers = reading.items(of.get("consumerDataSet"), "consumerDataSet")
        return HeartbeatData(
            client_id,
            [_consumer(value) for value in consumers],
            [reading.text(reading.members(value, "producerDataSet"), "groupName") for value in producers],
            reading.number(of, "heartbeatFingerprint", 0, low=-reading.INT_MAX - 1),
            reading.boolean(of, "withoutSub", False),
        )


def _consumer(value: object) -> ConsumerData:
    of = reading.members(value, "consumerDataSet")
    return ConsumerData(
        reading.text(of, "groupName"),
        _name(of, "consumeType", CONSUME_TYPES, "CONSUME_PASSIVELY"),
        _name(of, "messageModel", MESSAGE_MODELS, "CLUSTERING"),
        _name(of, "consumeFromWhere", CONSUME_FROM_WHERE, "CONSUME_FROM_LAST_OFFSET"),
        reading.boolean(of, "unitMode", False),
        reading.items(of.get("subscriptionDataSet"), "subscriptionDataSet"),
    )


def _name(of: reading.Members, member: str, names: tuple[str, ...], default: str) -> str:
    """An enum: its name, or its ordinal as C++ sends it."""
    value = of.get(member)
    if value is None:
        return default
    if type(value) is int and 0 <= value < len(names):
        return names[value]
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    raise ValueError(f"{member} is unknown: {str(value)[:64]}")
