"""The values that admin requests return: topics, groups, clusters, lag, connections; decoded from JSON.

Values only. An answer with a missing or wrong member raises ClientError with the member's name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from firearrow._native.protocol import fastjson
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue
from firearrow.client.rebalance.subscription import Kind, Subscription

T = TypeVar("T")
READ, WRITE = 4, 2
INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """`brokers`: name → {id → `host:port`}, id 0 is the master. `clusters`: name → names of brokers."""

    brokers: dict[str, dict[int, str]]
    clusters: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic at one broker. `perm`: READ | WRITE."""

    topic: str
    read_queues: int = 8
    write_queues: int = 8
    perm: int = READ | WRITE
    order: bool = False
    sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_type(self) -> str:
        return self.attributes.get("message.type", "UNSPECIFIED")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """A group's configuration; `retries_max`: redeliveries before a message becomes a dead letter."""

    group: str
    consume_enabled: bool = True
    from_min_enabled: bool = True
    broadcast_enabled: bool = True
    orderly: bool = False
    retry_queues: int = 1
    retries_max: int = 16
    broker_id: int = 0
    slow_broker_id: int = 1
    notify_changes: bool = True
    timeout_minutes: int = 15
    attributes: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        members = {key: getattr(self, name) for name, key in _GROUP_MEMBERS.items()}
        return fastjson.dumps(
            {"groupName": self.group, **members, "groupSysFlag": 0, "attributes": self.attributes},
            is_sorted=False,
        )


_GROUP_MEMBERS = {
    "consume_enabled": "consumeEnable",
    "from_min_enabled": "consumeFromMinEnable",
    "broadcast_enabled": "consumeBroadcastEnable",
    "orderly": "consumeMessageOrderly",
    "retry_queues": "retryQueueNums",
    "retries_max": "retryMaxTimes",
    "broker_id": "brokerId",
    "slow_broker_id": "whichBrokerWhenConsumeSlowly",
    "notify_changes": "notifyConsumerIdsChangedEnable",
    "timeout_minutes": "consumeTimeoutMinute",
}


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The first and the next offset of a queue, and when it last received a message (ms, 0: never)."""

    min_offset: int
    max_offset: int
    last_ms: int


def unread_messages(first: int, end: int, committed: int | None, *, is_given: bool) -> int:
    """What a group has not read of a queue. `is_given`: the queue is one of the topic's read queues. Without an offset
    of the group it counts whole then, as in Apache's consumerProgress; a queue that was taken away does not count, as
    there and in the metrics: the group may never have been given it."""
    if committed is None and not is_given:
        return 0
    begin = first if committed is None or committed < first else committed
    return end - begin if begin < end else 0


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The next offsets to be written, consumed and pulled (-1: not known)."""

    broker_offset: int
    consumer_offset: int
    pulled: int
    last_ms: int

    @property
    def messages(self) -> int:
        """How many messages are not consumed yet."""
        return max(self.broker_offset - self.consumer_offset, 0)


@dataclass(frozen=True, slots=True)
class ConsumerLag:
    """`tps`: messages consumed per second, as measured by brokers."""

    tps: float
    queues: dict[MessageQueue, QueueLag]

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues.values())


