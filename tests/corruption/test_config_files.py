"""A broker whose config, timer and journal files are damaged starts, logs one line, and serves everything."""

import contextlib
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.protocol.fastjson import loads
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.clock import Clock
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicConfig, TopicTable
from firearrow.broker.timers.metrics import TimerMetrics
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import read_queue, send

GARBLED = {
    "empty": b"",
    "cut": b'{"dataVersion":{"counter":1',
    "zeros": bytes(500),
    "noise": random.Random(3).randbytes(500),
    "a list": b"[]",
    "a number": b"7",
    "deep": b"[" * 100_000,
    "deeper": b'{"a":' * 50_000,
    "wrong types": b'{"topicConfigTable":[],"subscriptionGroupTable":7,"offsetTable":"x","configTable":1,'
    b'"messageRequestModeMap":[1],"timingCount":{"a":3},"lmqOffsetTable":[],"dataVersion":[]}',
    "wrong values": b'{"topicConfigTable":{"T":{"topicName":7}},"subscriptionGroupTable":{"g":{"groupName":[]}},'
    b'"offsetTable":{"a@b":{"x":"y"},"1":null},"configTable":{"n":7},"messageRequestModeMap":{"t":{"g":1}},'
    b'"timingCount":{"a":{"count":"many"}}}',
    "huge numbers": b'{"offsetTable":{"1":99999999999999999999999999},"dataVersion":{"counter":1e400}}',
}


def tables() -> dict[str, Callable[[bytes], None]]:
    clock = Clock()
    return {
        "topics": TopicTable(clock).load,
        "groups": GroupTable(clock).load,
        "offsets": ConsumerOffsets(clock).load,
        "delays": DelayOffsets(clock).load,
        "kv": KvTable(lambda: None).load,
        "modes": RequestModes().load,
        "metrics": TimerMetrics(clock, lambda: None).load,
    }


@pytest.mark.parametrize("table", sorted(tables()))
@pytest.mark.parametrize("kind", sorted(GARBLED))
def test_a_damaged_file_is_a_value_error_or_accepted(table: str, kind: str) -> None:
    """A table's `load` raises nothing else: the code that starts the broker renames the file."""
    with contextlib.suppress(ValueError, RecursionError):
        tables()[table](GARBLED[kind])


@pytest.mark.parametrize("kind", ["empty", "cut", "zeros", "noise"])
def test_the_backup_is_loaded_and_the_file_is_kept(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.write(b'{"state":1}')
    file.write(b'{"state":2}')
    file.path.write_bytes(GARBLED[kind])
    taken: list[int] = []
    again = ConfigFile(file.path)
    with caplog.at_level(logging.ERROR):
        assert again.load(lambda text: taken.append(loads(text)["state"]))
    assert (taken, again.is_older) == ([1], True)
    assert (tmp_path / "a.json.damaged-1").read_bytes() == GARBLED[kind]
    assert [str(file.path) in record.getMessage() for record in caplog.records] == [True]


def test_without_any_good_file_the_start_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = ConfigFile(tmp_path / "a.json")
    for number in (1, 2):
        file.path.write_bytes(b"{")
        Path(f"{file.path}.bak").write_bytes(b"[")
        with caplog.at_level(logging.ERROR):
            assert not file.load(lambda text: loads(text)["state"])
        assert file.is_older
        names = {path.name for path in tmp_path.iterdir()}
        assert {f"a.json.damaged-{number}", f"a.json.bak.damaged-{number}"} <= names
    assert len(caplog.records) == 2


def create(connection: ClientSocket, name: str, queues: int) -> None:
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0


def bodies(connection: ClientSocket, name: str, queue_id: int) -> list[bytes]:
    return [record.body for record in read_queue(connection, name, queue_id)]


def damage_all(store: Path, data: bytes, *, backups: bool) -> None:
    """Every file of the broker except the log's and those derived from it."""
    for path in (store / "config").iterdir():
        if path.suffix == ".bak":
            path.write_bytes(data) if backups else path.unlink()
        elif path.is_file():
            path.write_bytes(data)
    for path in [store / "timerwheel", *(store / "timerlog").glob("*"), *(store / "journal").glob("*")]:
        if path.exists():
            path.write_bytes(data)


@pytest.mark.parametrize(("data", "backups"), [(b"", False), (b"{", True), (b"\xff" * 100, False)])
def test_a_broker_whose_files_are_all_damaged_serves_everything(
    tmp_path: Path, data: bytes, backups: bool
) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store) as broker, broker.connect() as connection:
        create(connection, "Lost", 3)
        for number in range(30):
            send(connection, "Lost", b"%d" % number, queue_id=number % 3)
        broker.stop()
    damage_all(store, data, backups=backups)
    with BrokerProcess(store) as broker, broker.connect() as connection:
        for queue_id in range(3):
            assert bodies(connection, "Lost", queue_id) == [
                b"%d" % number for number in range(queue_id, 30, 3)
            ]
        assert topic(store, broker) == (3, 3)
        lines = [line for line in broker.log.read_text().splitlines() if "topic Lost" in line]
        assert len(lines) == 1


def topic(store: Path, broker: BrokerProcess) -> tuple[int, int]:
    """Queues to read and to write, from the file after a stop."""
    broker.stop()
    config = TopicConfig.from_object(
        loads((store / "config" / "topics.json").read_bytes())["topicConfigTable"]["Lost"]
    )
    return config.read_queues, config.write_queues


def test_the_newest_topic_is_found_when_only_the_backup_is_left(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store) as broker, broker.connect() as connection:
        create(connection, "Old", 2)
        create(connection, "Lost", 4)
        for number in range(8):
            send(connection, "Lost", b"%d" % number, queue_id=number % 4)
        broker.stop()
    topics = store / "config" / "topics.json"
    shutil.copy(topics, tmp_path / "topics.json")
    topics.write_bytes(b"garbled")
    with BrokerProcess(store) as broker, broker.connect() as connection:
        assert bodies(connection, "Lost", 3) == [b"3", b"7"]
        assert topic(store, broker) == (4, 4)
