"""A slave of Apache's masters, 5.5.0 and 4.9.7: equal logs over kills and rolls, copied tables, readers that go on."""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver
from tests.interop.peers import Apache, Apache4, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import digests, end_of, ha_client, words
from tests.replication.way import HEADER, Way
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send, send_ext, topic_ext

pytestmark = pytest.mark.interop
SEGMENT = 1 << 20
MASTERS = {"5.5.0": Apache, "4.9.7": Apache4}
SETTINGS = {"mappedFileSizeCommitLog": str(SEGMENT), "maxMessageSize": "200000"}
SLAVE = SETTINGS | {
    "brokerName": "broker-a",
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "slaveReadEnable": "true",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "10000",
}
TOPIC, GROUP = "Followed", "Reader"
LOAD_PAUSE_S = 0.001


class Pair:
    """`settings`: of the master."""

    def __init__(self, folder: Path, version: str, **settings: str) -> None:
        self.folder, self.version, self._settings = folder, version, settings
        self.names = FireArrow(folder / "names", {"brokerName": "names", "brokerClusterName": "Names"})
        self.start_master()

    def start_master(self) -> None:
        more = {"timerWheelEnable": "true"} if self.version == "5.5.0" else {}
        self.master = MASTERS[self.version](
            self.folder / "master",
            SETTINGS | {"namesrvAddr": self.names.name_server} | more | self._settings,
        )

    def connect(self) -> ClientSocket:
        return ClientSocket(address(self.master.address))

    def slave(self, **settings: str) -> BrokerProcess:
        return BrokerProcess(
            self.folder / "slave", "--namesrv", self.names.name_server, *words(SLAVE | settings)
        )

    def equal(self, slave: ClientSocket, within_s: float = 60) -> int:
        """Wait until the slave has all; returns the end."""
        with self.connect() as master:
            eventually(lambda: end_of(slave) == end_of(master), within_s, "the master's end")
            end = end_of(slave)
        assert digests(self.folder / "slave", end) == digests(self.folder / "master", end)
        return end

    def close(self) -> None:
        self.master.kill()
        self.names.broker.kill()


@pytest.fixture(scope="module", params=["5.5.0", pytest.param("4.9.7", marks=pytest.mark.long)])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    need(lambda: java_class_path("client5" if request.param == "5.5.0" else "broker4"))
    pair = Pair(tmp_path_factory.mktemp("pair"), request.param)
    try:
        yield pair
    finally:
        pair.close()


def fill(connection: ClientSocket, count: int, size: int = 4000) -> None:
    connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
    for number in range(count):
        assert send(connection, TOPIC, b"%06d" % number * (size // 6), queue_id=number % 4).code == 0


def copied(slave: ClientSocket, code: int, text: bytes) -> None:
    eventually(lambda: text in slave.ask(code).body, 30, f"{text!r} in the answer to {code}")


def shown(pair: Pair) -> None:
    """What `firearrow replica status` tells of the pair: Apache 4 does not answer GET_BROKER_HA_STATUS."""
    ran = here("replica", "status", "--broker", "broker-a", name_server=pair.names.name_server)
    master, slave = ran.rows
    assert (slave["state"], slave["brokerId"]) == ("following", 1)
    if pair.version == "5.5.0":
        assert master["offset"] == slave["offset"] > 0
        assert (slave["inSync"], slave["lagBytes"], slave["lagMs"]) == (True, 0, 0)
    else:
        assert (master["offset"], slave["inSync"]) == (None, None)
        assert "older than 5.0" in master["reason"]


def test_log_tables_kills_and_readers(pair: Pair) -> None:
    """One story, for the JVMs take longer to start than all of it takes."""
    with pair.connect() as master:
        fill(master, 100)
        group = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "2", "commitOffset": "7"}
        config = b'{"groupName":"Reader","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
        assert master.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config).code == 0
        assert master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, group).code == 0
        delayed = send_ext(TOPIC, i="DELAY\x011\x02")
        assert master.ask(RequestCode.SEND_MESSAGE_V2, delayed, b"delayed").code == 0
    with pair.slave() as slave, slave.connect() as connection:
        pair.equal(connection)
        copied(connection, RequestCode.GET_ALL_TOPIC_CONFIG, TOPIC.encode())
        copied(connection, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, b'"Reader"')
        copied(connection, RequestCode.GET_ALL_CONSUMER_OFFSET, b'"Followed@Reader":{2:7}')
        copied(connection, RequestCode.GET_ALL_DELAY_OFFSET, b'"offsetTable":{1:1')
        with pair.connect() as master:
            for queue in range(4):
                assert read_queue(connection, TOPIC, queue) == read_queue(master, TOPIC, queue)
            assert read_queue(connection, TOPIC, 0)
            rolled(pair, master, connection)
        assert ha_client(connection)["state"] == "following"
        shown(pair)
        assert slave.stop() == 0
    master_is_killed(pair)


