"""RetryRouting: sends a message that a group could not consume to the retry topic or the dead-letter queue.

Loop thread.
"""

import random
from typing import NoReturn

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.event_counts import RETRIED, SENT_TO_DLQ, EventCounts
from firearrow.broker.base.message import Message, Property
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.topics import InvalidTopic, TopicConfig, TopicTable

DLQ_QUEUES = 1
FIRST_LEVEL = 3
"""Delay level of the first retry; each further retry is one level higher."""


class RetryRouting:
    def __init__(self, topics: TopicTable, groups: GroupTable, locks: RebalanceLocks) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def group(self, name: str) -> GroupConfig:
        """The group, created if groups are created automatically. Refusal if it does not exist."""
        group = self._groups.find(name)
        if group is None:
            remark = with_faq(f"subscription group not exist, {name} ")
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return group

    def topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """The retry or dead-letter topic, created if it does not exist. Refusal at a limit."""
        try:
            known = self._topics.get(name)
            return known or self._topics.create(name, queues, sys_flag=sys_flag)
        except InvalidTopic as refused:
            _no_topic(name, refused)

    def topic_again(self, name: str, group: str) -> TopicConfig | None:
        """A deleted retry topic, created again if its group still exists. Refusal at a limit."""
        config = self._groups.get(group)
        return None if config is None or not config.retry_queues else self.topic(name, config.retry_queues)

    def queue_of(self, topic: TopicConfig, group: GroupConfig) -> int:
        """A random queue of the retry topic that the group's members know by now."""
        return random.randrange(max(min(group.retry_queues, self._topics.known_queues(topic)), 1))

    def send_back(self, message: Message, group: GroupConfig, level: int, max_times: int | None) -> None:
        """Route a stored message that its consumer sends back: to the dead-letter queue if `level` is
        negative or its retries are used up, else to the retry topic, where it becomes visible after `level`
        (0: level 3 + retries)."""
        limit = group.retry_max_times if max_times is None else max_times
        if level < 0 or message.reconsume_times >= limit:
            self.to_dead_letters(message, group.name)
            message.properties[Property.DELAY] = "0"
        else:
            message.properties[Property.DELAY] = str(level or FIRST_LEVEL + message.reconsume_times)
        message.reconsume_times += 1

    def redirect(self, message: Message, max_times: int | None) -> None:
        """Route a message that its consumer sent to the retry topic itself: to the dead-letter queue if its
        retries are used up, or while the group consumes in order. Refusal if the group does not exist."""
        group = self.group(name_rules.group_of_retry(message.topic))
        limit = group.retry_max_times if max_times is None else max_times
        if message.reconsume_times > limit or self._locks.any_locked(group.name):
            self.to_dead_letters(message, group.name)
            message.properties[Property.DELAY] = "-1"

    def to_dead_letters(self, message: Message, group: str) -> None:
        """Refusal at a limit."""
        message.topic = self.topic(name_rules.dlq_topic(group), DLQ_QUEUES).name
        message.queue_id = 0


def count_retry(events: EventCounts, message: Message, group: str) -> None:
    """Count a message that was routed here and stored: as a dead letter, or as a retry. It may wait for its delay
    under another topic."""
    if message.topic.startswith(name_rules.DLQ_PREFIX):
        topic = message.properties.get(Property.RETRY_TOPIC, message.topic)
        is_system = name_rules.is_system_topic(topic) or name_rules.is_system_group(group)
        events.add(SENT_TO_DLQ, (group, topic, str(is_system).lower()))
    else:
        events.add(RETRIED, (group,))


def _no_topic(name: str, refused: InvalidTopic) -> NoReturn:
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist: {refused}") from None
