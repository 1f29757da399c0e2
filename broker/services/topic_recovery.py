"""Adoption: topics that have queues and stand in no file are made again. It was lost, or not written before a kill.

Once at a start, with the tables loaded. Loop thread.
"""

import logging

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.tables.name_rules import LMQ_PREFIX
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import InvalidTopic, TopicTable

log = logging.getLogger("firearrow.adoption")


def recover_topics(
    topics: TopicTable, store: MessageStore, offsets: ConsumerOffsets, *, least_queues: int, saved_ms: int
) -> None:
    """Make topics of queues that no file names, if all their messages are younger than the file (`saved_ms`, 0: no
    file is to be believed): as many queues as have messages or a group's offset, at least `least_queues`.

    Older ones are those of a topic that was deleted: recovery finds its messages in the log.
    """
    queues: dict[str, int] = {}
    for topic, queue_id in store.reader.queues():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        first_ms = store.reader.store_time(topic, queue_id, store.reader.min_offset(topic, queue_id))
        if first_ms >= saved_ms:
            queues[topic] = max(queues.get(topic, least_queues), queue_id + 1)
    for topic, seen in queues.items():
        known = [max(offsets.of(group, topic) or [0]) + 1 for group in offsets.groups_of(topic)]
        count = max(seen, *known, 1)
        try:
            topics.create(topic, count)
            log.warning("topic %s has messages and stood in no file: made again with %d queues", topic, count)
        except InvalidTopic as refused:
            log.error("topic %s has messages and stands in no file: %s", topic, refused)
