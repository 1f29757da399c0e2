"""GroupTable: subscription groups, the topics they may not read, and `subscriptionGroup.json`.

Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads, pretty
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.attributes import (
    GROUP_ATTRIBUTES,
    LITE_MODEL,
    LITE_QUOTA,
    LITE_RESET_EXCLUSIVE,
    LITE_RESET_UNSUBSCRIBE,
    LITE_TOPIC,
    apply_changes,
    number_of,
)
from firearrow.broker.tables.config_file import EACH, VERSION, UnknownFields
from firearrow.broker.tables.dataversion import DataVersion

RETRY_QUEUES_MAX = 4096
RETRY_TIMES_MAX = 1 << 20
LITE_SUBSCRIPTIONS = 2000
"""Of one client, unless its group states another number."""
FORBIDDEN_MAX = 100_000
FILE_DEPTH = 3
"""Nesting in the file above the members of a group that are kept unparsed."""
READ_FORBIDDEN_BIT = 1
"""Bit of the forbidden mask: the group may not read the topic."""


class InvalidGroup(ValueError):
    """A group configuration that is not allowed; the text names the field."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """`retry_policy` and `subscriptions` are kept unparsed."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_orderly: bool = False
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_slow: int = 1
    notify_changed: bool = True
    sys_flag: int = 0
    consume_timeout_minute: int = 15
    retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    subscriptions: list[Any] | None = None
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def lite_topic(self) -> str:
        """The topic whose lite topics the group consumes; empty: it consumes none."""
        return self.attributes.get(LITE_TOPIC, "")

    @property
    def lite_quota(self) -> int:
        """Most lite topics that a client of the group subscribes to."""
        quota = number_of(self.attributes, LITE_QUOTA, -1)
        return LITE_SUBSCRIPTIONS if quota < 0 else quota

    @property
    def is_lite_exclusive(self) -> bool:
        """A lite topic has one client of the group: the one that has subscribed last."""
        return self.attributes.get(LITE_MODEL) == "Exclusive"

    @property
    def resets_when_excluded(self) -> bool:
        """The client that takes a lite topic over begins at its first message."""
        return self.attributes.get(LITE_RESET_EXCLUSIVE, "").lower() == "true"

    @property
    def resets_when_unsubscribed(self) -> bool:
        return self.attributes.get(LITE_RESET_UNSUBSCRIBE, "").lower() == "true"

    def to_object(self) -> dict[str, object]:
        members: dict[str, object] = {
            "attributes": self.attributes,
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "consumeMessageOrderly": self.consume_orderly,
            "consumeTimeoutMinute": self.consume_timeout_minute,
            "groupName": self.name,
            "groupRetryPolicy": self.retry_policy,
            "groupSysFlag": self.sys_flag,
            "notifyConsumerIdsChangedEnable": self.notify_changed,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_slow,
        }
        if self.subscriptions is not None:
            members["subscriptionDataSet"] = self.subscriptions
        return members

    @staticmethod
    def from_object(value: object) -> "GroupConfig":
        """ValueError names the member that is wrong."""
        of = json_fields.members(value, "group config")
        subscriptions = of.get("subscriptionDataSet")
        policy = json_fields.members_or_none(of.get("groupRetryPolicy"), "groupRetryPolicy")
        for name, kept in (("groupRetryPolicy", policy), ("subscriptionDataSet", subscriptions)):
            json_fields.size(kept, name, FILE_DEPTH)
        return GroupConfig(
            name=json_fields.text(of, "groupName"),
            consume_enable=json_fields.boolean(of, "consumeEnable", True),
            consume_from_min_enable=json_fields.boolean(of, "consumeFromMinEnable", True),
            consume_broadcast_enable=json_fields.boolean(of, "consumeBroadcastEnable", True),
            consume_orderly=json_fields.boolean(of, "consumeMessageOrderly", False),
            retry_queues=json_fields.number(of, "retryQueueNums", 1),
            retry_max_times=json_fields.number(of, "retryMaxTimes", 16, low=-1),
            broker_id=json_fields.number(of, "brokerId", 0, high=json_fields.LONG_MAX),
            which_broker_when_slow=json_fields.number(
                of, "whichBrokerWhenConsumeSlowly", 1, high=json_fields.LONG_MAX
            ),
            notify_changed=json_fields.boolean(of, "notifyConsumerIdsChangedEnable", True),
            sys_flag=json_fields.number(of, "groupSysFlag", 0),
            consume_timeout_minute=json_fields.number(of, "consumeTimeoutMinute", 15),
            retry_policy=policy or {"type": "CUSTOMIZED"},
            subscriptions=None
            if subscriptions is None
            else json_fields.items(subscriptions, "subscriptionDataSet"),
            attributes=json_fields.string_map(of.get("attributes"), "attributes"),
        )


