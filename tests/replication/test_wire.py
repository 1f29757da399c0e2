"""The replication port of a master, read and written byte by byte."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.replication.session.replica_registry import NEWCOMERS_MAX, REFUSALS_MAX, SLAVES_MAX
from firearrow.broker.replication.wires.firearrow.handshake import MAGIC
from tests.replication.pairs import (
    SECRET,
    TOPIC,
    end_of,
    fill,
    ha_client,
    name_server,
    start_master,
    start_slave,
)
from tests.replication.raw_slave import FILE_BYTES, HEADER, Master, RawSlave
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import send

TWO_FILES = FILE_BYTES + FILE_BYTES // 2


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    with Master(tmp_path_factory.mktemp("master") / "store") as started:
        started.fill(TWO_FILES)
        yield started


def slaves(master: Master) -> list[dict[str, Any]]:
    found: Any = master.status()["haConnectionInfo"]
    return list(found)


def refusal(master: Master) -> str:
    found: Any = master.status()["refused"]
    return str(found[-1]["reason"])


def test_a_fresh_slave_gets_the_whole_log_from_its_first_file_on(master: Master) -> None:
    end = master.written()
    with master.slave() as slave:
        slave.say(0)
        slave.copy(end)
        assert slave.begin == 0
        assert bytes(slave.log) == master.log_bytes(0, end)
        assert (FILE_BYTES - slave.pieces[1][1], slave.pieces[1][1]) in slave.pieces


def test_a_slave_with_part_of_the_log_gets_the_rest_also_from_within_a_record(master: Master) -> None:
    end = master.written()
    for begin in (5, FILE_BYTES, end - 1, end):
        with master.slave() as slave:
            slave.say(begin)
            slave.copy(end) if begin < end else None
            eventually(lambda: any(each["slaveAckOffset"] == end for each in slaves(master)))
            assert bytes(slave.log) == master.log_bytes(begin, end)


def test_new_messages_follow_at_once_and_a_silent_master_sends_heartbeats(tmp_path: Path) -> None:
    with Master(tmp_path / "store", haSendHeartbeatInterval=300) as master, master.slave() as slave:
        slave.say(0)
        with master.connect() as producer:
            assert send(producer, "T", b"first").code == 0
            slave.copy(1)
            for _ in range(20):
                began = time.monotonic()
                assert send(producer, "T", b"body").code == 0
                slave.piece()
                assert time.monotonic() - began < 1
                slave.say(slave.end)
        while slave.heartbeats < 3:
            slave.piece()
        assert slave.end == master.written()
        assert bytes(slave.log) == master.log_bytes(0, slave.end)


def test_a_request_cut_at_each_byte_is_still_one_request(master: Master) -> None:
    end = master.written()
    for cut in range(1, 8):
        with master.slave() as slave:
            request = struct.pack(">q", end - 10)
            slave.socket.sendall(request[:cut])
            time.sleep(0.02)
            slave.socket.sendall(request[cut:])
            slave.copy(end)
            assert bytes(slave.log) == master.log_bytes(end - 10, end)


def test_a_piece_cut_at_each_byte_of_its_header_is_sent_whole(tmp_path: Path) -> None:
    """The socket takes little at a time, so sends end anywhere."""
    with Master(tmp_path / "store", haTransferBatchSize=1024) as master:
        end = master.fill(40 * FILE_BYTES)
        with master.slave(piece_max=1024, receive_buffer=4096) as slave:
            slave.say(0)
            slave.copy(end)
            assert bytes(slave.log) == master.log_bytes(0, end)


@pytest.mark.parametrize("asked", [-7, -1, 1 << 62])
def test_requests_that_cannot_be_of_this_log_get_no_byte(master: Master, asked: int) -> None:
    with master.slave() as slave:
        slave.say(asked)
        assert slave.refused()
    assert f"its log ends at {asked}" in refusal(master)


@pytest.mark.parametrize("acknowledged", [1 << 62, -1])
def test_an_acknowledgement_beyond_what_was_sent_closes(master: Master, acknowledged: int) -> None:
    end = master.written()
    with master.slave() as slave:
        slave.say(end)
        eventually(lambda: slaves(master))
        slave.say(acknowledged)
        assert slave.refused()
    assert "it acknowledged the log up to" in refusal(master)
    eventually(lambda: not slaves(master))


def test_a_slave_that_did_not_get_the_log_cannot_acknowledge_it(tmp_path: Path) -> None:
    with Master(tmp_path / "store") as master:
        end = master.fill(100 * FILE_BYTES)
        with master.slave(receive_buffer=4096) as slave:
            slave.say(0)
            slave.say(end)
            with pytest.raises((EOFError, ConnectionError)):
                slave.copy(end, acknowledge=False)


def test_strangers_get_nothing(tmp_path: Path) -> None:
    with Master(tmp_path / "store", haAllowedAddresses="192.0.2.0/24;198.51.100.7") as master:
        with master.slave() as slave:
            assert slave.refused()
        assert "haAllowedAddresses=127.0.0.1" in refusal(master)
        with master.connect() as connection:
            body = b"haAllowedAddresses=127.0.0.0/8"
            assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body).code == 0
            assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"haAllowedAddresses=no").code != 0
        with master.slave() as slave:
            slave.say(0)
            eventually(lambda: slaves(master))
        assert "127.0.0.1" in master.log.read_text()


def test_a_slow_slave_costs_no_memory_and_delays_nobody(tmp_path: Path) -> None:
    with Master(tmp_path / "store", mappedFileSizeCommitLog=8 << 20) as master:
        end = master.fill(40 << 20, body=bytes(1 << 20))
        with ExitStack() as stack:
            stuck = [stack.enter_context(master.slave(receive_buffer=4096)) for _ in range(4)]
            for slave in stuck:
                slave.say(0)
            eventually(lambda: len(slaves(master)) == 4)
            before = master.anonymous_kib()
            with RawSlave((master.address[0], master.ha_port)) as reader, master.connect() as producer:
                reader.file_bytes = 8 << 20
                reader.say(end)
                for _ in range(20):
                    began = time.monotonic()
                    assert send(producer, "T", bytes(100_000)).code == 0
                    assert time.monotonic() - began < 1
                eventually(lambda: reader.piece() >= 0 and reader.end == master.written())
            assert master.anonymous_kib() - before < 8 << 10
            assert all(each["transferFromWhere"] < end for each in slaves(master))


def test_a_silent_slave_is_disconnected(tmp_path: Path) -> None:
    with Master(tmp_path / "store", haHousekeepingInterval=300) as master, master.slave() as slave:
        slave.say(0)
        eventually(lambda: slaves(master))
        assert slave.refused() or slave.refused()
        assert not slaves(master)


def test_a_slave_whose_next_file_expired_is_told_so(tmp_path: Path) -> None:
    settings = {"deleteCommitLogFilesInterval": 0, "fileReservedTime": 0, "cleanResourceInterval": 100}
    with Master(tmp_path / "store", **settings) as master:
        master.fill(3 * FILE_BYTES)
        with master.slave(receive_buffer=4096) as slave, master.connect() as connection:
            slave.say(100)
            eventually(lambda: slaves(master))
            end = master.fill(150 * FILE_BYTES)
            assert connection.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0
            eventually(lambda: len(list((tmp_path / "store" / "commitlog").iterdir())) < 4)
            with pytest.raises((EOFError, ConnectionError)):
                slave.copy(end)
        assert "expired" in refusal(master)
        with master.slave() as slave:
            slave.say(100)
            assert slave.refused()
        assert "older files expired" in refusal(master)
        with master.slave() as slave:
            slave.say(0)
            slave.piece()
            assert slave.begin > 0
            assert slave.begin % FILE_BYTES == 0


def test_many_slaves_copy_at_once(master: Master) -> None:
    end = master.written()
    with ExitStack() as stack:
        copies = [stack.enter_context(master.slave()) for _ in range(5)]
        for slave in copies:
            slave.say(0)
        for slave in copies:
            slave.copy(end)
        eventually(lambda: sum(each["diff"] == 0 for each in slaves(master)) == 5)
        assert {bytes(slave.log) for slave in copies} == {master.log_bytes(0, end)}
        assert master.status()["inSyncSlaveNums"] == 5
    eventually(lambda: not slaves(master))


def test_slaves_are_bounded(tmp_path: Path) -> None:
    with Master(tmp_path / "store") as master, ExitStack() as stack:
        for _ in range(SLAVES_MAX):
            stack.enter_context(master.slave()).say(0)
        eventually(lambda: len(slaves(master)) == SLAVES_MAX)
        assert stack.enter_context(master.slave()).refused()
        assert f"{SLAVES_MAX} slaves are connected already" in refusal(master)


def test_strangers_take_no_slaves_place(tmp_path: Path) -> None:
    """With a secret, every address may connect; who says nothing, or a byte now and then, is no slave."""
    with (
        start_master(tmp_path / "a", haListenPort=str(port := free_port()), haSecret=SECRET) as master,
        master.connect() as client,
        ExitStack() as stack,
    ):
        fill(client, 20)

        def strangers(host: str, first: bytes) -> list[socket.socket]:
            found = []
            for _ in range(2 * NEWCOMERS_MAX):
                stranger = socket.create_connection(("127.0.0.1", port), 10, (host, 0))
                found.append(stack.enter_context(stranger))
                stranger.sendall(first)
            return found

        strangers("127.0.2.1", b"")
        strangers("127.0.2.2", MAGIC[:1])
        with (
            start_slave(tmp_path / "b", name_server(master), haSecret=SECRET) as slave,
            slave.connect() as reader,
        ):
            eventually(lambda: end_of(reader) == end_of(client), what="the slave")
            strangers("127.0.2.1", MAGIC[:1])
            time.sleep(0.5)
            assert send(client, TOPIC, b"later").code == 0
            eventually(lambda: end_of(reader) == end_of(client), what="the slave, all the same")
            assert ha_client(reader)["state"] == "following"


def test_a_newcomer_has_a_limited_time(tmp_path: Path) -> None:
    """A byte now and then does not keep its connection open: seven are no request."""
    with (
        Master(tmp_path / "store", haHousekeepingInterval=1000) as master,
        master.slave() as stranger,
    ):
        for _ in range(4):
            stranger.socket.sendall(b"\0")
            time.sleep(0.4)
        with pytest.raises(ConnectionError):
            stranger.socket.sendall(b"\0")


def test_addresses_that_were_refused_are_bounded(tmp_path: Path) -> None:
    with Master(tmp_path / "store", haAllowedAddresses="192.0.2.1") as master:
        hosts = [f"127.0.1.{n + 1}" for n in range(REFUSALS_MAX + 1)]
        for host in hosts:
            with socket.create_connection((master.address[0], master.ha_port), 10, (host, 0)) as stranger:
                assert stranger.recv(1) == b""
        found: Any = master.status()["refused"]
        assert [str(each["addr"]).split(":")[0] for each in found] == hosts[1:]


def test_a_broker_opens_no_replication_port_unless_asked(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with (
            pytest.raises(ConnectionError),
            socket.create_connection((broker.address[0], broker.address[1] + 1)),
        ):
            pass
        with broker.connect() as connection:
            assert connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext == {}


def test_a_slave_hears_where_to_copy_from(master: Master) -> None:
    with master.connect() as connection:
        answer = connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO)
    assert answer.code == 0
    assert answer.ext["masterHaAddress"] == f"127.0.0.1:{master.ha_port}"
    assert answer.ext["masterAddress"] == f"127.0.0.1:{master.address[1]}"
    assert HEADER.size == 12
