"""Topic recovery: deletes queues of deleted topics that the start found in the log again, trims queues again,
and creates topics again that have queues but are in no file. Also names the static topics of a store of Apache's.

The file was lost, or not written before a kill. Runs once at start, after the tables were loaded. Loop
thread.
"""

import logging
import os
from collections.abc import Iterable

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.name_rules import LMQ_PREFIX
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.json_fields import members_or_none
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import InvalidTopic, TopicTable
from firearrow.broker.tables.trimmed_queues import TrimmedQueues

log = logging.getLogger("firearrow.topic_recovery")


def drop_deleted_queues(deleted: DeletedTopics, store: MessageStore) -> None:
    """Delete the queues of deleted topics whose newest record was stored before the deletion: recovery found
    them in the log. Else a topic that is recreated would begin with the deleted messages."""
    deleted.bound(store.written)
    for topic, queue_id in store.reader.queues():
        end = store.reader.max_offset(topic, queue_id) if topic in deleted else 0
        for entry in store.reader.entries(topic, queue_id, end - 1, 1) if end else ():
            store_ms = store.reader.store_time(topic, queue_id, end - 1)
            if deleted.is_deleted(topic, entry.physical_offset, store_ms):
                try:
                    store.drop_topic(topic, queue_id)
                except OSError as error:
                    log.error("queue %d of deleted topic %s cannot be deleted: %s", queue_id, topic, error)


def trim_again(trimmed: TrimmedQueues, store: MessageStore) -> None:
    """Hide from readers what queues were trimmed of in earlier runs."""
    if trimmed.bound(store.written):
        log.warning("queues were trimmed past the end of the log, which has lost messages since")
    for (topic, queue_id), physical_offset in trimmed.items():
        try:
            store.cleaner.hide_below(topic, queue_id, physical_offset)
        except OSError as error:
            log.error("queue %d of topic %s cannot be trimmed again: %s", queue_id, topic, error)


def report_static_topics(root: str) -> None:
    """Name the static topics of Apache's broker, which are plain topics here."""
    path = os.path.join(root, "config", "topicQueueMapping.json")
    try:
        with open(path, "rb") as file:
            whole = members_or_none(fastjson.loads(file.read()), path)
        names = sorted(map(str, members_or_none(whole.get("topicQueueMappingInfoMap"), path)))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so static topics of Apache's broker are not known: %s", path, error)
        return
    if names:
        remark = "static topics are not supported: those of %s are plain topics here, with the queues of this store: %s"
        log.warning(remark, path, ", ".join(names)[:1000])


def follow_topic_kinds(topics: TopicTable, store: MessageStore) -> None:
    """Keep the store up to date on which topics have batch queues."""

    def changed(names: Iterable[str]) -> None:
        for name in names:
            topic = topics.get(name)
            try:
                store.set_batch_topic(name, topic is not None and topic.has_batch_queues)
            except OSError as error:
                log.error("the queues of topic %s cannot become batch queues: %s", name, error)

    changed(topics)
    topics.listen(changed)


def recover_topics(
    topics: TopicTable, store: MessageStore, offsets: ConsumerOffsets, *, min_queues: int, saved_ms: int
) -> None:
    """Create the topics of queues that the file does not name, if all their messages are newer than the file
    (`saved_ms`; 0: there is no valid file). A topic gets as many queues as have messages or a group's offset,
    at least `min_queues`.

    Older messages are those of a deleted topic: recovery still finds them in the log.
    """
    queues: dict[str, int] = {}
    for topic, queue_id in store.reader.queues():
        if topic in topics or topic.startswith(LMQ_PREFIX):
            continue
        first_ms = store.reader.store_time(topic, queue_id, store.reader.min_offset(topic, queue_id))
        if first_ms >= saved_ms:
            queues[topic] = max(queues.get(topic, min_queues), queue_id + 1)
    for topic, seen in queues.items():
        known = [max(offsets.of(group, topic) or [0]) + 1 for group in offsets.groups_of(topic)]
        count = max(seen, *known, 1)
        attributes = {"queue.type": "BatchCQ"} if store.has_batch_queues(topic) else {}
        try:
            topics.create(topic, count, attributes=attributes)
            log.info("topic %s has messages but is in no file: created again with %d queues", topic, count)
        except InvalidTopic as refused:
            log.error("topic %s has messages but is in no file, and cannot be created: %s", topic, refused)
