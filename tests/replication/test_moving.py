"""docs/REPLICATION.md, "Moving from Apache and back without a pause", as a whole: clients of Java work all the time."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.store import CommitLog
from tests.interop.driver import Driver, Failed
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import digests, end_of, own_ports, words
from tests.replication.promoted_pair import is_master, promoted
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import topic_ext

pytestmark = pytest.mark.interop
TOPIC = "Moved"
SETTINGS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
    "maxMessageSize": "200000",
    "slaveReadEnable": "true",
    "haSendHeartbeatInterval": "1000",
}
NAMES = {"brokerName": "names", "autoCreateTopicEnable": "false"}
"""So that its broker does not take what the other refuses."""
AS_SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
THERE_S, BACK_S = 10, 45
"""How long producers may wait at most: a promotion and asking for routes; Apache's broker stops and starts."""


class Producer:
    """Sends numbered messages one after the other, each until it is acknowledged.

    `waited`: the longest time between two acknowledgements, in seconds.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bodies: list[str] = []
        self.waited = 0.0
        self._thread.start()

    def go_on(self, count: int = 100) -> float:
        """Wait for that many acknowledgements; returns `waited` and sets it to 0."""
        goal = len(self.bodies) + count
        eventually(lambda: len(self.bodies) >= goal, 90, f"{count} acknowledgements")
        waited, self.waited = self.waited, 0.0
        return waited

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        acknowledged_at = time.monotonic()
        while not self._stop.is_set():
            body = b"%06d" % len(self.bodies)
            try:
                [sent] = self._driver.ask("send", group="Movers", topic=TOPIC, body=body.hex())
            except Failed:
                time.sleep(0.1)
                continue
            if sent["status"] == "SEND_OK":
                now = time.monotonic()
                self.waited, acknowledged_at = max(self.waited, now - acknowledged_at), now
                self.bodies.append(body.hex())


@contextmanager
def producing(driver: Driver) -> Iterator[Producer]:
    producer = Producer(driver)
    try:
        yield producer
    finally:
        producer.stop()


def slave_in_sync(names: FireArrow) -> bool:
    ran = here("replica", "status", "--broker", "broker-a", name_server=names.name_server)
    return [row["inSync"] for row in ran.lines if row["role"] == "slave"] == [True]


@pytest.mark.long
def test_a_broker_moves_from_apache_and_back(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with ExitStack() as stack:
        names = stack.enter_context(FireArrow(tmp_path / "names", NAMES))
        of_apache = SETTINGS | {"namesrvAddr": names.name_server}
        apache = stack.enter_context(Apache(theirs, of_apache))
        with ClientSocket(address(apache.address)) as master:
            assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC)).code == 0
        driver = stack.enter_context(Driver("java5", names.name_server, tmp_path / "client"))
        driver.ask("consume", name="reader", group="Readers", topic=TOPIC)
        producer = stack.enter_context(producing(driver))
        producer.go_on()

        ports = *own_ports(), "--namesrv", names.name_server
        broker = BrokerProcess(ours, *ports, *words(SETTINGS | AS_SLAVE))
        stack.callback(broker.kill)
        eventually(lambda: slave_in_sync(names), 60, "that FireArrow follows")
        producer.go_on()
        promoted(broker).succeeded()
        assert producer.go_on() < THERE_S
        apache.stop()

        apache = stack.enter_context(Apache(theirs, of_apache | AS_SLAVE))
        eventually(lambda: slave_in_sync(names), 60, "that Apache's broker follows")
        producer.go_on()
        assert broker.stop() == 0
        with ClientSocket(address(apache.address)) as slave:
            end = end_of(slave)
        assert digests(theirs, end) == digests(ours, end)
        with CommitLog.open_readonly(ours / "commitlog") as log:
            assert not list(log.walk(end)), "records that Apache's slave has not"
        apache.stop()
        apache = stack.enter_context(Apache(theirs, of_apache))
        assert producer.go_on() < BACK_S
        producer.stop()
        with ClientSocket(address(apache.address)) as master:
            assert is_master(master)
            eventually(lambda: end_of(master) > end, what="a longer log")
        driver.await_bodies(["reader"], producer.bodies)
        driver.ask("stop", name="reader")
