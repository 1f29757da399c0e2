"""A whole broker as workload: it runs in the recorded process, and a client in a thread of it marks each answer.

What the log holds is read from the log here; the marks say what was acknowledged, and when.
"""

import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.cli import cli
from tests.crash.marks import Marks
from tests.crash.progress import GROUP
from tests.process.connection import Connection
from tests.process.requests import send_ext, topic_ext

OPTIONS: dict[str, Any] = {
    "segment_bytes": 65536,
    "queue_file_bytes": 400,
    "index_slots": 40,
    "index_entries": 64,
    "max_message_bytes": 4096,
}
SETTINGS = {
    "mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400", "maxHashSlotNum": "40",
    "maxIndexNum": "64", "maxMessageSize": "4096", "timerWheelEnable": "false", "flushIntervalCommitLog": "40",
    "flushIntervalConsumeQueue": "60", "flushConsumerOffsetInterval": "150",
}  # fmt: skip
TOPIC, QUEUES, SENDS, START_S = "T", 2, 80, 20
ENDLESS = 1 << 62


def whole_broker(root: Path, mark: Marks, draw: random.Random) -> None:
    """SYNC_FLUSH: topics made, messages sent and consumed over the wire, then SIGTERM."""
    mark("options", **OPTIONS, sync_flush=True)
    mark("derived")
    mark("writing", end=ENDLESS)
    address = "127.0.0.1", _free_port()
    faults: list[BaseException] = []
    client = threading.Thread(target=_use, args=(address, mark, draw, faults))
    client.start()
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    listen = ["--listen", "{}:{}".format(*address), "--namesrv-listen", "off", "--log-level", "error"]
    flush = ["--set", "flushDiskType=SYNC_FLUSH"]
    try:
        cli(["broker", "--store", str(root), *listen, *flush, *settings], standalone_mode=False)
    finally:
        client.join()
    if faults:
        raise faults[0]


def _use(address: tuple[str, int], mark: Marks, draw: random.Random, faults: list[BaseException]) -> None:
    try:
        with _connected(address) as connection:
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES)).code == 0
            group = {"groupName": GROUP, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
            made = connection.ask(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=json.dumps(group).encode()
            )
            assert made.code == 0, made.remark
            for number in range(SENDS):
                _send(connection, mark, draw, number)
    except BaseException as error:
        faults.append(error)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def _send(connection: Connection, mark: Marks, draw: random.Random, number: int) -> None:
    """A message, and now and then the offset behind it is committed."""
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


def _free_port() -> int:
    """Of a pair: the broker takes the one two below as well."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _connected(address: tuple[str, int]) -> Connection:
    """As soon as the broker listens."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return Connection(address)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
