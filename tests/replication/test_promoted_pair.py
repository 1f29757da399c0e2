"""A slave of ours whose master is killed, and whose folder is started as a master: no delayed message, timer message,
transaction or popped message is delivered twice, and none is lost."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import name_server, start_master, start_slave
from tests.replication.raw_slave import status_of
from tests.replication.test_pair import equal
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send_ext, topic_ext

LATE = "Late"
COUNT = 30
ROLES = {"timerPrecisionMs": "100", "flushConsumerOffsetInterval": "1000"}


def send_with(
    connection: ClientSocket, body: bytes, properties: dict[str, str], sys_flag: int = 0
) -> dict[str, str]:
    text = "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(LATE, 0, i=text, f=str(sys_flag)), body)
    assert answer.code == 0, answer.remark
    return dict(answer.ext)


def commit(connection: ClientSocket, half: dict[str, str]) -> None:
    ext = {
        "producerGroup": "PG",
        "tranStateTableOffset": half["queueOffset"],
        "commitLogOffset": str(int(half["msgId"][-16:], 16)),
        "commitOrRollback": "8",
        "msgId": "U",
        "transactionId": "U",
    }
    connection.ask(RequestCode.END_TRANSACTION, ext)


def bodies(connection: ClientSocket) -> Counter[bytes]:
    return Counter(record.body for record in read_queue(connection, LATE, 0))


@contextmanager
def joined_pair(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with (
        start_master(tmp_path / "master", haListenPort=str(free_port()), **ROLES) as master,
        start_slave(tmp_path / "slave", name_server(master), **ROLES) as slave,
    ):
        with master.connect() as connection:
            connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(LATE, 1))
            eventually(lambda: bool(status_of(connection)["haConnectionInfo"]), what="the slave")
        yield master, slave


@pytest.mark.parametrize("clean", [True, False])
def test_each_late_message_once(tmp_path: Path, clean: bool) -> None:
    wanted, halves = set(), []
    with joined_pair(tmp_path) as (master, slave), master.connect() as connection:
        for number in range(COUNT):
            late = {"DELAY": "1"} if number % 2 else {"TIMER_DELAY_MS": "1500"}
            send_with(connection, b"late %d" % number, late)
            half = {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": f"U{number}"}
            halves.append(send_with(connection, b"half %d" % number, half, 4))
            commit(connection, halves[-1])
            wanted |= {b"late %d" % number, b"half %d" % number}
            time.sleep(0.05)
        eventually(lambda: len(bodies(connection)) > COUNT, what="half of them")
        equal_so_far = bodies(connection)
        master.kill()
        slave.stop() if clean else slave.kill()
    assert COUNT < sum(equal_so_far.values()) < 2 * COUNT
    with start_master(tmp_path / "slave", **ROLES) as promoted, promoted.connect() as connection:
        before = bodies(connection)
        assert sum(before.values()) >= sum(equal_so_far.values()) - 5
        for half in halves:  # the producer had no answer of the old master
            commit(connection, half)
        eventually(lambda: set(bodies(connection)) == wanted, what="all of them")
        time.sleep(1.5)
        assert {body: count for body, count in bodies(connection).items() if count > 1} == {}


def pop(connection: ClientSocket, invisible_ms: int) -> bytes:
    ext = {
        "consumerGroup": "PopGroup",
        "topic": LATE,
        "queueId": "0",
        "maxMsgNums": "8",
        "invisibleTime": str(invisible_ms),
        "pollTime": "0",
        "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
    }
    return connection.ask(RequestCode.POP_MESSAGE, ext).body


def test_popped_messages_come_back_once(tmp_path: Path) -> None:
    """Not acknowledged, they are put to the retry topic once, by whichever of the two."""
    with joined_pair(tmp_path) as (master, slave), master.connect() as connection:
        for number in range(24):
            send_with(connection, b"popped %d" % number, {})
        for _ in range(3):
            assert pop(connection, 1000)
            time.sleep(0.4)
        equal(master, slave)
        master.kill()
        slave.kill()
    with start_master(tmp_path / "slave", **ROLES) as promoted, promoted.connect() as connection:
        retry = f"%RETRY%PopGroup_{LATE}"
        wanted = {b"popped %d" % number for number in range(24)}
        found: Counter[bytes] = Counter()

        def is_back() -> bool:
            found.clear()
            if connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": retry}).code != 0:
                return False
            found.update(record.body for record in read_queue(connection, retry, 0))
            return set(found) == wanted

        eventually(is_back, 40, "all of them")
        time.sleep(1.5)
        is_back()
        assert max(found.values()) == 1
