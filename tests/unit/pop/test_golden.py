"""Check points and acknowledgements as Apache stored them: parsed, and rebuilt byte for byte."""

from collections import Counter
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.base.message import Message
from firearrow.broker.base.options import Options
from firearrow.broker.pop.checkpoints import (
    ACK,
    BATCH_ACK,
    CHECK_POINT,
    AckMessage,
    PopCheckPoint,
    revive_topic,
)
from firearrow.broker.timers.rules import schedule
from tests.unit.store.test_golden import CONFIG, Golden

REVIVE = revive_topic("DefaultCluster")
TIMER = "rmq_sys_wheel_timer"
STORES = {
    "store-apache": {CHECK_POINT: 13, ACK: 15, BATCH_ACK: 1},
    "store-apache-crashed": {CHECK_POINT: 7, ACK: 6, BATCH_ACK: 1},
}


def stored(golden: Golden) -> list[Record]:
    """Check points that wait, or waited, for their time on the way to the revive topic."""
    with MessageStore.open(golden.root, CONFIG) as store:
        found = [
            decode(store.reader.record_at(entry.physical_offset))
            for entry in store.reader.entries(TIMER, 0, 0, 1000)
        ]
    return [record for record in found if record.properties.get("REAL_TOPIC") == REVIVE]


def rebuilt(record: Record) -> Message:
    """From its body alone, in its queue."""
    queue_id = int(record.properties["REAL_QID"])
    if record.properties["TAGS"] == CHECK_POINT:
        return PopCheckPoint.of(record.body).message(REVIVE, queue_id, record.born_timestamp)
    acks = AckMessage.of(record.body, "unused")
    deliver_ms = int(record.properties["TIMER_DELIVER_MS"])
    return acks.message(REVIVE, queue_id, deliver_ms, record.born_timestamp)


@pytest.mark.parametrize("name", STORES)
def test_what_apache_stored_is_rebuilt_byte_for_byte(name: str, tmp_path: Path) -> None:
    records = stored(Golden(name, tmp_path))
    assert Counter(record.properties["TAGS"] for record in records) == STORES[name]
    for record in records:
        message = rebuilt(record)
        schedule(message, record.born_timestamp, Options(), lambda out_ms: 0)
        assert message.body == record.body
        assert message.properties == record.properties
        assert (message.topic, message.queue_id) == (record.topic, record.queue_id)
        assert (message.flag, message.sys_flag, message.reconsume_times) == (
            record.flag,
            record.sys_flag,
            record.reconsume_times,
        )
