"""Adoption: topics whose messages were acknowledged and whose file was not written before a kill are made again.

Once at a start behind a kill, with the tables loaded. Loop thread.
"""

import logging

from firearrow._native.store.store import MessageStore
from firearrow.broker.tables.names import LMQ_PREFIX
from firearrow.broker.tables.topics import TopicRefused, TopicTable

log = logging.getLogger("firearrow.adoption")


def adopt(topics: TopicTable, store: MessageStore, *, default_queues: int, saved_ms: int) -> None:
    """Make topics of queues that no file names, if all their messages are younger than the file (`saved_ms`).

    Older ones are those of a topic that was deleted: recovery finds its messages in the log.
    """
    queues: dict[str, int] = {}
    for topic, queue_id in store.queues():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        first_ms = store.store_time(topic, queue_id, store.min_offset(topic, queue_id))
        if first_ms >= saved_ms:
            queues[topic] = max(queues.get(topic, default_queues), queue_id + 1)
    for topic, count in queues.items():
        try:
            topics.create(topic, count)
            log.warning("topic %s has messages and stood in no file: made again with %d queues", topic, count)
        except TopicRefused as refused:
            log.error("topic %s has messages and stands in no file: %s", topic, refused)
