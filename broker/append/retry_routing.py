"""Retries: where a message that a group could not consume goes next, retry topic or dead letters. Loop thread."""

from typing import NoReturn

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.message import Message, Property
from firearrow.broker.tables import name_rules
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.topics import InvalidTopic, TopicConfig, TopicTable

DLQ_QUEUES = 1
FIRST_LEVEL = 3
"""Delay level of the first retry; each further one is a level higher."""


class RetryRouting:
    def __init__(self, topics: TopicTable, groups: GroupTable, locks: RebalanceLocks) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks

    def group(self, name: str) -> GroupConfig:
        """Refusal when there is none."""
        group = self._groups.find(name)
        if group is None:
            remark = with_faq(f"subscription group not exist, {name} ")
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return group

    def topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        """The retry or dead letter topic, made if need be. Refusal at a bound."""
        try:
            known = self._topics.get(name)
            return known or self._topics.create(name, queues, sys_flag=sys_flag)
        except InvalidTopic as refused:
            _no_topic(name, refused)

    def send_back(self, message: Message, group: GroupConfig, level: int, max_times: int | None) -> None:
        """A stored message that its consumer gives back: to the dead letters if `level` is negative or it was tried
        often enough, else to the retry topic, where it becomes visible after `level` (0: 3 + tries)."""
        most = group.retry_max_times if max_times is None else max_times
        if level < 0 or message.reconsume_times >= most:
            self._to_dead_letters(message, group.name)
            message.properties[Property.DELAY] = "0"
        else:
            message.properties[Property.DELAY] = str(level or FIRST_LEVEL + message.reconsume_times)
        message.reconsume_times += 1

    def redirect(self, message: Message, max_times: int | None) -> None:
        """A message that its consumer sent to the retry topic itself: to the dead letters if it was tried too often,
        or while the group consumes in order. Refusal without the group."""
        group = self.group(message.topic.removeprefix(name_rules.RETRY_PREFIX).partition("+")[0])
        most = group.retry_max_times if max_times is None else max_times
        if message.reconsume_times > most or self._locks.any_locked(group.name):
            self._to_dead_letters(message, group.name)
            message.properties[Property.DELAY] = "-1"

    def _to_dead_letters(self, message: Message, group: str) -> None:
        message.topic = self.topic(name_rules.dlq_topic(group), DLQ_QUEUES).name
        message.queue_id = 0


def _no_topic(name: str, refused: InvalidTopic) -> NoReturn:
    raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist: {refused}") from None
