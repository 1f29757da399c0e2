"""Slaves of Apache, 5.5.0, with `--long` also 4.9.7, under a FireArrow master: equal logs, tables, readers that go on,
SYNC_MASTER.

The tests share the processes, for JVMs take seconds to start, and 5.5.0 asks for tables 60 s after its start.
"""

import json
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.replication.session.replica_registry import SLAVES_MAX
from tests.interop.driver import Driver
from tests.interop.peers import Apache, Apache4, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import digests, end_of, paused, words
from tests.replication.raw_slave import status_of
from tests.replication.way import HEADER, Way
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import pull, read_queue, runtime_info, send, send_ext, topic_ext

pytestmark = pytest.mark.interop
SEGMENT = 1 << 20
KINDS = {"5.5.0": Apache, "4.9.7": Apache4}
IDS = {"5.5.0": "1", "4.9.7": "2"}
TOPIC, GROUP = "Followed", "Reader"
LOAD_PAUSE_S = 0.001
READERS = {"java5": "ReadOnJava", "go": "ReadOnGo"}
"""A client → the topic that it reads on at a slave."""
READ_ON_COUNT = 6000
"""More than a consumer holds of four queues, so that it cannot have all before it reads at a slave."""
ROUTES_S = 30
"""How often Go's client asks for routes."""
MASTER = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(SEGMENT),
    "maxMessageSize": "200000",
    "timerWheelEnable": "true",
    "haSendHeartbeatInterval": "1000",
    "brokerIP2": "127.0.0.2",
}
"""Slaves copy from 127.0.0.2, where a Way leads to the replication port of 127.0.0.1."""
SLAVE = {
    "brokerName": "broker-a",
    "brokerRole": "SLAVE",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": str(SEGMENT),
    "slaveReadEnable": "true",
    "haSendHeartbeatInterval": "1000",
}
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1500"}


class Rig:
    """A name server, a master of ours, whose ports stay, and the slaves that run, by their version."""

    def __init__(self, folder: Path, versions: tuple[str, ...]) -> None:
        self.folder, self.versions = folder, versions
        self.names = FireArrow(folder / "names", {"brokerName": "names", "brokerClusterName": "Names"})
        port = free_port()
        self.ports = ("--listen", f"127.0.0.1:{port}", "--set", f"haListenPort={port + 1}")
        self.replication = "127.0.0.1", port + 1
        self.way = Way(lambda: self.replication, ("127.0.0.2", port + 1))
        self.slaves: dict[str, Apache] = {}
        self.start_master()

    def start_master(self, **settings: str) -> None:
        self.settings = settings
        self.master = BrokerProcess(
            self.folder / "master",
            *self.ports,
            *("--namesrv", self.names.name_server),
            *words(MASTER | settings),
        )

    def start_slaves(self, *versions: str) -> None:
        with ThreadPoolExecutor() as threads:
            for version, slave in zip(versions, threads.map(self._start_slave, versions), strict=True):
                self.slaves[version] = slave

    def _start_slave(self, version: str) -> Apache:
        own = {"brokerId": IDS[version], "namesrvAddr": self.names.name_server}
        if version == "5.5.0":
            own["timerWheelEnable"] = "true"
        return KINDS[version](self.folder / version, SLAVE | own)

    def connect(self, version: str) -> ClientSocket:
        return ClientSocket(address(self.slaves[version].address))

    def equal(self, *versions: str, within_s: float = 60) -> int:
        """Wait until the slaves have all; returns the end."""
        with self.master.connect() as connection:
            end = end_of(connection)
        for version in versions or self.versions:
            with self.connect(version) as slave:
                eventually(lambda slave=slave: end_of(slave) == end, within_s, f"{end} at {version}")  # type: ignore[misc]
            copied = digests(self.folder / version, end)
            for name, digest in digests(self.folder / "master", end).items():
                assert copied.get(name) == digest, f"{name} of {version}"
        return end

    @contextmanager
    def load(self) -> Iterator[None]:
        """Sends meanwhile, to the end or to the master's."""
        stop = threading.Event()

        def run() -> None:
            with suppress(OSError), self.master.connect() as master:
                while not stop.is_set():
                    send(master, TOPIC, b"load" * 200)
                    time.sleep(LOAD_PAUSE_S)

        loader = threading.Thread(target=run)
        loader.start()
        try:
            yield
        finally:
            stop.set()
            loader.join()

    def close(self) -> None:
        for slave in self.slaves.values():
            slave.kill()
        self.way.close()
        self.master.kill()
        self.names.broker.kill()


