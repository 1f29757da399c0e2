"""StoreFacts: what rules know about the broker: its cluster, and whose message is at an offset. Loop thread."""

from firearrow._native.protocol import name_rules
from firearrow._native.store.log.record import RecordError, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Property

WITH_REAL_TOPIC = frozenset(
    (name_rules.HALF_TOPIC, name_rules.DISCARD_TOPIC, name_rules.SCHEDULE_TOPIC, name_rules.TIMER_TOPIC)
)
"""Topics whose messages are for another topic, which the broker has put into a property."""


class ClusterFacts:
    """Of a name server alone, which has no messages."""

    names_lmqs = False

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def topic_at(self, physical_offset: int) -> str | None:
        return None


class StoreFacts:
    def __init__(self, cluster: str, store: MessageStore, *, names_lmqs: bool) -> None:
        self.cluster = cluster
        self.names_lmqs = names_lmqs
        self._store = store

    def topic_at(self, physical_offset: int) -> str | None:
        """The topic of the record that starts there: of a half message or a timer message, the one it is for. None:
        there is no record."""
        # requests that readers of it cannot make yet, such as the end of a transaction, need the right as well
        raw = self._store.reader.record_at(physical_offset, unconfirmed=True)
        return None if raw is None else topic_of(raw)


def topic_of(raw: bytes) -> str | None:
    """The topic that the record's message is for. None: it is not a record."""
    try:
        record = decode(raw, False)
    except RecordError:
        return None
    if record.topic in WITH_REAL_TOPIC:
        return record.properties.get(Property.REAL_TOPIC, record.topic)
    return record.topic
