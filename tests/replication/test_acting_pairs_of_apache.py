"""enableSlaveActingMaster in pairs of Apache 5.5.0 and ours, under our name server and Apache's.

A Java consumer reads on while the master is gone; each message comes once.
"""

import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver
from tests.interop.toolchain import java_class_path, need
from tests.replication.acting_rig import (
    BOTH,
    LATER,
    TOPIC,
    Rig,
    acts,
    commit,
    committed,
    fill,
    make,
    read,
    send_later,
)
from tests.support.eventually import eventually
from tests.support.requests import send, send_ext, topic_ext

pytestmark = pytest.mark.interop
COUNT, MORE = 4000, 40
"""More than a consumer of Java holds of four queues, so that it cannot have all before it reads at the slave."""


@pytest.fixture(autouse=True)
def java() -> None:
    need(lambda: java_class_path("client5"))


@pytest.mark.parametrize(
    ("names", "master", "slave"),
    [
        ("ours", "apache", "ours"),
        pytest.param("ours", "ours", "apache", marks=pytest.mark.long),
        pytest.param("apache", "ours", "ours", marks=pytest.mark.long),
    ],
)
def test_the_slave_serves_and_the_master_takes_over(
    tmp_path: Path, names: str, master: str, slave: str
) -> None:
    rig = Rig(tmp_path, names, master, slave)
    try:
        gone = master_is_killed(rig, apache_slave=slave == "apache")
        acts(rig)
        master_is_back(rig, gone)
    finally:
        rig.close()


@pytest.mark.long
def test_a_pair_of_apache_under_our_name_server(tmp_path: Path) -> None:
    """Nobody pulls from the slave: its answer to 43 would keep Apache's master isolated for ever."""
    rig = Rig(tmp_path, "ours", "apache", "apache")
    try:
        gone = master_is_killed(rig, apache_slave=True)
        with rig.connect("slave") as slave:
            commit(slave, 8)
        master_is_back(rig, gone)
    finally:
        rig.close()


def master_is_killed(rig: Rig, *, apache_slave: bool) -> float:
    """Both come up, a delayed message waits, the master is killed; returns when."""
    rig.start("master")
    rig.start("slave")
    eventually(lambda: rig.route("TBW102")[0] == BOTH, 60, "both registered")
    with rig.connect("master") as master:
        fill(master)
        commit(master, 4)
        rig.in_step()
        if apache_slave:  # it copies tables a minute after its start
            with rig.connect("slave") as slave:
                make(slave)
        else:
            rig.copied(4)
        send_later(master)
        rig.in_step()
    rig.kill("master")
    rig.wait_route({"0": "slave"}, 4, 15)
    return time.monotonic()


def master_is_back(rig: Rig, gone: float) -> None:
    """The delayed message has become due meanwhile."""
    time.sleep(max(0.0, gone + 9 - time.monotonic()))
    rig.start("master")
    rig.wait_route(BOTH, 6, 60)
    with rig.connect("master") as master:
        assert committed(master) == 8
        eventually(lambda: read(master, 0, LATER) == [b"later"], 30, "the delayed message")
        assert send(master, TOPIC, b"on").code == 0
        rig.in_step(60)
        time.sleep(1)
        assert read(master, 0, LATER) == [b"later"]


@pytest.mark.long
def test_a_java_consumer_reads_on_and_gets_nothing_twice(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    try:
        rig.start("master")
        rig.start("slave")
        with rig.connect("master") as master:
            master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
            send_many(rig, 0, COUNT)
            rig.in_step()
            eventually(lambda: rig.route()[0] == BOTH, 60, "both registered")
        with Driver("java5", rig.names.name_server, tmp_path) as java:
            java.ask("consume", name="reader", group="JavaReader", topic=TOPIC)
            eventually(lambda: bool(java.consumed("reader")), 60, "the first messages")
            before = len(java.consumed("reader"))
            rig.kill("master")
            assert before < COUNT
            java.await_bodies(["reader"], [(b"m%04d" % number).hex() for number in range(COUNT)])
            eventually(lambda: java_committed(rig, "slave") == COUNT, 20, "the commits at the slave")
            rig.start("master")
            rig.wait_route(BOTH, 6)
            assert java_committed(rig, "master") == COUNT
            send_many(rig, COUNT, MORE)
            java.await_bodies(["reader"], [(b"m%04d" % number).hex() for number in range(COUNT + MORE)])
            java.ask("stop", name="reader")
            assert len(java.consumed("reader")) == COUNT + MORE
        eventually(lambda: java_committed(rig, "master") == COUNT + MORE, 5, "the last commits at the master")
    finally:
        rig.close()


def send_many(rig: Rig, first: int, count: int) -> None:
    with rig.connect("master") as master:
        sent = [
            master.send_request(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, number % 4), b"m%04d" % number)
            for number in range(first, first + count)
        ]
        assert all(master.answer_to(opaque).code == 0 for opaque in sent)


def java_committed(rig: Rig, role: str) -> int:
    """Of its four queues."""
    with rig.connect(role) as connection:
        ext = {"consumerGroup": "JavaReader", "topic": TOPIC}
        answers = [
            connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext | {"queueId": str(queue)})
            for queue in range(4)
        ]
    return sum(int(answer.ext["offset"]) if answer.code == 0 else 0 for answer in answers)
