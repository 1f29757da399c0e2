"""DueRouting: where a message goes that is due for a queue that was chosen earlier. Loop thread.

A message that waited for a delay, a timer, a commit or a retry names the queue that was chosen when it was stored.
Since then its topic may have got fewer queues, or may have been deleted. It goes to a queue that is read, else to the
dead letters, and is counted and logged; Apache stores it where no consumer reads it.
"""

import logging

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import PutRefused, PutStatus
from firearrow.broker.append.retry_routing import DLQ_QUEUES, RetryRouting
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.event_counts import REDIRECTED, SENT_TO_DLQ, TO_DEAD_LETTERS, TO_QUEUE, EventCounts
from firearrow.broker.base.message import Message, Property
from firearrow.broker.tables.topics import TopicTable

log = logging.getLogger("firearrow.due_messages")

GROUP = "SCHEDULE_CONSUMER"
"""Its dead letters are the messages of topics that were deleted (Apache: MixAll.SCHEDULE_CONSUMER_GROUP)."""
LOG_PAUSE_MS = 10_000


class DueRouting:
    def __init__(self, topics: TopicTable, retries: RetryRouting, events: EventCounts, clock: Clock) -> None:
        self._topics = topics
        self._retries = retries
        self._events = events
        self._clock = clock
        self._silent_until_ms = 0

    def route(self, message: Message, group: str = "") -> None:
        """Change the topic and queue of a message whose own queue is not read. `group`: the one that it is for, if the
        name of its topic does not report it. PutRefused: its dead letters can have no topic now."""
        topic, queue_id = self._topics.get(message.topic), message.queue_id
        if message.topic.startswith(name_rules.RETRY_PREFIX):
            group = group or name_rules.group_of_retry(message.topic)
        try:
            if topic is None and message.topic.startswith(name_rules.RETRY_PREFIX):
                topic = self._retries.topic_again(message.topic, group)
            if topic is None and message.topic.startswith(name_rules.DLQ_PREFIX):
                topic = self._retries.topic(message.topic, DLQ_QUEUES)
        except Refusal as refused:
            raise _cannot_be_stored(message, refused) from None
        queues = 0 if topic is None else topic.queues_read
        if 0 <= queue_id < queues:
            return
        if not queues:
            return self._to_dead_letters(message, group or GROUP)
        message.queue_id = queue_id % queues
        self._events.add(REDIRECTED, (message.topic, TO_QUEUE))
        return self._report(
            "a message of %s was due for queue %d, which is not read any more: it goes to queue %d",
            message.topic,
            queue_id,
            message.queue_id,
        )

    def _to_dead_letters(self, message: Message, group: str) -> None:
        """PutRefused."""
        origin = message.topic
        try:
            self._retries.to_dead_letters(message, group)
        except Refusal as refused:
            raise _cannot_be_stored(message, refused) from None
        properties = message.properties
        if not origin.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
            properties.pop(Property.RETRY_TOPIC, None)  # of its sender; in a dead letter it would count
        if Property.REAL_TOPIC not in properties or Property.DLQ_ORIGIN_TOPIC in properties:
            properties[Property.DLQ_ORIGIN_TOPIC] = origin
        is_system = str(name_rules.is_system_group(group)).lower()
        self._events.add(SENT_TO_DLQ, (group, origin, is_system))
        self._events.add(REDIRECTED, (origin, TO_DEAD_LETTERS))
        self._report(
            "a message was due for topic %s, which was deleted or has no queue that is read: it goes to the dead "
            "letters of %s",
            origin,
            group,
        )

    def _report(self, text: str, *values: object) -> None:
        """Log one in LOG_PAUSE_MS; all are counted."""
        now = self._clock.monotonic_ms()
        if now >= self._silent_until_ms:
            self._silent_until_ms = now + LOG_PAUSE_MS
            log.info(text, *values)


def _cannot_be_stored(message: Message, refused: Refusal) -> PutRefused:
    log.error("a due message of %s has no topic to go to: %s", message.topic, refused)
    return PutRefused(PutStatus.MESSAGE_ILLEGAL, "topic")