def rolled(pair: Pair, master: ClientSocket, slave: ClientSocket) -> None:
    """Two rolls while it follows."""
    fill(master, 700)
    assert pair.equal(slave) > 2 * SEGMENT


def master_is_killed(pair: Pair) -> None:
    """Part of the log is there; kills of both under load; the slave follows the master at its new address."""
    with pair.connect() as master:
        fill(master, 50)
    for _ in range(2):
        stop = threading.Event()
        loader = threading.Thread(target=load, args=(pair, stop))
        with pair.slave() as slave, slave.connect() as connection:
            before = end_of(connection)
            loader.start()
            eventually(lambda before=before: end_of(connection) > before, 60, "progress under load")  # type: ignore[misc]
            time.sleep(0.3)
            slave.kill()
        stop.set()
        loader.join()
    with pair.slave() as slave, slave.connect() as connection:
        stop = threading.Event()
        loader = threading.Thread(target=load, args=(pair, stop))
        loader.start()
        time.sleep(0.5)
        pair.master.kill()
        stop.set()
        loader.join()
        with ClientSocket(slave.address) as reader:
            assert read_queue(reader, TOPIC, 1)
        pair.start_master()
        pair.equal(connection, 90)
        with pair.connect() as master:
            fill(master, 50)
        pair.equal(connection)
        assert slave.stop() == 0


