"""Nothing is visible before it is confirmed: after a kill of the master, and at slaves while another one is late."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from firearrow._native.store.confirm_offset import FILE_NAME, OFFSET
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.replication.log.confirmed_offset import (
    EVERYTHING,
    MERGED_FROM,
    ConfirmedLog,
    CopiesNeeded,
    confirmed_at,
    confirmed_by,
)
from firearrow.client.local_broker import LocalBrokerError
from tests.replication.pairs import end_of, name_server, paused, start_master, start_slave
from tests.replication.raw_slave import Master, RawSlave, status_of
from tests.replication.test_sync import caught_up, shown
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import pull, pull_ext, send, send_ext
from tests.support.stores import put

SETTINGS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 2000}
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}


def killed_with_a_tail(store: Path) -> int:
    """The end of a log whose last message no slave has: consumers have seen one message of two."""
    with Master(store, **SETTINGS) as master, master.connect() as client, master.slave() as slave:
        caught_up(master, slave)
        opaque = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"confirmed")
        while slave.piece() == 0:
            pass
        slave.say(slave.end)
        assert client.answer_to(opaque).code == 0
        client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"tail")
        while slave.piece() == 0:
            pass
        with master.connect() as other:
            assert shown(other) == 1
        master.kill()  # before its slave leaves it: without a slave the tail is visible
        return slave.end


def copy_all(slave: RawSlave, end: int) -> None:
    slave.say(0)
    slave.copy(end)


def test_a_master_that_was_killed_shows_the_rest_once_a_slave_has_it(tmp_path: Path) -> None:
    end = killed_with_a_tail(tmp_path / "store")
    with (
        Master(tmp_path / "store", **SETTINGS | {"slaveTimeout": 20_000}) as master,
        master.connect() as client,
    ):
        assert shown(client) == 1
        held = client.send_request(RequestCode.PULL_MESSAGE, pull_ext("T", 1, **HELD))
        past = client.send_request(RequestCode.PULL_MESSAGE, pull_ext("T", 2, **HELD))
        with master.slave() as slave, master.connect() as other:
            copy_all(slave, end)
            eventually(lambda: shown(other) == 2)
            assert b"tail" in client.answer_to(held).body
            other.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"third")
            slave.copy(end + 1)
            assert b"third" in client.answer_to(past).body


def test_without_a_slave_once_the_slaves_had_their_time(tmp_path: Path) -> None:
    killed_with_a_tail(tmp_path / "store")
    with Master(tmp_path / "store", **SETTINGS) as master, master.connect() as client:
        started = time.monotonic()
        assert shown(client) == 1
        eventually(lambda: shown(client) == 2)
        assert time.monotonic() - started > 1.2
    with Master(tmp_path / "store", **SETTINGS) as master, master.connect() as client:
        assert shown(client) == 2


def test_with_fewer_copies_than_the_least_number_not_before_one_joins(tmp_path: Path) -> None:
    end = killed_with_a_tail(tmp_path / "store")
    with Master(tmp_path / "store", **SETTINGS, minInSyncReplicas=2) as master, master.connect() as client:
        time.sleep(2.5)
        assert shown(client) == 1
        assert b"confirmed" in pull(client, "T").body
        with master.slave() as slave:
            copy_all(slave, end)
            eventually(lambda: shown(client) == 2)


@pytest.mark.parametrize(
    "settings", [{"readUnconfirmedMessages": "true"}, {"inSyncReplicas": 1}, {"brokerRole": "ASYNC_MASTER"}]
)
def test_at_once_if_readers_wait_for_no_copies(tmp_path: Path, settings: dict[str, object]) -> None:
    killed_with_a_tail(tmp_path / "store")
    assert (tmp_path / "store" / FILE_NAME).exists()
    with Master(tmp_path / "store", **SETTINGS | settings) as master, master.connect() as client:
        assert shown(client) == 2
        assert (tmp_path / "store" / FILE_NAME).exists() == ("brokerRole" not in settings)


def test_a_timer_that_is_due_before_it_is_confirmed_is_delivered_once(tmp_path: Path) -> None:
    """As after a promotion: the slave's wheel has messages that its readers did not see."""
    store = tmp_path / "store"
    precise = {"timerPrecisionMs": 100}
    with Master(store, **precise) as master, master.connect() as client:
        ext = send_ext("T", i="TIMER_DELAY_MS\x013000\x02")
        assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"timer").code == 0
        time.sleep(0.5)  # it is in the wheel
        assert master.stop() == 0
    (store / FILE_NAME).write_bytes(OFFSET.pack(0))
    with Master(store, **SETTINGS, **precise, minInSyncReplicas=2) as master, master.connect() as client:
        end = master.written()
        eventually(lambda: master.written() > end)  # it was due
        assert shown(client) == 0
        with master.slave() as slave:
            copy_all(slave, master.written())
            eventually(lambda: shown(client) == 1)
            assert b"timer" in pull(client, "T").body


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess, BrokerProcess]]:
    """A master that waits for two slaves, on our own wire."""
    settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "slaveTimeout": "15000"}
    with (
        start_master(tmp_path / "master", **settings) as master,
        start_slave(tmp_path / "1", name_server(master)) as first,
        start_slave(tmp_path / "2", name_server(master), brokerId="2") as second,
        master.connect() as client,
        first.connect() as reader,
    ):
        eventually(lambda: status_of(client)["inSyncSlaveNums"] == 2, what="both slaves")
        assert send(client, "T", b"0").code == 0
        eventually(lambda: shown(reader) == 1, what="the first message at the slave")
        yield master, first, second


