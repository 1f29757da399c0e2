"""Facts: what the checks read. Gathered from brokers or from the files of a store; values only.

Names are those that brokers know, with their namespace. Times are milliseconds since 1970, 0: never.
"""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from firearrow._native.protocol.name_rules import LMQ_PREFIX, is_system_group, is_system_topic
from firearrow.client.admin_api.records import Connection, GroupConfig, TopicConfig, unread_messages
from firearrow.client.admin_api.replicas import Replica
from firearrow.client.base.names import DLQ, RETRY

BROADCASTING = "BROADCASTING"
LOGICAL_PREFIXES = (LMQ_PREFIX, "__syslo__")


class Queue(NamedTuple):
    """A queue of one broker."""

    topic: str
    broker: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.number} at {self.broker}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One message, without its body. `delayed`: it was not stored when it was sent, so its times say nothing."""

    message_id: str
    born_ms: int
    stored_ms: int
    bytes: int
    born_host: str
    delayed: bool


@dataclass(slots=True)
class QueueState:
    """`recent`: messages stored in the last minutes; None: not asked. `redriven`: the dead letters before it were sent
    again or dropped by `firearrow dlq`."""

    min_offset: int
    max_offset: int
    last_ms: int
    recent: int | None = None
    redriven: int = 0

    @property
    def messages(self) -> int:
        return max(self.max_offset - self.min_offset, 0)


@dataclass(slots=True)
class Topic:
    """`configs`: broker → its configuration. `groups`: those that read it. `newest`: a few of its last messages."""

    name: str
    configs: dict[str, TopicConfig] = field(default_factory=dict)
    queues: dict[Queue, QueueState] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    newest: list[Sample] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues.values())

    @property
    def is_plain(self) -> bool:
        """Of users, and no retry or dead letter topic."""
        return not (
            is_system_topic(self.name)
            or self.name.startswith((RETRY, DLQ, *LOGICAL_PREFIXES))
            or self.name.endswith("_REPLY_TOPIC")
            or self.name.startswith("SCHEDULE_TOPIC")
        )

    def group_of(self, prefix: str) -> str | None:
        """The group of a retry or dead letter topic."""
        return self.name.removeprefix(prefix) if self.name.startswith(prefix) else None


@dataclass(slots=True)
class Progress:
    """How far a group is in a queue. `committed`: None, if it has committed nothing. `head`: the next message.

    `stands`: it did not move while we watched; None: not watched.
    """

    committed: int | None
    min_offset: int
    max_offset: int
    head: Sample | None = None
    stands: bool | None = None

    @property
    def next_offset(self) -> int:
        return max(self.committed or 0, self.min_offset)

    @property
    def lag(self) -> int:
        """A group that has committed nothing begins at the end, as far as anyone knows, unless it stands."""
        return unread_messages(self.min_offset, self.max_offset, self.committed, is_given=bool(self.stands))


@dataclass(slots=True)
class Group:
    """`members` and `subscriptions` (topic → expression): None if that cannot be known, as of a stopped store.

    `progress`: of the queues that it has not read to their end, and of all those that checks look up: of dead letters,
    and of queues that are read and not written. `reads`: it reads queues, also if `progress` has none.
    `heads`: those of `progress` whose next message was read.

    `differing`: texts of what members subscribe to, with the clients that do, if they differ. `silent`: members that
    did not say what they subscribe to. `watched_lags`: its lags while we watched, oldest first; `past_lags`: means of
    its lags in equal parts of the last `past_ms`, by the history of FireArrow's brokers.
    """

    name: str
    config: GroupConfig | None = None
    members: tuple[Connection, ...] | None = None
    model: str = ""
    from_where: str = ""
    subscriptions: dict[str, str] = field(default_factory=dict)
    progress: dict[Queue, Progress] = field(default_factory=dict)
    reads: bool = False
    heads: dict[Queue, Progress] = field(default_factory=dict)
    differing: list[tuple[str, list[str]]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    watched_lags: list[int] = field(default_factory=list)
    past_lags: Sequence[float] = ()
    past_ms: int = 0

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.progress.values())

    @property
    def is_plain(self) -> bool:
        return not is_system_group(self.name)


class Lock(NamedTuple):
    """A client's lock on a queue that its group reads in order. `connected`: the client is a member."""

    group: str
    queue: Queue
    client_id: str
    connected: bool
    head_id: str


