"""A slave of Apache's masters takes over while delayed and timer messages are delivered: each comes once."""

import time
from collections import Counter
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.store import CommitLog
from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import end_of, wait_for, words
from tests.replication.test_slave_of_apache import SLAVE, Pair
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import read_queue, send_ext, topic_ext

pytestmark = pytest.mark.interop
TOPIC, QUEUES, MESSAGES, ROUNDS = "Delayed", 2, 240, 2
LEVELS = {"messageDelayLevel": "1s 2s 3s 4s 6s"}
WAITING = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")


def fill(master: ClientSocket, first: int, *, timers: bool) -> None:
    """Messages of all levels, and of the timer, that are due within the next seconds."""
    for number in range(first, first + MESSAGES):
        if timers and number % 6 == 5:
            when = f"TIMER_DELAY_MS\x01{1000 + number * 37 % 4000}\x02"
        else:
            when = f"DELAY\x01{1 + number % 5}\x02"
        properties = f"{when}UNIQ_KEY\x01K{number:06d}\x02"
        sent = master.ask(
            RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, number % QUEUES, i=properties), b"%06d" % number
        )
        assert sent.code == 0, sent.remark


def delivered(connection: ClientSocket) -> list[bytes]:
    return [record.body for queue in range(QUEUES) for record in read_queue(connection, TOPIC, queue)]


def waiting(store: Path) -> set[bytes]:
    """Bodies of the messages that were to be delivered later."""
    with CommitLog.open_readonly(store / "commitlog") as log:
        return {record.body for record in log.records() if record.topic in WAITING and record.body.isdigit()}


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_delayed_messages_come_once(tmp_path: Path, version: str) -> None:
    need(lambda: java_class_path("client5" if version == "5.5.0" else "broker4"))
    pair, timers = Pair(tmp_path, version, **LEVELS), version == "5.5.0"
    try:
        for number in range(ROUNDS):
            if number:
                pair.start_master()
            is_killed = number == 0
            promoted(pair, number * MESSAGES, timers=timers, is_killed=is_killed)
            pair.forget()
    finally:
        pair.close()


def promoted(pair: Pair, first: int, *, timers: bool, is_killed: bool) -> None:
    """The master is killed in the middle of its deliveries, and the slave killed or stopped; then it is the master."""
    with pair.slave(**LEVELS) as slave, slave.connect() as reader:
        with pair.connect() as master:
            assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES)).code == 0
            fill(master, first, timers=timers)
            wait_for(lambda: end_of(reader) == end_of(master), "the master's end", 60)
            wait_for(lambda: len(delivered(reader)) > MESSAGES // 3, "deliveries", 30)
        pair.master.kill()
        time.sleep(0.1)
        if is_killed:
            slave.kill()
        else:
            assert slave.stop() == 0
    master_options = SLAVE | LEVELS | {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
    store = pair.folder / "slave"
    for _ in range(2):  # the second start is after a kill of the new master
        with BrokerProcess(store, *words(master_options)) as broker, broker.connect() as connection:
            before = len(delivered(connection))
            wanted = waiting(store)
            assert len(wanted) == MESSAGES
            assert before >= MESSAGES // 3
            wait_for(lambda: len(delivered(connection)) >= MESSAGES, "all deliveries", 30)
            time.sleep(1.0)  # one that comes twice would come now
            found = Counter(delivered(connection))
            assert {body: count for body, count in found.items() if count != 1} == {}
            assert set(found) == wanted
            broker.kill()