def test_offsets_follow_within_about_a_second(pair: Pair) -> None:
    """A failover repeats what consumers committed since they were copied last."""
    if pair.version != "5.5.0":
        pytest.skip("one version is enough")
    took: list[float] = []
    with pair.connect() as master, pair.slave() as slave, slave.connect() as connection:
        fill(master, 20)
        pair.equal(connection)
        group = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1"}
        for number in range(1, 6):
            assert (
                master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, group | {"commitOffset": str(number)}).code
                == 0
            )
            began = time.monotonic()
            copied(connection, RequestCode.GET_ALL_CONSUMER_OFFSET, b"1:%d" % number)
            took.append(time.monotonic() - began)
        assert slave.stop() == 0
    assert sorted(took)[len(took) // 2] < 1.5, took


def test_a_pair_of_apache_is_shown(pair: Pair, tmp_path: Path) -> None:
    if pair.version != "5.5.0":
        pytest.skip("one version is enough")
    role = {"brokerRole": "SLAVE", "brokerId": "2", "namesrvAddr": pair.names.name_server}
    with Apache(tmp_path / "apache", SETTINGS | role):

        def row() -> dict[str, object]:
            ran = here("replica", "status", "--broker", "broker-a", name_server=pair.names.name_server)
            found = [line for line in ran.lines if line["brokerId"] == 2]
            return found[0] if found else {}

        eventually(lambda: row().get("inSync") is True and row().get("lagBytes") == 0, 60, "the slave")
        shown = row()
        assert {shown[name] for name in ("state", "lagMs", "lagMessages", "reason")} == {None}


@pytest.mark.long
def test_a_way_that_cuts_each_byte_of_a_header_and_turns_a_bit(pair: Pair) -> None:
    way = Way(lambda: ("127.0.0.1", address(pair.master.address)[1] + 1))
    with pair.connect() as master:
        fill(master, 1)
        way.cuts = [*range(HEADER.size + 2), HEADER.size + 100]
        way.turn = end_of(master) + 2000
        fill(master, 20)
    try:
        with pair.slave(haMasterAddress=way.address) as slave, slave.connect() as connection:
            with pair.connect() as master:
                while way.cuts or way.turn is not None:
                    fill(master, 1)
                    time.sleep(0.05)
            pair.equal(connection)
            assert way.connections >= HEADER.size + 3
            assert "asking for it again" in slave.log.read_text()
            assert slave.stop() == 0
    finally:
        way.close()


def load(pair: Pair, stop: threading.Event) -> None:
    try:
        with pair.connect() as master:
            while not stop.is_set():
                send(master, TOPIC, b"load" * 200)
                time.sleep(LOAD_PAUSE_S)
    except OSError:
        return


@pytest.mark.long
def test_javas_consumer_reads_on_from_the_slave(pair: Pair, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    with pair.connect() as master:
        master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("ReadOn"))
        for number in range(400):
            assert send(master, "ReadOn", b"m%03d" % number, queue_id=number % 4).code == 0
    with (
        pair.slave() as slave,
        slave.connect() as connection,
        Driver("java5", pair.names.name_server, tmp_path) as java,
    ):
        pair.equal(connection)
        copied(connection, RequestCode.GET_ALL_TOPIC_CONFIG, b"ReadOn")
        java.ask("consume", name="reader", group="ReadOnGroup", topic="ReadOn", suspendMs=20)
        eventually(lambda: bool(java.consumed("reader")), 60, "the first messages")
        text = java.ask("mqadmin", argument=["haStatus", "-b", "{}:{}".format(*slave.address)])[0]["text"]
        assert "MasterAddr" in str(text)
        text = java.ask("mqadmin", argument=["clusterList"])[0]["text"]
        assert "broker-a" in str(text)
        assert "{}:{}".format(*slave.address) in str(text)
        pair.master.kill()
        java.await_bodies(["reader"], [(b"m%03d" % number).hex() for number in range(400)])
        java.ask("stop", name="reader")


@pytest.mark.long
def test_a_log_that_went_on_elsewhere_or_was_shortened_is_not_followed(pair: Pair) -> None:
    """Last, for the master loses its store: its log is shorter, then the slave's next file is gone."""

    def state(slave: BrokerProcess, wanted: str, says: str) -> None:
        with slave.connect() as connection:
            eventually(lambda: ha_client(connection)["state"] == wanted, 30, f"the state {wanted}")
            assert says in str(ha_client(connection)["reason"])

    if pair.master.process.poll() is not None:
        pair.start_master()
    with pair.connect() as master:
        fill(master, 20)
    with pair.slave() as slave, slave.connect() as connection:
        end = pair.equal(connection)
        assert slave.stop() == 0
    before = digests(pair.folder / "slave", end)
    pair.master.kill()
    shutil.rmtree(pair.folder / "master")
    pair.start_master()
    with pair.connect() as master:
        fill(master, 5)
    with pair.slave() as slave:
        state(slave, "diverged", f"our log ends at {end}")
        assert slave.stop() == 0
    assert digests(pair.folder / "slave", end) == before
    with pair.connect() as master:
        shutil.rmtree(pair.folder / "slave")
        with pair.slave() as slave, slave.connect() as connection:
            pair.equal(connection)
            assert slave.stop() == 0
        fill(master, 1000)
    pair.master.stop()
    pair.master.kill()
    for path in sorted((pair.folder / "master" / "commitlog").iterdir())[:2]:
        path.unlink()
    pair.start_master()
    with pair.slave() as slave:
        state(slave, "behind the log", "it has deleted older files")
