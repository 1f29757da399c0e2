"""Two masters of one name and epoch: each says so, once, and `firearrow doctor` shows it; neither gives way."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.replication.failover import master_watch
from firearrow.broker.replication.failover.master_watch import MasterWatch
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.registration import BrokerIdentity
from tests.replication.pairs import TOPIC, end_of, own_ports, words
from tests.replication.promoted_pair import PromotedPair, address_of, is_master, promoted
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import send

OURS, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"
BOTH = "are both masters of pair with epoch"


class NameServer:
    """Answers who has id 0, and with which epoch."""

    def __init__(self) -> None:
        self.holder, self.epoch = OTHER, 2

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        if command.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            body: object = {"brokerAddrTable": {"pair": {"brokerAddrs": {"0": self.holder}}}}
        else:
            body = DataVersion(1, self.epoch, 1).to_object()
        return RemotingCommand.request(0, {}, fastjson.dumps(body))


def test_another_master_of_our_epoch_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdated: list[int] = []
    identity = BrokerIdentity("DefaultCluster", "pair", "10.0.0.1", 10911, 0)
    watch = MasterWatch(identity, lambda: 2, lambda epoch, by: outdated.append(epoch))
    names = NameServer()

    async def look(holder: str, epoch: int, errors: int) -> str:
        names.holder, names.epoch = holder, epoch
        await watch.check(cast("Any", names), OURS)
        assert caplog.text.count("are both masters") == errors
        return watch.other_master

    async def run() -> None:
        assert await look(OURS, 2, 0) == ""
        assert await look(OTHER, 1, 0) == ""
        assert await look(OTHER, 2, 1) == OTHER
        assert f"{OTHER} and this broker, {OURS}, {BOTH} 2" in caplog.text
        assert await look(OURS, 2, 1) == OTHER  # the name server shows them in turn
        assert await look(OTHER, 2, 1) == OTHER
        assert await look("10.0.0.3:10911", 2, 2) == "10.0.0.3:10911"
        monkeypatch.setattr(master_watch, "FORGET_S", 0.0)
        assert await look(OURS, 2, 2) == ""
        monkeypatch.undo()
        assert await look("10.0.0.3:10911", 2, 3) == "10.0.0.3:10911"
        assert outdated == []
        await look(OTHER, 3, 3)
        assert outdated == [3]

    asyncio.run(run())


def test_two_slaves_that_were_promoted_without_a_name_server(tmp_path: Path) -> None:
    often = {"registerNameServerPeriod": "10000"}
    second = often | {"brokerName": "pair", "brokerRole": "SLAVE", "brokerId": "2"}
    with BrokerProcess(tmp_path / "names", *own_ports(), *words({"brokerName": "names"})) as names:
        assert names.name_server is not None
        text = "{}:{}".format(*names.name_server)
        with (
            PromotedPair(tmp_path, text, **often) as pair,
            BrokerProcess(tmp_path / "other", *own_ports(), "--namesrv", text, *words(second)) as other,
        ):
            pair.fill(20)
            pair.caught_up()
            with pair.slave.connect() as reader, other.connect() as client:
                eventually(lambda: end_of(client) == end_of(reader), what="the second slave")
            pair.master.kill()
            names.kill()
            assert {promoted(each).rows[0]["epoch"] for each in (pair.slave, other)} == {2}
            names.running.start()
            both = pair.slave, other
            eventually(lambda: any(BOTH in each.log.read_text() for each in both), what="that one says it")
            eventually(lambda: all(BOTH in each.log.read_text() for each in both), what="that both say it")
            assert [each.log.read_text().count(BOTH) for each in both] == [1, 1]
            for each in both:
                with each.connect() as client:
                    assert is_master(client)
                    assert send(client, TOPIC, b"body").code == 0
            found = here("doctor", "--json", name_server=text)
            assert f"{address_of(pair.slave)}" in found.out
            assert "are masters of the same epoch" in found.out
            rows = here("replica", "status", "--broker", "pair", name_server=text).lines
            assert any("is also a master of the same epoch" in row["reason"] for row in rows), rows