@dataclass(slots=True)
class Broker:
    """`fault`: why it could not be asked. `config` and `runtime`: by Apache's names. `machine`: GET_MACHINE; None at
    Apache's brokers, and then `unknown` says so. `status`: what it reports of itself. `ahead_ms`: of its clock over
    ours; None: not known. `delay_offsets`: delay level → the next offset to deliver."""

    name: str
    address: str = ""
    fault: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, Any] | None = None
    unknown: str = ""
    status: Mapping[str, Any] | None = None
    ahead_ms: float | None = None
    delay_offsets: Mapping[int, int] | None = None

    def number(self, key: str, default: int) -> int:
        """An option's number; the default if the broker does not say it."""
        text = self.config.get(key, "")
        return int(text) if text.isdecimal() and len(text) < 19 else default


class BrokerFault(NamedTuple):
    """A broker that a name server of FireArrow's removed or refused; `fault`: see LIST_BROKER_FAULTS."""

    fault: str
    cluster: str
    broker: str
    broker_id: int
    address: str
    other: str
    at_ms: int
    reason: str


@dataclass(slots=True)
class NameServer:
    """`hosts`: the addresses that its host name has. `fault`: why it does not answer; then the rest is not known.

    `source`: where its address is from, unless it was given. `is_from_here`: a client on this machine uses it; what a
    broker names may be for its network only. `brokers` and `clusters`: as in ClusterInfo.
    `broker_faults`: None at Apache's. `orders`: topic → the brokers of its order configuration.
    """

    address: str
    source: str = ""
    is_from_here: bool = True
    hosts: tuple[str, ...] = ()
    fault: str | None = None
    brokers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    clusters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    broker_faults: list[BrokerFault] | None = None
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_resolved(self) -> bool:
        return bool(self.hosts) or self.fault is None

    @property
    def is_loopback(self) -> bool:
        return all(map(is_loopback, self.hosts or (host_of(self.address),)))


class Certificate(NamedTuple):
    """`holder`: such as `name server 10.0.0.1:9876`. `place`: a file, or that the server has presented it."""

    holder: str
    place: str
    begins_ms: int
    ends_ms: int


class Absent(NamedTuple):
    """A broker that should be there, and that no name server knows. `seen_ms`: when it was known; 0: not known.
    `source`: what knows of it. `answers`: it can be reached at its address."""

    broker: str
    broker_id: int
    address: str
    seen_ms: int
    source: str
    answers: bool


class Rival(NamedTuple):
    """Two masters of one name, at these addresses, by this source."""

    broker: str
    addresses: Sequence[str]
    source: str


class StoreDamage(NamedTuple):
    """A kind of damage of a store's files. `kind`: the name of a Kind; `text`: the first place, and how many more."""

    kind: str
    text: str


@dataclass(slots=True)
class StoreState:
    """A store folder that was read as files. `killed`: it was not closed. `running`: a broker has it open.

    `damages`: of its files; `left_out`: what was not looked at for that, empty if all was.
    """

    folder: str
    killed: bool
    running: bool
    oldest_ms: int
    damages: list[StoreDamage] = field(default_factory=list)
    left_out: str = ""


@dataclass(slots=True)
class Facts:
    """`store`: only of a store folder; then there are no clients. `locks`: None, if no broker lists them.

    `name_servers`: those that were given. `other_name_servers`: those that contexts and brokers name beside them.
    `watched_ms`: how long groups were watched. `unasked`: what was left out because there is too
    much of it.
    """

    now_ms: int
    brokers: dict[str, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    locks: list[Lock] | None = None
    replicas: list[Replica] = field(default_factory=list)
    name_servers: list[NameServer] = field(default_factory=list)
    other_name_servers: list[NameServer] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)
    watched_ms: int = 0
    store: StoreState | None = None
    unasked: list[str] = field(default_factory=list)

    def plain_groups(self) -> Iterator[Group]:
        return (group for _, group in sorted(self.groups.items()) if group.is_plain)

    def plain_topics(self) -> Iterator[Topic]:
        return (topic for _, topic in sorted(self.topics.items()) if topic.is_plain)

    def asked_brokers(self) -> Iterator[Broker]:
        return (broker for _, broker in sorted(self.brokers.items()) if broker.fault is None)


def host_of(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