@pytest.fixture(
    scope="module",
    params=[("5.5.0",), pytest.param(("5.5.0", "4.9.7"), marks=pytest.mark.long)],
    ids=" and ".join,
)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    need(lambda: java_class_path("client5"))
    if "4.9.7" in request.param:
        need(lambda: java_class_path("broker4"))
    rig = Rig(tmp_path_factory.mktemp("rig"), request.param)
    try:
        with rig.master.connect() as master:
            fill_tables(master)
            fill(master, 700)
            assert pull(master, TOPIC, consumerGroup=GROUP).code == 0
            assert b'"pullOffsetTable":{"' in master.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body
        rig.start_slaves(*rig.versions)
        yield rig
    finally:
        rig.close()


def fill(connection: ClientSocket, count: int, size: int = 4000) -> None:
    for number in range(count):
        assert send(connection, TOPIC, b"%06d" % number * (size // 6), queue_id=number % 4).code == 0


def fill_tables(master: ClientSocket) -> None:
    for topic in (TOPIC, *READERS.values()):
        assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
    config = b'{"groupName":"Reader","consumeEnable":true,"retryQueueNums":1,"retryMaxTimes":16}'
    assert master.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config).code == 0
    offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "2", "commitOffset": "7"}
    assert master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset).code == 0
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3}
    assert master.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode()).code == 0
    delayed = send_ext(TOPIC, i="DELAY\x011\x02")
    assert master.ask(RequestCode.SEND_MESSAGE_V2, delayed, b"delayed").code == 0
    timer = send_ext(TOPIC, i=f"TIMER_DELIVER_MS\x01{time.time_ns() // 1_000_000 + 3_600_000}\x02")
    assert master.ask(RequestCode.SEND_MESSAGE_V2, timer, b"in an hour").code == 0


def test_logs_are_equal_over_kills_and_rolls(rig: Rig) -> None:
    assert rig.equal() > 2 * SEGMENT
    with rig.load():
        time.sleep(0.5)
        for version in rig.versions:
            rig.slaves[version].kill()
        time.sleep(0.2)
    with rig.load():
        rig.start_slaves(*rig.versions)
    before = rig.equal()
    with rig.master.connect() as master:
        fill(master, 600)
    assert rig.equal() > before + 2 * SEGMENT
    with rig.load():
        time.sleep(0.5)
        rig.master.kill()
    rig.start_master(**SYNC)
    with rig.master.connect() as master:
        fill(master, 50)
    rig.equal()


def test_a_way_that_splits_and_cuts_headers_and_turns_a_bit(rig: Rig) -> None:
    """Each split is tried; of the cuts a few, for Apache's slave waits 5 s after each."""
    way, splits = rig.way, [*range(1, HEADER.size + 1)] * len(rig.versions)
    with rig.master.connect() as master:
        way.splits = splits
        while way.splits:
            fill(master, 1)
            time.sleep(0.01)
        rig.equal()
        before = way.connections
        way.cuts = [HEADER.size - 1, HEADER.size + 100, 1, HEADER.size][: 2 * len(rig.versions)]
        cuts = len(way.cuts)
        fill(master, 20)
        eventually(lambda: not way.cuts, 40, "the cuts")
        rig.equal()
        assert way.connections >= before + cuts


