"""SYNC_MASTER: what senders and consumers see while slaves confirm, or do not."""

import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.handlers.send import UNCONFIRMED_MAX
from tests.replication.raw_slave import Master, RawSlave
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull_ext, send, send_ext

SETTINGS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 700}


def timed(connection: ClientSocket, ext: dict[str, str] | None = None) -> tuple[RemotingCommand, float]:
    began = time.monotonic()
    answer = connection.ask(RequestCode.SEND_MESSAGE_V2, ext or send_ext("T"), b"body")
    return answer, time.monotonic() - began


def shown(connection: ClientSocket, topic: str = "T") -> int:
    """The queue's end as consumers see it."""
    ext = {"topic": topic, "queueId": "0"}
    return int(connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"])


def in_sync(master: Master) -> int:
    return int(str(master.status()["inSyncSlaveNums"]))


def caught_up(master: Master, slave: RawSlave) -> None:
    """Let a new slave copy all there is."""
    end = master.written()
    slave.say(0)
    if end:
        slave.copy(end)
    eventually(lambda: in_sync(master) == 1)


def set_option(connection: ClientSocket, pair: bytes) -> None:
    assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=pair).code == 0


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_dead_slave_costs_one_timeout_and_is_back_once_it_has_caught_up(tmp_path: Path, flush: str) -> None:
    with Master(tmp_path / "store", **SETTINGS, flushDiskType=flush) as master, master.connect() as client:
        answer, seconds = timed(client)
        assert (answer.code, seconds < 0.5) == (11, True)
        with master.slave() as slave:
            caught_up(master, slave)
            opaque = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"held")
            with master.connect() as other:
                while slave.piece() == 0:
                    pass
                assert shown(other) == 1
                slave.say(slave.end)
                assert client.answer_to(opaque).code == 0
                assert shown(other) == 2
            answer, seconds = timed(client)
            assert answer.code == 12
            assert 0.6 < seconds < 2
            assert answer.ext["queueOffset"] == "2"
            assert answer.ext["msgId"]
            answer, seconds = timed(client)
            assert (answer.code, seconds < 0.4) == (12, True)
            assert shown(client) == 4
            slave.copy(master.written())
            eventually(lambda: in_sync(master) == 1)
            opaque = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"again")
            slave.copy(slave.end + 1)
            assert client.answer_to(opaque).code == 0


def test_sends_are_refused_and_nothing_is_shown_below_the_least_number_of_copies(tmp_path: Path) -> None:
    with Master(tmp_path / "store", **SETTINGS, minInSyncReplicas=2) as master, master.connect() as client:
        answer, seconds = timed(client)
        assert (answer.code, answer.remark, seconds < 0.5) == (1, "in-sync replicas not enough", True)
        assert timed(client, send_ext("T", i="WAIT\x01false\x02"))[0].code == 0
        assert shown(client) == 0
        with master.slave() as slave:
            caught_up(master, slave)
            eventually(lambda: shown(client) == 1)
            answer, _ = timed(client)
            assert answer.code == 12
            assert shown(client) == 1
            assert timed(client)[0].code == 1
        set_option(client, b"minInSyncReplicas=1")
        assert shown(client) == 2
        assert timed(client)[0].code in (11, 12)
        set_option(client, b"enableAutoInSyncReplicas=true")
        assert timed(client)[0].code == 0
        set_option(client, b"enableAutoInSyncReplicas=false")
        set_option(client, b"inSyncReplicas=1")
        assert timed(client)[0].code == 0


def test_a_sync_master_that_waits_for_no_slave_says_so(tmp_path: Path) -> None:
    """Apache's default of inSyncReplicas."""
    with Master(tmp_path / "store", brokerRole="SYNC_MASTER") as master, master.connect() as client:
        answer, seconds = timed(client)
        assert (answer.code, seconds < 0.5) == (0, True)
        assert "waits for no slave while inSyncReplicas is 1" in master.log.read_text()


def test_messages_that_wait_for_nobody_are_bounded_while_slaves_are_missing(tmp_path: Path) -> None:
    """They are taken, but invisible, and each is remembered until a slave has it."""
    settings = SETTINGS | {"minInSyncReplicas": 2, "mappedFileSizeCommitLog": 1 << 26}
    with Master(tmp_path / "store", **settings) as master, master.connect() as client:
        ext, codes = send_ext("T", i="WAIT\x01false\x02"), list[int]()
        while len(codes) < UNCONFIRMED_MAX:
            sent = [client.send_request(RequestCode.SEND_MESSAGE_V2, ext, b"x") for _ in range(256)]
            codes += [client.answer_to(opaque).code for opaque in sent]
        assert set(codes) == {0}
        assert timed(client, ext)[0].code == 1
        assert shown(client) == 0
        with master.slave() as slave:
            slave.file_bytes = 1 << 26
            caught_up(master, slave)
            eventually(lambda: shown(client) == UNCONFIRMED_MAX)
            assert timed(client, ext)[0].code == 0


def test_readers_see_unconfirmed_messages_if_asked(tmp_path: Path) -> None:
    settings = SETTINGS | {"readUnconfirmedMessages": "true"}
    with Master(tmp_path / "store", **settings) as master, master.connect() as client:
        assert send(client, "T", b"0").code == 11
        with master.slave() as slave, master.connect() as reader:
            caught_up(master, slave)
            held = reader.send_request(
                RequestCode.PULL_MESSAGE, pull_ext("T", 1, sysFlag="6", suspendTimeoutMillis="5000")
            )
            opaque = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"body")
            assert reader.answer_to(held).code == 0
            assert client.answer_to(opaque).code == 12
