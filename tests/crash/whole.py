"""A whole broker as workload: topics and groups created, messages sent and consumed, then a clean stop."""

import json
import random
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.crash.marks import Marks
from tests.crash.progress import GROUP
from tests.crash.recorded_broker import serve
from tests.support.client_socket import ClientSocket
from tests.support.requests import send_ext, topic_ext

TOPIC, QUEUES, SENDS = "T", 2, 80


def whole_broker(root: Path, mark: Marks, draw: random.Random) -> None:
    """SYNC_FLUSH: topics created, messages sent and consumed over the wire, then SIGTERM."""
    serve(root, mark, {"timerWheelEnable": "false"}, lambda connection: _use(connection, mark, draw))


def _use(connection: ClientSocket, mark: Marks, draw: random.Random) -> None:
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES)).code == 0
    make_group(connection)
    for number in range(SENDS):
        _send(connection, mark, draw, number)


def make_group(connection: ClientSocket) -> None:
    group = {"groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
    body = json.dumps(group).encode()
    made = connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert made.code == 0, made.remark


def _send(connection: ClientSocket, mark: Marks, draw: random.Random, number: int) -> None:
    """A message; sometimes the offset after it is committed."""
    queue_id, body = draw.randrange(QUEUES), draw.randbytes(draw.randint(0, 2500))
    properties = f"KEYS\x01k{number}\x02TAGS\x01a\x02"
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, queue_id, i=properties), body)
    assert answer.code == 0, answer
    mark("acknowledged", at=int(answer.ext["msgId"][-16:], 16))
    if draw.random() < 0.3:
        offset = int(answer.ext["queueOffset"]) + 1
        values = {"topic": TOPIC, "queue": queue_id, "offset": offset}
        mark("committing", **values)
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        committed = connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert committed.code == 0, committed.remark
        mark("committed", **values)
