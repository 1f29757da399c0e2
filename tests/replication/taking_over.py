"""Delayed and timer messages over a change of masters: what is sent, what was delivered, and that each comes once."""

import time
from collections import Counter
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.client.store import CommitLog
from tests.replication.pairs import end_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send_ext, topic_ext

TOPIC, QUEUES, MESSAGES = "Delayed", 2, 240
LEVELS = {"messageDelayLevel": "1s 1s 2s 3s 4s"}
WAITING = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")


def fill(master: ClientSocket, first: int, *, timers: bool) -> None:
    """Messages of all levels, and of the timer, that are due within the next seconds."""
    assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES)).code == 0
    for number in range(first, first + MESSAGES):
        if timers and number % 6 == 5:
            when = f"TIMER_DELAY_MS\x01{1000 + number * 37 % 3000}\x02"
        else:
            when = f"DELAY\x01{1 + number % 5}\x02"
        properties = f"{when}UNIQ_KEY\x01K{number:06d}\x02"
        ext = send_ext(TOPIC, number % QUEUES, i=properties)
        sent = master.ask(RequestCode.SEND_MESSAGE_V2, ext, b"%06d" % number)
        assert sent.code == 0, sent.remark


def delivered(connection: ClientSocket) -> list[bytes]:
    return [record.body for queue in range(QUEUES) for record in read_queue(connection, TOPIC, queue)]


def in_the_middle(master: ClientSocket, slave: ClientSocket, delivered_before: int) -> None:
    """Wait until the slave has all messages, and a third of them as delivered."""
    eventually(lambda: end_of(slave) == end_of(master), 60, "the master's end")
    eventually(lambda: len(delivered(slave)) > delivered_before + MESSAGES // 3, 30, "deliveries")


def waiting(store: Path) -> set[bytes]:
    """Bodies of the messages that were to be delivered later."""
    with CommitLog.open_readonly(store / "commitlog") as log:
        return {record.body for record in log.records() if record.topic in WAITING and record.body.isdigit()}


def each_comes_once(broker: BrokerProcess, messages: int) -> None:
    """The log has that many messages; wait until all are delivered."""
    with broker.connect() as connection:
        wanted = waiting(broker.store)
        assert len(wanted) == messages
        eventually(lambda: len(delivered(connection)) >= messages, 30, "all deliveries")
        time.sleep(1.0)  # one that comes twice would come now
        found = Counter(delivered(connection))
        assert {body: count for body, count in found.items() if count != 1} == {}
        assert set(found) == wanted