def test_strangers_change_nothing(rig: Rig) -> None:
    """Acknowledgements of what was not sent, garbage, and as many connections as there may be: sends wait for the
    slaves all the same, and are answered."""
    with synchronous(rig) as master, ExitStack() as stack:

        def stranger() -> socket.socket:
            return stack.enter_context(socket.create_connection(rig.replication, 5))

        end = end_of(master)
        for said in (
            struct.pack(">q", 1 << 62),
            struct.pack(">q", -1),
            struct.pack(">qq", end, end + 1000),
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(range(256)) * 4,
            b"\0\0\0",
        ):
            stranger().sendall(said)
        for _ in range(SLAVES_MAX + 10):
            stranger()
        assert [answered(master) for _ in range(20)] == [(0, False)] * 20
        process = rig.slaves[rig.versions[-1]].process
        with paused(process):
            eventually(lambda: is_stopped(process.pid), what="its threads to stop")
            stranger().sendall(struct.pack(">q", 1 << 62))
            assert answered(master) == (12, True)
        eventually(lambda: answered(master) == (0, False), what="acknowledged sends")
    rig.equal()


def answered(master: ClientSocket) -> tuple[int, bool]:
    """The code of a send, and whether it took the time-out."""
    began = time.monotonic()
    code = send(master, TOPIC, b"body").code
    return code, time.monotonic() - began >= 1.4


def is_stopped(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(") ")[2].startswith("T") for task in tasks)


@contextmanager
def synchronous(rig: Rig) -> Iterator[ClientSocket]:
    """A connection to the master while sends wait for all slaves."""
    if rig.settings != SYNC:
        assert rig.master.stop() == 0
        rig.start_master(**SYNC)
    with rig.master.connect() as master:
        slaves = len(rig.versions)
        assert (
            master.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"inSyncReplicas=%d" % (1 + slaves)).code == 0
        )
        eventually(lambda: status_of(master)["inSyncSlaveNums"] == slaves, what="all slaves")
        yield master
        assert master.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"inSyncReplicas=1").code == 0


def test_sync_master_waits_for_slaves_and_once_for_one_that_hangs(rig: Rig) -> None:
    with synchronous(rig) as master:
        assert [answered(master) for _ in range(20)] == [(0, False)] * 20
        process = rig.slaves["5.5.0"].process
        with paused(process):
            eventually(lambda: is_stopped(process.pid), what="its threads to stop")
            assert [answered(master) for _ in range(3)] == [(12, True), (12, False), (12, False)]
        eventually(lambda: answered(master) == (0, False), what="acknowledged sends")


def test_tables_and_queues_come_to_the_slaves(rig: Rig) -> None:
    wanted = {
        RequestCode.GET_ALL_TOPIC_CONFIG: b'"Followed"',
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: b'"Reader"',
        RequestCode.GET_ALL_CONSUMER_OFFSET: b'"Followed@Reader":{2:7}',
        RequestCode.GET_ALL_DELAY_OFFSET: b"{1:1",
    }
    new = {RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: b'"POP"', RequestCode.GET_TIMER_METRICS: b'"Followed"'}
    for version in rig.versions:
        with rig.connect(version) as slave:
            rig.slaves[version].copy_tables()
            for code, text in (wanted | (new if version == "5.5.0" else {})).items():
                eventually(
                    lambda slave=slave, code=code, text=text: text in slave.ask(code).body,
                    75,
                    f"{text!r} in the answer to {code} at {version}",
                )
            with rig.master.connect() as master:
                for queue in range(4):
                    assert read_queue(slave, TOPIC, queue) == read_queue(master, TOPIC, queue)


def pulled(rig: Rig) -> int:
    """How many messages the slaves gave out."""
    total = 0
    for version in rig.versions:
        with rig.connect(version) as slave:
            total += int(runtime_info(slave)["msgGetTotalTodayNow"])
    return total


def test_mqadmin_and_replica_status_show_the_slaves(rig: Rig, tmp_path: Path) -> None:
    rig.equal()
    with Driver("java5", rig.names.name_server, tmp_path) as driver:
        [shown] = driver.ask("mqadmin", argument=["haStatus", "-b", "{}:{}".format(*rig.master.address)])
    assert f"#SlaveNum\t{len(rig.versions)}" in str(shown["text"]).replace(" ", "")
    ran = here("replica", "status", "--broker", "broker-a", name_server=rig.names.name_server)
    rows = [row for row in ran.lines if row["role"] == "slave"]
    numbers: list[int | None] = [int(IDS[version]) for version in rig.versions]
    if len(numbers) > 1:  # of one host, so the connections have rows that may be of any of them
        numbers += [None] * len(numbers)
    assert [row["brokerId"] for row in rows] == numbers
    copies = rows[-len(rig.versions) :]
    assert all((row["inSync"], row["lagBytes"]) == (True, 0) for row in copies), rows


