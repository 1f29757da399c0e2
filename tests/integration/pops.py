"""POP by raw frames: the requests of its tests, and what they read from the responses."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow._native.store.log.record import Record, decode
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.startup import QUICK_REVIVE

GROUP = "CG"
QUICK = "--set", "timerPrecisionMs=100", "--set", "reviveInterval=100", "--set", "brokerName=b"


@contextmanager
def quick_broker(store: Path, *settings: str) -> Iterator[BrokerProcess]:
    """It revives quickly. It must end cleanly, and without a traceback in its log."""
    with BrokerProcess(store, *QUICK, *settings, environment=QUICK_REVIVE) as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def pop_ext(topic: str, **more: str) -> dict[str, str]:
    ext = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": "0",
        "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return ext | more


def pop(connection: ClientSocket, topic: str, **more: str) -> RemotingCommand:
    return connection.ask(RequestCode.POP_MESSAGE, pop_ext(topic, **more))


def records(answer: RemotingCommand) -> list[Record]:
    found, at = [], 0
    while at < len(answer.body):
        size = int.from_bytes(answer.body[at : at + 4], "big")
        found.append(decode(answer.body[at : at + size]))
        at += size
    return found


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [record.body for record in records(answer)]


def receipt(answer: RemotingCommand, record: Record) -> str:
    """As the Java client builds it."""
    if "POP_CK" in record.properties:
        return record.properties["POP_CK"]
    starts = {tuple(one.split()[:2]): one.split()[2] for one in answer.ext["startOffsetInfo"].split(";")}
    start = starts["0", str(record.queue_id)]
    words = [start, *(answer.ext[name] for name in ("popTime", "invisibleTime", "reviveQid")), "0", "b"]
    return " ".join([*words, str(record.queue_id), str(record.queue_offset)])


def ack_ext(answer: RemotingCommand, record: Record) -> dict[str, str]:
    text = receipt(answer, record)
    retried = text.split()[4] == "1"
    topic = f"%RETRY%{GROUP}_{record.topic}" if retried else record.topic
    return {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": str(record.queue_id),
        "offset": str(record.queue_offset),
        "extraInfo": text,
    }


def ack(connection: ClientSocket, answer: RemotingCommand, record: Record) -> RemotingCommand:
    return connection.ask(RequestCode.ACK_MESSAGE, ack_ext(answer, record))


def until_popped(connection: ClientSocket, topic: str, within_s: float = 15, **more: str) -> RemotingCommand:
    def popped() -> RemotingCommand | None:
        answer = pop(connection, topic, **more)
        return answer if answer.code == 0 else None

    answer = eventually(popped, within_s, f"a message of {topic}")
    assert answer is not None
    return answer
