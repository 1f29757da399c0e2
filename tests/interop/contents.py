"""A store's content as a broker returns it for raw frames: every record of every queue, offsets, topics, groups."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from firearrow._native.protocol.fastjson import loads
from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull

Queue = tuple[str, int]

SYSTEM_QUEUES: dict[str, int] = {
    "RMQ_SYS_TRANS_HALF_TOPIC": 1,
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": 1,
    "SCHEDULE_TOPIC_XXXX": 18,
    "rmq_sys_wheel_timer": 1,
    "rmq_sys_REVIVE_LOG_DefaultCluster": 8,
    "%LMQ%one": 1,
    "%LMQ%two": 1,
    "%LMQ%three": 1,
}
"""Queues of system topics, as many as are compared, and LMQs, which are in no table."""
READABLE = 4
ENDS = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED, ResponseCode.TOPIC_NOT_EXIST)
OWN_GROUPS = ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP")
"""Groups of the broker itself: their offsets advance as it works."""


@dataclass(frozen=True)
class Contents:
    """`records`: their bytes as in the log. `offsets`: by `topic@group`, without those of `OWN_GROUPS`."""

    records: dict[Queue, list[bytes]]
    topics: dict[str, Any]
    groups: dict[str, Any]
    offsets: dict[str, Any]
    delays: dict[int, int]

    def decoded(self, topic: str, queue_id: int = 0) -> list[Record]:
        return [decode(one) for one in self.records.get((topic, queue_id), [])]


def contents(client: ClientSocket) -> Contents:
    topics = table(client, RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable")
    offsets = table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, "offsetTable")
    delays = table(client, RequestCode.GET_ALL_DELAY_OFFSET, "offsetTable")
    queues = {name: one["readQueueNums"] for name, one in topics.items() if one["perm"] & READABLE}
    return Contents(
        {queue: found for queue in _each(queues | SYSTEM_QUEUES) if (found := read(client, *queue))},
        topics,
        table(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable"),
        {key: value for key, value in offsets.items() if not key.endswith(OWN_GROUPS)},
        {int(level): int(offset) for level, offset in delays.items()},
    )


def same_records(before: Contents, after: Contents) -> int:
    """Everything is still there, byte for byte, at its offset. Returns how many records were compared."""
    for queue, records in before.records.items():
        assert after.records.get(queue, [])[: len(records)] == records, queue
    return sum(len(records) for records in before.records.values())


def _each(queues: dict[str, int]) -> Iterator[Queue]:
    for topic, count in queues.items():
        yield from ((topic, number) for number in range(count))


def table(client: ClientSocket, code: int, name: str) -> dict[str, Any]:
    """That member of the broker's answer."""
    answer = client.ask(code)
    assert answer.code == 0, answer.remark
    found = loads(answer.body)[name]
    assert isinstance(found, dict)
    return found


def read(client: ClientSocket, topic: str, queue_id: int) -> list[bytes]:
    """Every record of a queue, from offset 0. A topic or queue that is not there (yet) has none."""
    found: list[bytes] = []
    while (answer := pull(client, topic, len(found), queue_id, consumerGroup="TOOLS_CONSUMER")).code == 0:
        found += encoded(answer.body)
    assert answer.code in ENDS or "is illegal, topic:" in str(answer.remark), answer.remark
    return found


def encoded(body: bytes) -> list[bytes]:
    """The consecutive records."""
    found, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        found.append(body[at : at + size])
        at += size
    return found
