"""Topics and groups of LMQs (`enableLmq`): names that start with %LMQ%, kept in no table and no file.

Such a topic has one queue, such a group the default configuration. Loop thread.
"""

from firearrow._native.protocol import name_rules
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.topics import TopicConfig, TopicTable


def is_lmq(name: str) -> bool:
    return name.startswith(name_rules.LMQ_PREFIX) and len(name) <= name_rules.RETRY_TOPIC_CHARS_MAX


class LmqTopicTable(TopicTable):
    def get(self, name: str) -> TopicConfig | None:
        return TopicConfig(name, 1, 1) if is_lmq(name) else super().get(name)

    def __contains__(self, name: object) -> bool:
        return (isinstance(name, str) and is_lmq(name)) or super().__contains__(name)

    def _put(self, configs: list[TopicConfig]) -> None:
        """Ignore LMQs, whose configuration is fixed."""
        kept = [config for config in configs if not is_lmq(config.name)]
        if kept:
            super()._put(kept)


class LmqGroupTable(GroupTable):
    def get(self, name: str) -> GroupConfig | None:
        return GroupConfig(name) if is_lmq(name) else super().get(name)

    def find(self, name: str) -> GroupConfig | None:
        return GroupConfig(name) if is_lmq(name) else super().find(name)

    def __contains__(self, name: object) -> bool:
        return (isinstance(name, str) and is_lmq(name)) or super().__contains__(name)

    def _put(self, configs: list[GroupConfig]) -> None:
        """Ignore LMQs, whose configuration is fixed."""
        kept = [config for config in configs if not is_lmq(config.name)]
        if kept:
            super()._put(kept)