def has_all_of(slave: BrokerProcess, master: BrokerProcess) -> None:
    with slave.connect() as theirs, master.connect() as ours:
        eventually(lambda: end_of(theirs) == end_of(ours), what="the whole log")


def test_of_two_slaves_one_shows_nothing_that_the_other_lacks(
    three: tuple[BrokerProcess, BrokerProcess, BrokerProcess],
) -> None:
    master, first, second = three
    with master.connect() as client, first.connect() as reader, first.connect() as other:
        held = reader.send_request(RequestCode.PULL_MESSAGE, pull_ext("T", 1, **HELD))
        with master.connect() as sender:
            with paused(second.process):
                opaque = sender.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"1")
                eventually(lambda: end_of(other) == end_of(client) > 0, what="the second message in the log")
                time.sleep(0.5)
                assert shown(other) == shown(client) == 1
            assert sender.answer_to(opaque).code == 0
        assert b"1" in reader.answer_to(held).body
        assert shown(client) == shown(other) == 2


def test_a_slave_that_starts_again_without_its_master_shows_what_it_showed(
    three: tuple[BrokerProcess, BrokerProcess, BrokerProcess],
) -> None:
    master, first, second = three
    with paused(second.process), master.connect() as client:
        before = end_of(client)
        client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"1")
        with first.connect() as reader:
            eventually(lambda: end_of(reader) > before, what="the second message in the log")
        master.kill()
        first.kill()
        with start_slave(first.store, name_server(master)) as again, again.connect() as reader:
            assert end_of(reader) > before
            assert shown(reader) == 1
            assert pull(reader, "T", 1).code == ResponseCode.PULL_NOT_FOUND


TWO, THREE, STRICT = CopiesNeeded(2), CopiesNeeded(3), CopiesNeeded(2, 2)


@pytest.mark.parametrize(
    ("acknowledged", "copies", "starts", "visible"),
    [
        ([], TWO, False, EVERYTHING),
        ([], TWO, True, 0),
        ([], STRICT, False, 0),
        ([], CopiesNeeded(2, 3), True, 0),
        ([70], CopiesNeeded(2, 3), True, 0),
        ([70], TWO, True, 70),
        ([70], THREE, False, 70),
        ([70], THREE, True, 0),
        ([70, 50], THREE, True, 50),
        ([70, 50], TWO, False, 70),
    ],
)
def test_readers_see_what_enough_copies_have(
    acknowledged: list[int], copies: CopiesNeeded, starts: bool, visible: int
) -> None:
    assert confirmed_by(acknowledged, 1, copies, starts=starts).visible == visible