@dataclass(frozen=True, slots=True)
class Connection:
    """A client that is connected to a broker. `version` is the ordinal of its RocketMQ release."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    """`subscriptions`: by topic."""

    connections: tuple[Connection, ...]
    consume_type: str
    model: str
    from_where: str
    subscriptions: dict[str, Subscription]


def read(body: "bytes | Members", reader: Callable[["Members"], T]) -> T:
    """Decode a body, or what it contains, with a reader. ClientError."""
    try:
        return reader(body if isinstance(body, Members) else Members(fastjson.loads_answer(body)))
    except fastjson.JsonError as error:
        raise ClientError(f"the answer cannot be read: {error}") from error


class Members:
    """A JSON object. A missing member is the default; JsonError: a member has another type."""

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise fastjson.JsonError("the value is not an object")
        self._value: dict[Any, object] = value

    def text(self, name: str, default: str = "") -> str:
        return self._get(name, str, default)

    def flag(self, name: str, default: bool = False) -> bool:
        return self._get(name, bool, default)

    def number(self, name: str, default: int = 0) -> int:
        value = self._value.get(name, default)
        if not fastjson.is_integer(value, 64):
            raise fastjson.JsonError(f"{name} is not a number")
        return value

    def real(self, name: str) -> float:
        value = self._value.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fastjson.JsonError(f"{name} is not a number")
        return float(value)

    def members(self, name: str) -> "Members":
        return Members(self._get(name, dict, {}))

    def items(self, name: str) -> list[object]:
        return self._get(name, list, [])

    def texts(self, name: str) -> list[str]:
        return [str(item) for item in self.items(name)]

    def pairs(self) -> list[tuple[Any, object]]:
        return list(self._value.items())

    def _get(self, name: str, kind: type[T], default: T) -> T:
        value = self._value.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise fastjson.JsonError(f"{name} is not of type {kind.__name__}")
        return value


def cluster_info(info: Members) -> ClusterInfo:
    brokers: dict[str, dict[int, str]] = {}
    for name, broker in info.members("brokerAddrTable").pairs():
        addresses = Members(broker).members("brokerAddrs").pairs()
        brokers[str(name)] = {_integer(number): str(address) for number, address in addresses}
    clusters = {
        str(name): tuple(sorted(str(broker) for broker in names)) if isinstance(names, list) else ()
        for name, names in info.members("clusterAddrTable").pairs()
    }
    return ClusterInfo(brokers, clusters)


def topic_config(config: Members) -> TopicConfig:
    return TopicConfig(
        topic=config.text("topicName"),
        read_queues=config.number("readQueueNums"),
        write_queues=config.number("writeQueueNums"),
        perm=config.number("perm"),
        order=config.flag("order"),
        sys_flag=config.number("topicSysFlag"),
        filter_type=config.text("topicFilterType", "SINGLE_TAG"),
        attributes=_texts(config.members("attributes")),
    )


def topic_configs(wrapper: Members) -> dict[str, TopicConfig]:
    table = wrapper.members("topicConfigTable").pairs()
    return {str(name): topic_config(Members(config)) for name, config in table}


def group_config(config: Members) -> GroupConfig:
    plain = GroupConfig(group="")
    values: dict[str, Any] = {}
    for name, key in _GROUP_MEMBERS.items():
        default = getattr(plain, name)
        values[name] = config.flag(key, default) if isinstance(default, bool) else config.number(key, default)
    attributes = _texts(config.members("attributes"))
    return GroupConfig(group=config.text("groupName"), attributes=attributes, **values)


def groups(wrapper: Members) -> dict[str, GroupConfig]:
    table = wrapper.members("subscriptionGroupTable").pairs()
    return {str(name): group_config(Members(config)) for name, config in table}


_RANGE_MEMBERS = (("minOffset", 0), ("maxOffset", 0), ("lastUpdateTimestamp", 0))
_LAG_MEMBERS = (("brokerOffset", 0), ("consumerOffset", 0), ("pullOffset", -1), ("lastTimestamp", 0))
"""Names and defaults, in the order of the fields"""


def _numbers(value: object, members: Sequence[tuple[str, int]]) -> list[int]:
    """The numbers of an object, of which an answer may have a quarter of a million. JsonError."""
    if isinstance(value, dict):
        numbers = [value.get(name, default) for name, default in members]
        if all(type(number) is int and -INT64 <= number < INT64 for number in numbers):
            return numbers
    entry = Members(value)
    return [entry.number(name, default) for name, default in members]


def topic_stats(stats: Members) -> dict[MessageQueue, QueueRange]:
    ranges: dict[MessageQueue, QueueRange] = {}
    for key, value in stats.members("offsetTable").pairs():
        ranges[fastjson.queue_of(key)] = QueueRange(*_numbers(value, _RANGE_MEMBERS))
    return ranges


def consumer_lag(stats: Members) -> ConsumerLag:
    queues: dict[MessageQueue, QueueLag] = {}
    for key, value in stats.members("offsetTable").pairs():
        queues[fastjson.queue_of(key)] = QueueLag(*_numbers(value, _LAG_MEMBERS))
    return ConsumerLag(stats.real("consumeTps"), queues)


def connections(answer: Members, member: str = "connectionSet") -> tuple[Connection, ...]:
    members = [Members(item) for item in answer.items(member)]
    return tuple(
        Connection(m.text("clientId"), m.text("clientAddr"), m.text("language"), m.number("version"))
        for m in members
    )


def producers(answer: Members) -> dict[str, list[Connection]]:
    """ProducerTableInfo. Apache's addresses are those of Java's InetSocketAddress, with its slash."""
    return {
        str(group): [
            Connection(
                m.text("clientId"),
                m.text("remoteIP").rpartition("/")[2],
                m.text("language"),
                m.number("version"),
            )
            for m in map(Members, members if isinstance(members, list) else [])
        ]
        for group, members in answer.members("data").pairs()
    }


def consumer_connections(answer: Members) -> ConsumerConnections:
    table = answer.members("subscriptionTable").pairs()
    subscriptions = {str(topic): _subscription(str(topic), Members(data)) for topic, data in table}
    return ConsumerConnections(
        connections(answer),
        answer.text("consumeType"),
        answer.text("messageModel"),
        answer.text("consumeFromWhere"),
        subscriptions,
    )


def _subscription(topic: str, data: Members) -> Subscription:
    kind: Kind = "SQL92" if data.text("expressionType", "TAG") == "SQL92" else "TAG"
    tags = frozenset(data.texts("tagsSet"))
    return Subscription(topic, data.text("subString"), kind, tags, frozenset(), data.number("subVersion"))


def reset_offsets(answer: Members) -> dict[MessageQueue, int]:
    return {fastjson.queue_of(key): _integer(value) for key, value in answer.members("offsetTable").pairs()}


def texts(answer: Members) -> dict[str, str]:
    """A KVTable."""
    return _texts(answer.members("table"))


def _texts(members: Members) -> dict[str, str]:
    return {str(key): str(value) for key, value in members.pairs()}


def _integer(value: object) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not fastjson.is_integer(number, 64):
        raise fastjson.JsonError(f"{str(value)[:40]!r} is not a number")
    return number
