"""Message, MessageQueue and SendResult, and the encoding of properties."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from firearrow._native.protocol.message_queue import MessageQueue as MessageQueue  # noqa: PLC0414 (public)
from firearrow._native.protocol.message_queue import java_order as java_order  # noqa: PLC0414
from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import BrokerError, MessageRefused

PROPERTIES_BYTES_MAX = 32767


class Property:
    """Names of Apache's MessageConst that the client sets or reads."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    UNIQUE_KEY = "UNIQ_KEY"
    SHARDING_KEY = "__SHARDINGKEY"
    PRIORITY = "_SYS_MSG_PRIORITY_"
    RETRY_TOPIC = "RETRY_TOPIC"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    RECONSUME_TIME = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
    MIN_OFFSET = "MIN_OFFSET"
    MAX_OFFSET = "MAX_OFFSET"
    CONSUME_START_TIME = "CONSUME_START_TIME"
    TRANSACTION_PREPARED = "TRAN_MSG"
    PRODUCER_GROUP = "PGROUP"
    TRANSACTION_ID = "__transactionId__"
    CHECK_IMMUNITY_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    TRANSACTION_CHECKS = "TRANSACTION_CHECK_TIMES"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    CORRELATION_ID = "CORRELATION_ID"
    REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
    TTL = "TTL"
    MESSAGE_TYPE = "MSG_TYPE"
    ARRIVE_TIME = "ARRIVE_TIME"
    PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
    CLUSTER = "CLUSTER"
    POP_CHECK_POINT = "POP_CK"
    FIRST_POP_TIME = "1ST_POP_TIME"
    REGION = "MSG_REGION"
    TRACE_ON = "TRACE_ON"
    INSTANCE_ID = "INSTANCE_ID"
    MULTI_DISPATCH = "INNER_MULTI_DISPATCH"


@dataclass(slots=True)
class Message:
    """One message to send. `body` is bytes: encode a str yourself.

    Set at most one of `delay_level` (1 to 18 of the broker's table), `delay_s` and `deliver_at_ms` (since
    1970). The first send sets `unique_id` and later sends keep it, so that consumers can recognize a
    duplicate.
    """

    topic: str
    body: bytes
    tags: str | None = field(default=None, kw_only=True)
    keys: Sequence[str] = field(default=(), kw_only=True)
    properties: dict[str, str] = field(default_factory=dict, kw_only=True)
    delay_level: int = field(default=0, kw_only=True)
    delay_s: float | None = field(default=None, kw_only=True)
    deliver_at_ms: int | None = field(default=None, kw_only=True)
    sharding_key: str | None = field(default=None, kw_only=True)
    priority: int | None = field(default=None, kw_only=True)
    flag: int = field(default=0, kw_only=True)
    wait_store: bool = field(default=True, kw_only=True)
    unique_id: str | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if type(self.body) is bytes and type(self.keys) is tuple:
            return
        if not isinstance(self.body, bytes):
            raise MessageRefused(f"body must be bytes, not {type(self.body).__name__}: encode a str")
        if isinstance(self.keys, str):
            raise MessageRefused("keys must be a sequence of str: for one key write keys=[key]")


SENT_APART = frozenset(
    {Property.KEYS, Property.TAGS, Property.WAIT, Property.UNIQUE_KEY, Property.SHARDING_KEY}
)
"""Members of a Message of their own."""


def message_copy(stored: ReceivedMessage, topic: str) -> Message:
    """The same message, to be sent to a topic: a dead letter stays one. BodyUnreadable.

    The body, tags, keys, sharding key, flag, the unique id and all properties of its users are kept, so that traces
    (`traceparent`) go on; what brokers set for delays, transactions and POP is dropped.
    """
    dropped = BROKER_OWN | SENT_APART
    return Message(
        topic,
        stored.body,
        tags=stored.tags,
        keys=stored.keys,
        properties={name: value for name, value in stored.properties.items() if name not in dropped},
        sharding_key=stored.get_property(Property.SHARDING_KEY),
        flag=stored.flag,
        unique_id=stored.get_property(Property.UNIQUE_KEY),
    )


class SendStatus(Enum):
    """How safely the broker stored the message; it is stored in all four cases.

    The value is the response code.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(NamedTuple):
    """The broker's answer to one message or one batch."""

    status: SendStatus
    message_id: str
    """The unique id, which the client sets; for a batch, all ids joined by `,`."""
    offset_message_id: str
    """An id made of the broker's address and the physical offset in its log."""
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True

    def raise_for_status(self) -> "SendResult":
        """Return the result if it is SEND_OK. BrokerError: stored, but less safely than configured."""
        if self.status is not SendStatus.SEND_OK:
            raise BrokerError(
                self.status.value, "stored, but less safely than configured", self.queue.broker_name
            )
        return self


def decode_properties(data: bytes) -> dict[str, str]:
    """Properties without a name or a value are dropped; the last one of a name counts."""
    pairs = (pair.partition("\x01") for pair in data.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, separator, value in pairs if separator and name and value}