@pytest.mark.parametrize("client", ["java5", pytest.param("go", marks=pytest.mark.long)])
def test_a_consumer_reads_on_at_a_slave(rig: Rig, tmp_path: Path, client: str) -> None:
    topic = READERS[client]
    with rig.master.connect() as master:
        sent = [
            master.send_request(RequestCode.SEND_MESSAGE_V2, send_ext(topic, number % 4), b"m%04d" % number)
            for number in range(READ_ON_COUNT)
        ]
        assert all(master.answer_to(opaque).code == 0 for opaque in sent)
    rig.equal()
    for version in rig.versions:
        with rig.connect(version) as slave:
            rig.slaves[version].copy_tables()
            eventually(lambda: topic.encode() in slave.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body, 75, topic)
    before = pulled(rig)
    with Driver(client, rig.names.name_server, tmp_path) as driver:
        driver.ask("consume", name="reader", group=f"{topic}Group", topic=topic)
        driver.await_queues("reader", 4)  # Go's client asks only a master where a queue begins
        rig.master.kill()
        bodies = [(b"m%04d" % number).hex() for number in range(READ_ON_COUNT)]
        driver.await_bodies(["reader"], bodies, ROUTES_S + 40)
        assert pulled(rig) > before
        driver.ask("stop", name="reader")
    rig.start_master(**SYNC)


def shorten(rig: Rig, master: ClientSocket) -> None:
    """Let all files but the last two expire."""
    folder, past = rig.folder / "master" / "commitlog", time.time() - 1_000_000
    files = sorted(folder.iterdir())
    for path in files[:-2]:
        os.utime(path, (past, past))
    assert master.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
    eventually(lambda: not files[0].exists(), what="the deletion of the first file")


def test_a_fresh_slave_of_a_shortened_log_counts_again(rig: Rig) -> None:
    with synchronous(rig) as master:
        rig.slaves["5.5.0"].kill()
        eventually(
            lambda: status_of(master)["inSyncSlaveNums"] == len(rig.versions) - 1, what="the slave's end"
        )
        code = ResponseCode.FLUSH_SLAVE_TIMEOUT if len(rig.versions) > 1 else ResponseCode.SLAVE_NOT_AVAILABLE
        assert [answered(master) for _ in range(3)] == [(code, False)] * 3
        whole = digests(rig.folder / "5.5.0", end_of(master))
        shorten(rig, master)
        shutil.rmtree(rig.folder / "5.5.0")
        rig.start_slaves("5.5.0")
        eventually(lambda: answered(master) == (0, False), 30, "acknowledged sends")
    end = rig.equal()
    assert len(digests(rig.folder / "5.5.0", end)) < len(whole)


def test_slaves_that_are_ahead_get_nothing_and_are_named(rig: Rig) -> None:
    """A master that lost its log, under the same name; the slaves' logs stay as they are."""
    with rig.master.connect() as master:
        end = end_of(master)
    before = {version: digests(rig.folder / version, end) for version in rig.versions}
    rig.master.kill()
    shutil.rmtree(rig.folder / "master")
    rig.start_master(**SYNC)
    with rig.master.connect() as master:
        assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC)).code == 0
        fill(master, 20)

        def named() -> int:
            refused: list[dict[str, str]] = status_of(master).get("refused", [])  # type: ignore[assignment]
            return sum(f"its log ends at {end}" in entry["reason"] for entry in refused)

        eventually(lambda: named() > 0, 60, "the refusal")
        assert status_of(master)["inSyncSlaveNums"] == 0
        assert "they are not of one master" in rig.master.log.read_text()
    assert {version: digests(rig.folder / version, end) for version in rig.versions} == before