def test_a_start_changes_no_answer() -> None:
    for copies in (TWO, THREE, STRICT, CopiesNeeded(3, adapts=True), CopiesNeeded(2, strict=True)):
        for acknowledged in ([], [70], [70, 50]):
            running, starting = (confirmed_by(acknowledged, 1, copies, starts=each) for each in (False, True))
            assert starting._replace(visible=0) == running._replace(visible=0)


@pytest.mark.parametrize(
    ("others", "present", "copies", "visible"),
    [
        ([], 1, TWO, EVERYTHING),
        ([], 2, TWO, EVERYTHING),
        ([], 1, STRICT, EVERYTHING),
        ([50], 3, THREE, 50),
        ([50, 70], 4, THREE, 70),
        ([], 1, CopiesNeeded(3, 3), 0),
    ],
)
def test_readers_of_a_slave_see_what_enough_others_have(
    others: list[int], present: int, copies: CopiesNeeded, visible: int
) -> None:
    """Its own copy and the master's count."""
    assert confirmed_at(others, present, copies) == visible


def test_after_a_start_they_wait_for_all_that_are_wanted() -> None:
    assert confirmed_at([], 1, THREE) == EVERYTHING
    assert confirmed_at([], 1, THREE, starts=True) == 0
    assert confirmed_at([50], 2, THREE, starts=True) == 50


def test_a_log_that_is_not_confirmed_for_long_takes_no_memory(tmp_path: Path) -> None:
    shown: list[tuple[str, int]] = []
    with MessageStore.open(tmp_path, StoreConfig(confirm_later=True)) as store:
        log = ConfirmedLog(store, shown.extend)
        for number in range(3 * MERGED_FROM):
            end = put(store, b"x", queue_id=number % 3).end
            store.write()
            log.stored(end, [("T", number % 3)])
        assert len(log._hidden) == MERGED_FROM
        assert shown == []
        log.confirmed(store.written)
        assert store.reader.confirmed == store.written
        assert set(shown[-3:]) == {("T", 0), ("T", 1), ("T", 2)}


def test_slaves_have_their_time_also_after_a_start_that_takes_longer(tmp_path: Path) -> None:
    """The time begins once the master serves slaves: here it first reads the timer's messages again."""
    store, settings = tmp_path / "store", {"timerPrecisionMs": 100}
    with Master(store, **settings) as master, master.connect() as client:
        for _ in range(30):
            ext = send_ext("T", i="TIMER_DELAY_SEC\x013600\x02")
            pending = [client.send_request(RequestCode.SEND_MESSAGE_V2, ext, b"timer") for _ in range(500)]
            assert {client.answer_to(opaque).code for opaque in pending} == {0}
        assert master.stop() == 0
    (store / FILE_NAME).write_bytes(OFFSET.pack(0))
    (store / "config" / "timercheck").unlink()
    with Master(store, **SETTINGS | settings | {"slaveTimeout": 200}) as master:
        log = master.log
        eventually(lambda: "not all slaves were in sync within slaveTimeout=200 ms" in log.read_text())
        lines = log.read_text().splitlines()
    [read, shown_at] = [
        datetime.fromisoformat(line[:23].replace(",", "."))
        for text in ("15000 timer messages are pending", "not all slaves")
        for line in lines
        if text in line
    ]
    assert shown_at - read >= timedelta(milliseconds=200)


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_a_folder_in_the_place_of_the_file_is_reported(tmp_path: Path, role: str) -> None:
    MessageStore.open(tmp_path / "store").close()
    (tmp_path / "store" / FILE_NAME).mkdir()
    with pytest.raises(LocalBrokerError, match=f"{FILE_NAME}: Is a directory.: move this folder away"):
        Master(tmp_path / "store", brokerRole=role)
