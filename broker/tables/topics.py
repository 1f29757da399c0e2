"""TopicTable: the topics of this broker and `topics.json`. Knows no store and no name server.

Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.attributes import (
    LITE,
    LITE_EXPIRATION,
    MESSAGE_TYPE,
    TOPIC_ATTRIBUTES,
    InvalidAttribute,
    apply_changes,
    number_of,
)
from firearrow.broker.tables.config_file import EACH, VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

Changed = Callable[[Collection[str]], None]
"""Called with the names that were added, changed or removed."""

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
PERM_MAX = 15
ROUTES_KNOWN_MS = 60_000
NOT_COMPACTED = "is a compaction topic with batch queues (cleanup.policy=COMPACTION, queue.type=BatchCQ)"
"""By then clients have asked for the route again (each 30 s) and rebalanced (each 20 s)."""


class InvalidTopic(ValueError):
    """A topic configuration that is not allowed; the text names the field."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    read_queues: int = 16
    write_queues: int = 16
    perm: int = name_rules.PERM_READ | name_rules.PERM_WRITE
    filter_type: str = "SINGLE_TAG"
    sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def readable(self) -> bool:
        return self.perm & name_rules.PERM_READ != 0 and not self.is_refused

    @property
    def writable(self) -> bool:
        return self.perm & name_rules.PERM_WRITE != 0

    @property
    def queues_read(self) -> int:
        """From 0 to this number: queues that consumers read now and after the topic has got as many queues as producers
        may write."""
        return 0 if self.is_refused else min(self.read_queues, self.write_queues) or self.read_queues

    @property
    def has_batch_queues(self) -> bool:
        """An entry of its queues may be of several messages (inner batches)."""
        return self.attributes.get("queue.type") == "BatchCQ"

    @property
    def is_compacted(self) -> bool:
        """Of each key its newest message is kept (cleanup.policy)."""
        return self.attributes.get("cleanup.policy") == "COMPACTION"

    @property
    def is_lite(self) -> bool:
        """Its messages have lite topics, each with a queue of its own."""
        return self.attributes.get(MESSAGE_TYPE) == LITE

    @property
    def lite_expiration_minutes(self) -> int:
        """How long a lite topic stays after its last message; not above 0: for ever."""
        return number_of(self.attributes, LITE_EXPIRATION, -1) if self.is_lite else -1

    @property
    def is_refused(self) -> bool:
        """A compaction topic of Apache's broker with batch queues, whose messages compaction loses there, or with lite
        topics, whose messages would leave the log."""
        return self.is_compacted and (self.has_batch_queues or self.is_lite)

    def to_object(self) -> dict[str, object]:
        return {
            "attributes": self.attributes,
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queues,
            "topicFilterType": self.filter_type,
            "topicName": self.name,
            "topicSysFlag": self.sys_flag,
            "writeQueueNums": self.write_queues,
        }

    @staticmethod
    def from_object(value: object) -> "TopicConfig":
        """ValueError names the member that is wrong."""
        of = json_fields.members(value, "topic config")
        filter_type = json_fields.text(of, "topicFilterType", "SINGLE_TAG")
        if filter_type not in FILTER_TYPES:
            raise ValueError(f"topicFilterType is unknown: {filter_type[:64]}")
        return TopicConfig(
            name=json_fields.text(of, "topicName"),
            read_queues=json_fields.number(of, "readQueueNums", 16),
            write_queues=json_fields.number(of, "writeQueueNums", 16),
            perm=json_fields.number(of, "perm", 6),
            filter_type=filter_type,
            sys_flag=json_fields.number(of, "topicSysFlag", 0),
            order=json_fields.boolean(of, "order", False),
            attributes=json_fields.string_map(of.get("attributes"), "attributes"),
        )


