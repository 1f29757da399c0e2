"""Compaction topics of a pair: a slave compacts by itself, and serves the newest messages after its promotion."""

from pathlib import Path

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode, ResponseCode
from tests.integration.test_compaction_topics import TOPIC, await_compaction, create, fill, read_all
from tests.replication.pairs import name_server, start_master, start_slave
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, send_ext, topic_ext

FILES = {
    "compactionMappedFileSize": "4096",
    "compactionCqMappedFileSize": "460",
    "compactionScheduleInternal": "200",
    "fileReservedTime": "0",
    "cleanResourceInterval": "100",
}


def start_pair_master(folder: Path) -> BrokerProcess:
    return start_master(folder, haListenPort=str(free_port()), **FILES)


def newest_of(connection: ClientSocket) -> dict[str, bytes]:
    """{} until the topic and its first messages are there."""
    if pull(connection, TOPIC).code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_OFFSET_MOVED):
        return {}
    return {record.properties["KEYS"]: record.body for record in read_all(connection)}


def test_a_slave_has_the_newest_messages(tmp_path: Path) -> None:
    with (
        start_pair_master(tmp_path / "master") as master,
        start_slave(tmp_path / "slave", name_server(master), **FILES) as slave,
        master.connect() as client,
        slave.connect() as reader,
    ):
        create(client)
        fill(client, 0, 20)
        eventually(lambda: newest_of(reader) == newest_of(client), 20)
        fill(client, 20, 80)  # the slave pulled the first ones if the topic came after them
        for store in (master.store, slave.store):
            await_compaction(store, 80)
        newest = newest_of(client)
        assert len(newest) == 7
        eventually(lambda: newest_of(reader) == newest, 20)
        master.kill()
        assert slave.stop() == 0
    with start_master(tmp_path / "slave", **FILES) as promoted, promoted.connect() as client:
        assert newest_of(client) == newest
        fill(client, 100, 1)
        assert read_all(client)[-1].queue_offset == 100


def test_a_new_slave_gets_what_the_log_does_not_have(tmp_path: Path) -> None:
    """What was compacted and is deleted from the master's log, it pulls from its master."""
    with start_pair_master(tmp_path / "master") as master, master.connect() as client:
        create(client)
        fill(client, 0, 100)
        await_compaction(master.store, 80)
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Other", 1))
        first = master.store / "commitlog" / ("0" * 20)
        for _ in range(60):
            assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Other"), bytes(8000)).code == 0

        def expired() -> bool:
            client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, {})
            return not first.exists()

        eventually(expired, 40)
        newest = newest_of(client)
        assert len(newest) == 7
        for n in (0, 1):  # nothing of the topic is in the log, then its last message is
            fill(client, 100, n)
            folder = tmp_path / f"slave {n}"
            with start_slave(folder, name_server(master), **FILES) as slave, slave.connect() as reader:
                eventually(lambda at=reader: newest_of(at) == newest_of(client), 30)
                fill(client, 100 + n, n)
                eventually(lambda at=reader: newest_of(at) == newest_of(client), 30)
        assert newest_of(client) == newest | {"k2": b"100", "k3": b"101"}
