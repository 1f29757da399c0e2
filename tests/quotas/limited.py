"""Sets quotas at a broker, and measures how fast connections send and read."""

import json
import time
from collections.abc import Callable
from typing import Any

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull_ext, send_ext, topic_ext

SYSTEM_BUSY, FLOW_CONTROL = 2, 215
IN, BYTES_IN = "messagesInPerSecond", "bytesInPerSecond"
OUT, BYTES_OUT = "messagesOutPerSecond", "bytesOutPerSecond"


def set_quota(connection: ClientSocket, entity: str, name: str, **quotas: int | None) -> RemotingCommand:
    body = json.dumps(quotas).encode()
    return connection.ask(RequestCode.UPDATE_QUOTA, {"entity": entity, "name": name}, body)


def quotas_of(connection: ClientSocket) -> dict[tuple[str, str], dict[str, Any]]:
    rows = json.loads(connection.ask(RequestCode.GET_QUOTAS, {"limit": "1000"}).body)["quotas"]
    return {(row["entity"], row["name"]): row for row in rows}


def clear_quotas(connection: ClientSocket) -> None:
    """None is left, of any entity."""
    for (entity, name), row in quotas_of(connection).items():
        if not row.get("byDefault"):
            answer = set_quota(connection, entity, name, **dict.fromkeys(row["quotas"]))
            assert answer.code == 0, answer.remark
    assert quotas_of(connection) == {}


def make_topic(connection: ClientSocket, name: str = "T") -> None:
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(name)).code == 0


def send(
    connection: ClientSocket, body: bytes = b"x" * 100, topic: str = "T", **more: str
) -> RemotingCommand:
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, **more), body)


def rate_of(one: Callable[[], object], *, for_s: float = 2.0, limit: float = 0) -> float:
    """How many calls of `one` per second. `limit`: the quota in calls. A rate far below it is measured again, up to
    twice: the machine may have stood still."""
    rate = 0.0
    for _ in range(3):
        use_up(one, limit)
        count, since = 0, time.monotonic()
        while (taken := time.monotonic() - since) < for_s:
            one()
            count += 1
        rate = count / taken
        if rate > limit * 0.9:
            break
    return rate


def use_up(one: Callable[[], object], limit: float) -> None:
    """Call what the quota has allowed by now: a second's burst and so much a second."""
    since = time.monotonic()
    for count in range(3 * round(limit)):
        if count + 2 >= limit * (1 + time.monotonic() - since):
            break
        one()


def pull(connection: ClientSocket, offset: int = 0, count: int = 1, **more: str) -> RemotingCommand:
    return connection.ask(RequestCode.PULL_MESSAGE, pull_ext("T", offset, maxMsgNums=str(count), **more))