FILE = {"dataVersion": VERSION, "topicConfigTable": {EACH: dict.fromkeys(TopicConfig("").to_object())}}
"""The members that this table knows."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Which topics are created at start, and the limits of later ones."""

    cluster: str = "DefaultCluster"
    broker: str = "DEFAULT_BROKER"
    auto_create: bool = True
    default_queues: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: bool = False
    trace_topic_name: str = name_rules.TRACE_TOPIC
    timer_topic: bool = True
    revive_queues: int = 8
    topics_max: int = 100_000
    queues_max: int = 4096

    def start_up_topics(self) -> list[TopicConfig]:
        cluster, broker = self.cluster, self.broker
        topics = [
            TopicConfig(name_rules.SELF_TEST_TOPIC, 1, 1),
            TopicConfig(name_rules.BENCHMARK_TOPIC, 1024, 1024),
            TopicConfig(cluster, 16, 16, 7 if self.cluster_topic else 1),
            TopicConfig(broker, 1, 1, 7 if self.broker_topic else 1),
            TopicConfig(name_rules.OFFSET_MOVED_TOPIC, 1, 1),
            TopicConfig(name_rules.SCHEDULE_TOPIC, 18, 18),
            TopicConfig(f"{cluster}_REPLY_TOPIC", 1, 1),
            TopicConfig(f"rmq_sys_REVIVE_LOG_{cluster}", self.revive_queues, self.revive_queues),
            TopicConfig(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, 1, name_rules.PERM_INHERIT),
            TopicConfig(name_rules.HALF_TOPIC, 1, 1),
            TopicConfig(name_rules.OP_HALF_TOPIC, 1, 1),
        ]
        if self.auto_create:
            topics.append(
                TopicConfig(name_rules.AUTO_CREATE_TOPIC, self.default_queues, self.default_queues, 7)
            )
        if self.trace_topic:
            topics.append(TopicConfig(self.trace_topic_name, 1, 1))
        if self.timer_topic:
            topics.append(TopicConfig(name_rules.TIMER_TOPIC, 1, 1))
        return topics


