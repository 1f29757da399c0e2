"""Promotions with Apache 5.5.0: its name server prefers the newer master, and our slave takes over from its broker."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver, Failed
from tests.interop.peers import Apache, address
from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import TOPIC, digests, end_of, fill, ha_client, own_ports, words
from tests.replication.promoted_pair import PromotedPair, address_of, is_master, promoted, state_of
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send, topic_ext

pytestmark = pytest.mark.interop
SETTINGS = {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "200000"}
SLAVE = SETTINGS | {
    "brokerName": "broker-a",
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "slaveReadEnable": "true",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
}


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    need(lambda: java_class_path("client5"))
    apache = Apache(tmp_path_factory.mktemp("apache") / "store", SETTINGS)
    try:
        yield apache
    finally:
        apache.kill()


def test_apaches_name_server_prefers_the_newer_master(apache: Apache, tmp_path: Path) -> None:
    with PromotedPair(tmp_path, apache.name_server) as pair:
        pair.fill(20)
        pair.caught_up()
        pair.master.kill()
        promoted(pair.slave).succeeded()
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")
        pair.master = pair.start_master()
        eventually(lambda: state_of(pair.master) == "fenced", what="that the old master is fenced")
        assert pair.route() == {0: address_of(pair.slave)}
        with pair.master.connect() as old, pair.slave.connect() as new:
            assert send(old, TOPIC, b"never").code == 14
            assert send(new, TOPIC, b"body").code == 0


def test_a_slave_takes_over_from_apaches_master(apache: Apache, tmp_path: Path) -> None:
    with (
        BrokerProcess(
            tmp_path / "slave", *own_ports(), "--namesrv", apache.name_server, *words(SLAVE)
        ) as slave,
        ClientSocket(address(apache.address)) as old,
    ):
        fill(old, 200)
        with slave.connect() as client:
            eventually(lambda: ha_client(client)["state"] == "following", 60, "that it follows")
        ran = promoted(slave)
        assert ran.code == 0, ran.err
        assert (ran.code, "is Apache's and refuses sends for 10 minutes: stop it now" in ran.err) == (0, True)
        refused = send(old, TOPIC, b"never")
        assert (refused.code, "broker unable to service, until" in str(refused.remark)) == (1, True)
        with slave.connect() as client:
            assert is_master(client)
            end = end_of(client)
            assert end == end_of(old)
            assert digests(tmp_path / "slave", end) == digests(apache.store, end)
            assert len(read_queue(client, TOPIC, 0)) == 50
            assert send(client, TOPIC, b"body", queue_id=0).ext["queueOffset"] == "50"
        eventually(lambda: master_of(apache) == address_of(slave), what="the route")


def test_javas_clients_go_on_while_a_slave_takes_over(tmp_path: Path) -> None:
    """Go's do, too, but ask for routes every 30 s only; histories of pairs have them (tests/history)."""
    need(lambda: java_class_path("client5"))
    with PromotedPair(tmp_path) as pair:
        with pair.master.connect() as client:
            client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
        pair.knows(TOPIC)
        with Driver("java5", pair.names, tmp_path / "client") as driver:
            driver.ask("consume", name="reader", group="Readers", topic=TOPIC)
            bodies = [(b"%05d" % number).hex() for number in range(600)]
            send_all(driver, bodies[:200])
            with ThreadPoolExecutor(1) as beside:
                ran = beside.submit(promoted, pair.slave)
                send_all(driver, bodies[200:])
                [row] = ran.result().rows
            got = driver.await_bodies(["reader"], bodies)
            assert len(got) == len(bodies)
            driver.ask("stop", name="reader")
        with pair.slave.connect() as client:
            assert 0 < row["end"] < end_of(client)
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")


def send_all(driver: Driver, bodies: list[str]) -> None:
    """One after the other, each until it is stored: the driver's producer tries once."""
    for body in bodies:
        for _ in range(100):
            try:
                [sent] = driver.ask("send", group="P", topic=TOPIC, body=body)
            except Failed:
                time.sleep(0.1)
            else:
                assert sent["status"] == "SEND_OK"
                break
        else:
            raise AssertionError(f"{body} could not be sent")


def master_of(apache: Apache) -> str:
    ran = here("replica", "status", "--broker", "broker-a", name_server=apache.name_server)
    return str(next(row["address"] for row in ran.lines if row["role"] == "master"))