FILE = {
    "dataVersion": VERSION,
    "forbiddenTable": None,
    "subscriptionGroupTable": {EACH: dict.fromkeys(GroupConfig("", subscriptions=[]).to_object())},
}
"""The members that this table knows."""


class GroupTable:
    """The predefined groups always exist. Every change increments `version`."""

    def __init__(
        self,
        clock: Clock,
        *,
        auto_create: bool = True,
        groups_max: int = 100_000,
    ) -> None:
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self.auto_create = auto_create
        self._groups_max = groups_max
        self._table = {name: GroupConfig(name) for name in name_rules.PREDEFINED_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}
        self._unknown = UnknownFields("subscriptionGroup.json", FILE)
        self.version = DataVersion(timestamp=clock.now_ms())

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` after every change."""
        self._listeners.append(changed)

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._table))

    def get(self, name: str) -> GroupConfig | None:
        return self._table.get(name)

    def find(self, name: str) -> GroupConfig | None:
        """The group, created with defaults if that is allowed; None if not, or if the name is invalid."""
        known = self._table.get(name)
        if known is not None or not (self.auto_create or name_rules.is_system_group(name)):
            return known
        if name_rules.group_fault(name) is not None or len(self._table) >= self._groups_max:
            return None
        config = GroupConfig(name)
        self._put([config])
        return config

    def update(self, config: GroupConfig) -> None:
        self.update_all([config])

    def update_all(self, configs: Iterable[GroupConfig]) -> None:
        """Create or change, all or none; `attributes` holds changes. InvalidGroup, InvalidAttribute."""
        self._put([self._merged(config) for config in configs])

    def delete(self, name: str) -> bool:
        """Delete the group and its forbidden topics; False if there is no such group."""
        self._forbidden.pop(name, None)
        if self._table.pop(name, None) is None:
            return False
        self._unknown.forget("subscriptionGroupTable", name)
        self._bump_version()
        return True

    def forbidden(self, name: str, topic: str) -> int:
        """Bit mask of what the group may not do with the topic."""
        return self._forbidden.get(name, {}).get(topic, 0)

    def readable(self, name: str, topic: str) -> bool:
        return not self.forbidden(name, topic) >> READ_FORBIDDEN_BIT & 1

    def forbid_reading(self, name: str, topic: str, forbid: bool) -> None:
        """InvalidGroup when the table is full."""
        before = self.forbidden(name, topic)
        mask = before & ~(1 << READ_FORBIDDEN_BIT) | forbid << READ_FORBIDDEN_BIT
        if mask == before:
            return
        topics = self._forbidden.setdefault(name, {})
        if topic not in topics and sum(map(len, self._forbidden.values())) >= FORBIDDEN_MAX:
            raise InvalidGroup(f"at most {FORBIDDEN_MAX} topics may be forbidden to groups")
        if mask:
            topics[topic] = mask
        else:
            del topics[topic]
        if not topics:
            del self._forbidden[name]
        self._bump_version()

    def to_object(self, chosen: Iterable[str] | None = None) -> dict[str, object]:
        """The content of the file, for all groups or the chosen ones."""
        table, forbidden = dict(self._table), dict(self._forbidden)
        if chosen is not None:
            names = set(chosen)
            table = {name: config for name, config in table.items() if name in names}
            forbidden = {name: topics for name, topics in forbidden.items() if name in names}
        return {
            "dataVersion": self.version.to_object(),
            "forbiddenTable": {name: dict(topics) for name, topics in forbidden.items()},
            "subscriptionGroupTable": {name: config.to_object() for name, config in table.items()},
        }

    def to_json(self) -> bytes:
        return pretty(self._unknown.merge_into(self.to_object()))

    def load(self, text: bytes) -> None:
        """Add the file's groups, which replace predefined ones. ValueError: nothing changed."""
        of = json_fields.members(loads(text), "subscriptionGroup.json")
        version = DataVersion.from_object(of.get("dataVersion", {}))
        table = json_fields.members_or_none(of.get("subscriptionGroupTable"), "subscriptionGroupTable")
        masks = _masks(json_fields.members_or_none(of.get("forbiddenTable"), "forbiddenTable"))
        self._table |= {config.name: config for config in map(GroupConfig.from_object, table.values())}
        self._forbidden = masks
        self._unknown.collect(of)
        self.version = version

    def follow(
        self, configs: Iterable[GroupConfig], forbidden: json_fields.Members, version: DataVersion
    ) -> None:
        """Take a master's groups: delete what it lacks but the predefined groups, and take its version.
        ValueError: nothing changed."""
        masks = _masks(forbidden)
        fresh = {config.name: config for config in configs if name_rules.group_fault(config.name) is None}
        gone = [
            name for name in self._table if name not in fresh and name not in name_rules.PREDEFINED_GROUPS
        ]
        changed = [name for name, config in fresh.items() if self._table.get(name) != config]
        changed += [name for name in masks | self._forbidden if masks.get(name) != self._forbidden.get(name)]
        for name in gone:
            del self._table[name]
            self._unknown.forget("subscriptionGroupTable", name)
        self._table |= fresh
        self._forbidden = masks
        if gone or changed or version != self.version:
            self.version = version
            self._announce()

    def _merged(self, config: GroupConfig) -> GroupConfig:
        known = self._table.get(config.name)
        current = None if known is None else known.attributes
        return replace(config, attributes=apply_changes(GROUP_ATTRIBUTES, current, config.attributes))

    def _put(self, configs: list[GroupConfig]) -> None:
        for config in configs:
            fault = name_rules.group_fault(config.name)
            if fault is not None:
                raise InvalidGroup(fault)
            if not 0 <= config.retry_queues <= RETRY_QUEUES_MAX:
                raise InvalidGroup(
                    f"retryQueueNums must be 0 to {RETRY_QUEUES_MAX}, not {config.retry_queues}"
                )
            if config.retry_max_times > RETRY_TIMES_MAX:
                raise InvalidGroup(f"retryMaxTimes must be at most {RETRY_TIMES_MAX}")
        new = sum(config.name not in self._table for config in configs)
        if len(self._table) + new > self._groups_max:
            raise InvalidGroup(f"the broker has {len(self._table)} groups, at most {self._groups_max}")
        self._table |= {config.name: config for config in configs}
        self._bump_version()

    def _bump_version(self) -> None:
        self.version = self.version.next(self._clock.now_ms())
        self._announce()

    def _announce(self) -> None:
        for listener in self._listeners:
            listener()


def _masks(forbidden: json_fields.Members) -> dict[str, dict[str, int]]:
    """Group → topic → bit mask. ValueError."""
    return {
        name: {
            topic: json_fields.number(topics, topic)
            for topic in json_fields.members(topics, "forbiddenTable")
        }
        for name, topics in forbidden.items()
    }