class TopicTable:
    """Start-up topics always exist; a loaded file may replace them. Each change increments `version`."""

    def __init__(
        self,
        clock: Clock,
        settings: TopicSettings = TopicSettings(),
    ) -> None:
        self._clock = clock
        self._listeners: list[Changed] = []
        self._auto_create = settings.auto_create
        self._template = TopicConfig(
            name_rules.AUTO_CREATE_TOPIC, settings.default_queues, settings.default_queues, 7
        )
        self._topics_max = settings.topics_max
        self._queues_max = settings.queues_max
        self._table = {config.name: config for config in settings.start_up_topics()}
        self._start_up = frozenset(self._table)
        self._unknown = UnknownFields("topics.json", FILE)
        self._expanded: dict[str, tuple[int, int]] = {}
        """Retry topic → its queues before it was expanded, and since when it has more."""
        self.version = DataVersion(timestamp=clock.now_ms())

    def listen(self, changed: Changed) -> None:
        """Call `changed` after every change."""
        self._listeners.append(changed)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def get(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._table))

    def configs(self) -> list[TopicConfig]:
        return list(self._table.values())

    def is_system(self, name: str) -> bool:
        return name in self._start_up or name_rules.is_system_topic(name)

    def system_names(self) -> list[str]:
        return sorted(self._start_up | name_rules.SYSTEM_TOPICS)

    def create_by_send(
        self, name: str, template_name: str, queues: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """The topic, created from the template that the sender names; None if it may not be created.

        InvalidTopic at a limit.
        """
        known = self._table.get(name)
        if known is not None:
            return known
        template = self._table.get(template_name)
        if template is None:
            return None
        perm = template.perm
        if template_name == name_rules.AUTO_CREATE_TOPIC and not self._auto_create:
            perm = name_rules.PERM_READ | name_rules.PERM_WRITE
        if not perm & name_rules.PERM_INHERIT:
            return None
        count = max(0, min(queues, template.write_queues))
        config = TopicConfig(
            name, count, count, perm & ~name_rules.PERM_INHERIT, template.filter_type, sys_flag
        )
        self._put([config])
        return config

    def create(
        self,
        name: str,
        queues: int,
        *,
        perm: int = 6,
        sys_flag: int = 0,
        order: bool = False,
        attributes: dict[str, str] | None = None,
    ) -> TopicConfig:
        """Create a retry or DLQ topic; an existing one only gets the order flag. InvalidTopic."""
        known = self._table.get(name)
        if known is not None:
            if known.order != order:
                known = replace(known, order=order)
                self._put([known])
            return known
        config = TopicConfig(
            name, queues, queues, perm, sys_flag=sys_flag, order=order, attributes=attributes or {}
        )
        self._put([config])
        return config

    def expand(self, name: str, queues: int) -> None:
        """Give an existing topic of the broker at least this many queues. Clients learn of them with their next
        route: until then `known_queues` has the number from before. InvalidTopic."""
        known = self._table.get(name)
        if known is None or min(known.read_queues, known.write_queues) >= queues:
            return
        before = self.known_queues(known)
        counts = max(known.read_queues, queues), max(known.write_queues, queues)
        self._put([replace(known, read_queues=counts[0], write_queues=counts[1])])
        self._expanded[name] = before, self._clock.monotonic_ms()

    def known_queues(self, topic: TopicConfig) -> int:
        """How many queues of the topic the consumers know by now."""
        before, since_ms = self._expanded.get(topic.name, (topic.queues_read, 0))
        if self._clock.monotonic_ms() - since_ms > ROUTES_KNOWN_MS:
            self._expanded.pop(topic.name, None)
            return topic.queues_read
        return min(before, topic.queues_read)

    def update(self, config: TopicConfig) -> bool:
        """Create or change the topic; `config.attributes` are changes (`+k`, `-k`).

        False if nothing changed. InvalidTopic, InvalidAttribute.
        """
        return self.update_all([config])

    def update_all(self, configs: Iterable[TopicConfig]) -> bool:
        """Create or change all topics, or none. False if nothing changed. InvalidTopic, InvalidAttribute."""
        merged = [self._merged(config) for config in configs]
        changed = [config for config in merged if self._table.get(config.name) != config]
        if changed:
            self._put(changed)
        return bool(changed)

    def delete(self, name: str) -> bool:
        if self._table.pop(name, None) is None:
            return False
        self._expanded.pop(name, None)
        self._unknown.forget("topicConfigTable", name)
        self._bump_version([name])
        return True

    def follow(self, configs: Iterable[TopicConfig], version: DataVersion) -> None:
        """Take a master's topics: delete what it lacks but the start-up topics, and take its version."""
        fresh = {config.name: config for config in configs if name_rules.own_topic_fault(config.name) is None}
        gone = [name for name in self._table if name not in fresh and name not in self._start_up]
        changed = [name for name, config in fresh.items() if self._table.get(name) != config]
        for name in gone:
            del self._table[name]
            self._unknown.forget("topicConfigTable", name)
        self._table |= fresh
        if gone or changed or version != self.version:
            self.version = version
            self._announce([*gone, *changed])

    def to_object(self) -> dict[str, object]:
        table = dict(self._table)
        return {
            "dataVersion": self.version.to_object(),
            "topicConfigTable": {name: config.to_object() for name, config in table.items()},
        }

    def to_json(self) -> bytes:
        return pretty(self._unknown.merge_into(self.to_object()))

    def load(self, text: bytes) -> None:
        """Add the file's topics, which replace start-up ones. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "topics.json")
        version = DataVersion.from_object(of.get("dataVersion", {}))
        table = json_fields.members_or_none(of.get("topicConfigTable"), "topicConfigTable")
        self._table |= {config.name: config for config in map(TopicConfig.from_object, table.values())}
        self._unknown.collect(of)
        self.version = version

    def _merged(self, config: TopicConfig) -> TopicConfig:
        known = self._table.get(config.name)
        current = None if known is None else known.attributes
        merged = replace(config, attributes=apply_changes(TOPIC_ATTRIBUTES, current, config.attributes))
        if merged.is_refused:
            other = "queue.type=BatchCQ" if merged.has_batch_queues else f"{MESSAGE_TYPE}={LITE}"
            raise InvalidAttribute(f"cleanup.policy=COMPACTION does not go together with {other}")
        return merged

    def _put(self, configs: list[TopicConfig]) -> None:
        for config in configs:
            self._check(config)
        new = sum(config.name not in self._table for config in configs)
        if len(self._table) + new > self._topics_max:
            raise InvalidTopic(f"the broker has {len(self._table)} topics, at most {self._topics_max}")
        self._table |= {config.name: config for config in configs}
        self._bump_version([config.name for config in configs])

    def _check(self, config: TopicConfig) -> None:
        fault = name_rules.own_topic_fault(config.name)
        if fault is not None:
            raise InvalidTopic(fault)
        known = self._table.get(config.name)
        for what, count, before in (
            ("readQueueNums", config.read_queues, known.read_queues if known else 0),
            ("writeQueueNums", config.write_queues, known.write_queues if known else 0),
        ):
            if not 0 <= count <= max(self._queues_max, before):
                raise InvalidTopic(f"{what} must be 0 to {max(self._queues_max, before)}, not {count}")
        if not 0 <= config.perm <= PERM_MAX:
            raise InvalidTopic(f"perm must be 0 to {PERM_MAX}, not {config.perm}")

    def set_auto_create(self, on: bool) -> None:
        """Whether sends may create topics; the template exists from then on."""
        self._auto_create = on
        if on and name_rules.AUTO_CREATE_TOPIC not in self._table:
            self._put([self._template])

    def announce_all(self) -> None:
        """Register all topics again as if they had changed: name servers ignore the version that they know."""
        self._bump_version(list(self))

    def begin_epoch(self, epoch: int) -> None:
        """Register all topics again, as the master of this epoch: name servers prefer the highest."""
        self.version = self.version._replace(state_version=epoch)
        self.announce_all()

    def _bump_version(self, changed: list[str]) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self._announce(changed)

    def _announce(self, changed: list[str]) -> None:
        for listener in self._listeners:
            listener(changed)
