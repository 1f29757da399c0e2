"""Ext fields of the usual requests to a broker, and the records in its answers."""

import json
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.client_socket import ClientSocket

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
BODY_AT = 84


class Record(NamedTuple):
    """A stored message of IPv4 hosts as a pull gives it."""

    queue_id: int
    queue_offset: int
    body: bytes
    physical_offset: int


def send_ext(topic: str, queue_id: int = 0, tag: str = "", **more: str) -> dict[str, str]:
    """For SEND_MESSAGE_V2; `more` replaces fields by their letter."""
    fields = {
        "a": "PG",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(time.time_ns() // 1_000_000),
        "h": "0",
        "i": f"TAGS\x01{tag}\x02" if tag else "",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return fields | more


def send(
    connection: ClientSocket, topic: str, body: bytes, queue_id: int = 0, tag: str = ""
) -> RemotingCommand:
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, queue_id, tag), body)


def pull_ext(topic: str, offset: int = 0, queue_id: int = 0, **more: str) -> dict[str, str]:
    """Its own subscription to everything, at most 32 messages, no waiting; `more` replaces fields."""
    fields = {
        "consumerGroup": "CG",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(SUBSCRIPTION),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return fields | more


def pull(
    connection: ClientSocket, topic: str, offset: int = 0, queue_id: int = 0, **more: str
) -> RemotingCommand:
    return connection.ask(RequestCode.PULL_MESSAGE, pull_ext(topic, offset, queue_id, **more))


def records(body: bytes) -> Iterator[Record]:
    at = 0
    while at < len(body):
        size, magic = struct.unpack_from(">ii", body, at)
        assert magic == -626843481
        assert BODY_AT < size <= len(body) - at
        queue_id, _, queue_offset, physical_offset = struct.unpack_from(">iiqq", body, at + 12)
        (length,) = struct.unpack_from(">i", body, at + BODY_AT)
        start = at + BODY_AT + 4
        yield Record(queue_id, queue_offset, body[start : start + length], physical_offset)
        at += size


def read_queue(connection: ClientSocket, topic: str, queue_id: int) -> list[Record]:
    """Every message of a queue, from offset 0."""
    found: list[Record] = []
    while True:
        answer = pull(connection, topic, len(found), queue_id)
        if answer.code != 0:
            assert answer.code in (19, 21), answer.remark
            return found
        fresh = list(records(answer.body))
        assert fresh
        found += fresh


def topic_ext(topic: str, queues: int = 4) -> dict[str, str]:
    """For UPDATE_AND_CREATE_TOPIC."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def runtime_info(connection: ClientSocket) -> dict[str, str]:
    """GET_BROKER_RUNTIME_INFO."""
    table: dict[str, str] = json.loads(connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)["table"]
    return table
