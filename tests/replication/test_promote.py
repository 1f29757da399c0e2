"""`firearrow promote`: a slave becomes the master, and stays it; nothing that the log has is lost."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.replication.log.pair_identity import stored_role
from tests.replication.pairs import (
    SIZES,
    TOPIC,
    digests,
    end_of,
    fill,
    ha_client,
    name_server,
    own_ports,
    paused,
    start_slave,
    words,
)
from tests.replication.promoted_pair import (
    PromotedPair,
    address_of,
    is_master,
    option,
    promoted,
    state_of,
)
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here, process
from tests.support.eventually import eventually
from tests.support.requests import SUBSCRIPTION, pull, read_queue, send, send_ext, topic_ext

SENDS = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.POP_MESSAGE,
)
COMMIT = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": "3"}


def test_a_slave_whose_master_died_becomes_the_master_and_stays_it(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        pair.fill(40)
        pair.caught_up()
        pair.master.kill()
        ran = promoted(pair.slave)
        [row] = ran.rows
        assert (row["role"], row["epoch"]) == ("ASYNC_MASTER", 2)
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")
        with pair.slave.connect() as client:
            assert is_master(client)
            assert row["end"] == end_of(client)
            assert send(client, TOPIC, b"after", queue_id=0).ext["queueOffset"] == "10"
        assert pair.slave.stop() == 0
        pair.slave = pair.start_slave()  # with brokerRole=SLAVE
        with pair.slave.connect() as client:
            assert is_master(client)
            assert send(client, TOPIC, b"later", queue_id=0).ext["queueOffset"] == "11"
        assert "set brokerRole=ASYNC_MASTER and brokerId=0" in pair.slave.log.read_text()
        again = promoted(pair.slave)
        assert (again.code, "is a master already" in again.err) == (1, True)


def test_a_slave_takes_over_from_a_master_that_is_well(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        pair.fill(40)
        [row] = promoted(pair.slave).rows
        assert row["epoch"] == 2
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")
        with pair.slave.connect() as client:
            assert is_master(client)
            assert send(client, TOPIC, b"after", queue_id=0).ext["queueOffset"] == "10"
        with pair.master.connect() as old:
            assert ha_client(old)["state"] == "fenced"
            for code in SENDS:
                answer = old.ask(code, send_ext(TOPIC), b"body")
                assert answer.code == 14, code
            assert old.ask(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT).code == 14
            assert end_of(old) == row["end"]
        assert pair.master.stop() == 0
        pair.master = pair.start_master()
        with pair.master.connect() as old:
            assert ha_client(old)["state"] == "fenced"
            assert send(old, TOPIC, b"never").code == 14
        assert pair.route() == {0: address_of(pair.slave)}
        assert pair.master.stop() == 0
        pair.master = pair.start_master(brokerRole="SLAVE", brokerId="2", slaveReadEnable="true")
        pair.caught_up()
        assert pair.route() == {0: address_of(pair.slave), 2: address_of(pair.master)}


@pytest.mark.parametrize("is_alive", [True, False])
def test_the_new_master_has_the_role_of_the_old_one(tmp_path: Path, is_alive: bool) -> None:
    """The slave remembers it over a restart."""
    with PromotedPair(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2") as pair:
        pair.caught_up()
        if not is_alive:
            eventually(lambda: stored_role(tmp_path / "slave" / "config").master_role != "", what="the role")
            pair.master.kill()
            assert pair.slave.stop() == 0
            pair.slave = pair.start_slave()
        ran = promoted(pair.slave)
        [row] = ran.rows
        assert row["role"] == "SYNC_MASTER"
        assert "it is a SYNC_MASTER, as its old master was" in ran.err
        with pair.slave.connect() as client:
            assert option(client, "brokerRole") == "SYNC_MASTER"
        if not is_alive:
            return
        [row] = promoted(pair.master, "--force").rows  # it has its own role again
        assert row["role"] == "SYNC_MASTER"
        eventually(lambda: state_of(pair.slave) == "following", what="that the other one follows")
        [row] = promoted(pair.slave, "--role", "ASYNC_MASTER").rows
        assert row["role"] == "ASYNC_MASTER"


def test_a_role_that_is_not_known_is_said(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "names", *words({"brokerName": "names"})) as names,
        start_slave(tmp_path / "slave", name_server(names)) as slave,
    ):
        ran = promoted(slave)
        [row] = ran.rows
        assert (row["role"], "is not known, so it is ASYNC_MASTER" in ran.err) == ("ASYNC_MASTER", True)


def test_an_old_master_that_comes_back_is_fenced_by_the_name_server(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        pair.fill(20)
        pair.caught_up()
        pair.master.kill()
        promoted(pair.slave).succeeded()
        pair.master = pair.start_master()
        eventually(lambda: state_of(pair.master) == "fenced", what="that the old master is fenced")
        assert pair.route() == {0: address_of(pair.slave)}
        with pair.master.connect() as old, pair.slave.connect() as new:
            assert send(old, TOPIC, b"never").code == 14
            assert send(new, TOPIC, b"body").code == 0
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")
        refused = promoted(pair.master)
        assert (refused.code, "was fenced by epoch 2" in refused.err) == (1, True)
        [row] = promoted(pair.master, "--force").rows
        assert row["epoch"] == 3
        eventually(lambda: state_of(pair.slave) == "following", what="that the other one follows in its turn")
        with pair.slave.connect() as client, pair.master.connect() as master:  # its configuration says SLAVE
            assert send(client, TOPIC, b"never").code == 2
            eventually(lambda: end_of(client) == end_of(master), what="that it has the master's log alone")


def test_of_two_slaves_that_are_promoted_one_is_the_master(tmp_path: Path) -> None:
    """The second one has not heard of the first one yet when it is asked."""
    second = SIZES | {"brokerRole": "SLAVE", "brokerId": "2"}
    with (
        PromotedPair(tmp_path) as pair,
        BrokerProcess(tmp_path / "other", *own_ports(), "--namesrv", pair.names, *words(second)) as other,
    ):
        with pair.master.connect() as client, other.connect() as reader:
            fill(client, 20)
            eventually(lambda: end_of(reader) == end_of(client), what="the second slave")
        pair.caught_up()
        pair.master.kill()
        [first] = promoted(pair.slave).rows
        [row] = promoted(other).rows
        assert (first["epoch"], row["epoch"]) == (2, 3)
        eventually(lambda: state_of(pair.slave) == "following", what="that the first one follows")
        eventually(
            lambda: pair.route() == {0: address_of(other), 1: address_of(pair.slave)}, what="the route"
        )


def test_a_slave_that_lacks_what_another_one_has_is_not_promoted(tmp_path: Path) -> None:
    """A SYNC_MASTER answers when one of the two has a message."""
    with PromotedPair(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="2") as pair:
        role = words(SIZES | {"brokerRole": "SLAVE", "brokerId": "2"})
        second = *own_ports(), "--namesrv", pair.names, *role
        with pair.master.connect() as client:
            eventually(lambda: send(client, TOPIC, b"first").code == 0, what="a slave in sync")
            with BrokerProcess(tmp_path / "other", *second) as other, other.connect() as reader:
                eventually(lambda: end_of(reader) == end_of(client), what="the second slave")
            assert send(client, TOPIC, b"in two copies").code == 0
            pair.master.kill()
        with BrokerProcess(tmp_path / "other", *second) as other:
            eventually(lambda: pair.route().keys() == {1, 2}, what="the route")
            refused = promoted(other)
            assert (refused.code, "promote that one" in refused.err) == (1, True)
            assert address_of(pair.slave) in refused.err
            promoted(pair.slave).succeeded()
        with pair.slave.connect() as client:
            assert [record.body for record in read_queue(client, TOPIC, 0)][-1] == b"in two copies"


@pytest.mark.parametrize("is_away", [True, False])
def test_messages_of_a_deleted_topic_do_not_come_back(tmp_path: Path, is_away: bool) -> None:
    """Nor do offsets of its groups, if the topic is created again at the new master."""
    gone = {"topic": "Gone"}
    of_group = {"consumerGroup": "CG", "topic": "Gone", "queueId": "0"}
    with PromotedPair(tmp_path) as pair:
        with pair.master.connect() as client:
            client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"CG"}')
            fill(client, 20)
            fill(client, 12, topic="Gone")
            pair.caught_up()
            pair.knows("Gone")
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, of_group | {"commitOffset": "2"}).code == 0
            with pair.slave.connect() as reader:
                of_zero = of_group | {"setZeroIfNotFound": "false"}
                ask = lambda: reader.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_zero).ext  # noqa: E731
                eventually(lambda: ask().get("offset") == "2", what="the group's offset")
            if is_away:
                pair.slave.kill()
            assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, gone).code == 0
            assert send(client, TOPIC, b"later").code == 0
            if is_away:
                pair.slave = pair.start_slave()
        with pair.slave.connect() as reader:
            eventually(
                lambda: reader.ask(RequestCode.GET_TOPIC_CONFIG, gone).code == 17, what="that it is deleted"
            )
        pair.caught_up()
        pair.master.kill()
        promoted(pair.slave).succeeded()
        with pair.slave.connect() as client:
            assert client.ask(RequestCode.GET_TOPIC_CONFIG, gone).code == 17
            client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Gone"))
            assert send(client, "Gone", b"new", queue_id=0).ext["queueOffset"] == "0"
            assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_group).ext["offset"] == "0"
            assert [record.body for record in read_queue(client, "Gone", 0)] == [b"new"]


@pytest.mark.parametrize("fast", ["true", "false"])
def test_a_slave_that_follows_takes_no_commits(tmp_path: Path, fast: str) -> None:
    """A client with an old route takes it for the master: its commit would be lost, or replace a newer one."""
    commit = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0"}
    with PromotedPair(tmp_path, fastPath=fast) as pair:
        pair.fill(20)
        pair.caught_up()
        pair.knows(TOPIC)
        with pair.master.connect() as client, pair.slave.connect() as slave:
            client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"CG"}')

            def committed_at_the_slave() -> str | None:
                asked = commit | {"setZeroIfNotFound": "false"}
                return slave.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).ext.get("offset")

            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "3"}).code == 0
            eventually(lambda: committed_at_the_slave() == "3", what="the commit at the slave")
            refused = slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit | {"commitOffset": "1"})
            assert (refused.code, "committed to its master" in str(refused.remark)) == (14, True)
            for _ in range(2):  # the fast path learns the subscription from the first
                found = pull(slave, TOPIC, 3, sysFlag=str(SUBSCRIPTION | 1), commitOffset="1")
                assert (found.code, committed_at_the_slave()) == (0, "3")
            pair.master.kill()
            of_four = commit | {"commitOffset": "4"}
            eventually(
                lambda: slave.ask(RequestCode.UPDATE_CONSUMER_OFFSET, of_four).code == 0,
                what="commits of consumers that read on",
            )
            assert committed_at_the_slave() == "4"


def test_a_slave_that_has_just_started_takes_over_from_its_master(tmp_path: Path) -> None:
    """It asks who the master is first, and does not take it for dead."""
    with PromotedPair(tmp_path) as pair:
        pair.fill(20)
        pair.caught_up()
        pair.slave.kill()
        with pair.master.connect() as client:
            assert send(client, TOPIC, b"late").code == 0
            end = end_of(client)
        pair.slave = pair.start_slave()
        [row] = promoted(pair.slave).rows
        assert (row["end"], row["epoch"]) == (end, 2)
        eventually(lambda: state_of(pair.master) == "fenced", 1, "that the old one is fenced")


def test_a_fenced_master_that_has_not_joined_the_new_one_keeps_its_epoch(tmp_path: Path) -> None:
    """Else both would be masters of one epoch, and neither would give way."""
    with PromotedPair(tmp_path) as pair:
        pair.fill(20)
        promoted(pair.slave).succeeded()
        with pair.slave.connect() as client:
            assert send(client, TOPIC, b"of epoch 2").code == 0
        pair.slave.kill()
        pair.master.kill()
        pair.master = pair.start_master(brokerRole="SLAVE", brokerId="1")
        refused = promoted(pair.master)
        assert (refused.code, "was fenced by epoch 2" in refused.err) == (1, True)
        [row] = promoted(pair.master, "--force").rows
        assert row["epoch"] == 3
        pair.slave = pair.start_slave()
        eventually(lambda: state_of(pair.slave) not in ("", "no master"), what="that it is no master")
        with pair.master.connect() as client:
            assert send(client, TOPIC, b"of epoch 3").code == 0


@pytest.mark.parametrize("role", [("--role", "SYNC_MASTER"), ()])
def test_a_stopped_store_is_promoted_in_its_folder(tmp_path: Path, role: tuple[str, ...]) -> None:
    with PromotedPair(tmp_path, **({} if role else {"brokerRole": "SYNC_MASTER"})) as pair:
        pair.fill(20)
        pair.caught_up()
        eventually(lambda: stored_role(tmp_path / "slave" / "config").master_role != "", what="the role")
        pair.master.kill()
        in_use = here("promote", str(tmp_path / "slave"), "--yes")
        assert (in_use.code, "is in use by a broker" in in_use.err) == (3, True)
        pair.slave.kill()
        ran = here("promote", str(tmp_path / "slave"), "--yes", *role)
        assert (ran.code, "is a master's store now, of epoch 2" in ran.out) == (0, True)
        again = here("promote", str(tmp_path / "slave"), "--yes")
        assert (again.code, "is promoted already, with epoch 2: start it" in again.err) == (3, True)
        unsure = here("promote", str(tmp_path / "slave"))
        assert (unsure.code, "add --yes" in unsure.err) == (2, True)
        pair.slave = pair.start_slave()
        with pair.slave.connect() as client:
            assert is_master(client)
            assert option(client, "brokerRole") == "SYNC_MASTER"
            assert send(client, TOPIC, b"after", queue_id=0).ext["queueOffset"] == "5"
        eventually(lambda: pair.route() == {0: address_of(pair.slave)}, what="the route")
        assert (tmp_path / "slave" / "epochFileCheckpoint").exists()


def test_a_slave_that_diverged_begins_again(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        pair.fill(20)
        pair.caught_up()
        refused = here("replica", "rebuild", address_of(pair.slave), "--yes")
        assert (refused.code, "following" in refused.err) == (1, True)
        refused = here("replica", "rebuild", address_of(pair.master), "--yes")
        assert (refused.code, "it is a master" in refused.err) == (1, True)
        pair.slave.kill()
        with BrokerProcess(tmp_path / "slave", *words(SIZES | {"brokerName": "alone"})) as alone:
            with alone.connect() as client:
                fill(client, 10)
            alone.stop()
        pair.slave = pair.start_slave()
        eventually(lambda: state_of(pair.slave) == "diverged", what="that it has diverged")
        with pair.slave.connect() as client:
            lost = end_of(client)
        [row] = here("replica", "rebuild", address_of(pair.slave), "--yes").rows
        assert (row["logBytes"], row["folder"]) == (lost, str(tmp_path / "slave" / "damaged"))
        pair.caught_up()
        eventually(lambda: state_of(pair.slave) == "following", what="that it follows again")
        with pair.master.connect() as client:
            end = end_of(client)
        assert digests(tmp_path / "slave", end) == digests(tmp_path / "master", end)
        [kept] = (tmp_path / "slave" / "damaged").iterdir()
        moved = {"commitlog", "consumequeue", "index", "journal", "confirmOffset"}
        assert moved < {path.name for path in kept.iterdir()}
        pair.slave.kill()
        assert here("replica", "rebuild", str(tmp_path / "slave"), "--yes").code == 0
        pair.slave = pair.start_slave()
        pair.caught_up()


def test_a_promotion_ends_when_a_name_server_has_the_master(tmp_path: Path) -> None:
    """Until then another slave does not see it, and would be promoted to the same epoch."""
    with (
        BrokerProcess(tmp_path / "names", *words({"brokerName": "names"})) as names,
        PromotedPair(tmp_path, name_server(names)) as pair,
        ThreadPoolExecutor(1) as commands,
    ):
        pair.fill(20)
        pair.caught_up()
        pair.master.kill()
        with paused(names.process):
            command = commands.submit(process, "promote", address_of(pair.slave), "--yes")
            eventually(lambda: _is_master(pair.slave), what="the new master")
            time.sleep(0.5)  # the command asks each 0.1 s
            assert not command.done()
        [row] = command.result().rows
        assert (row["epoch"], pair.route()) == (2, {0: address_of(pair.slave)})


def _is_master(broker: BrokerProcess) -> bool:
    try:
        with broker.connect() as client:
            return is_master(client)
    except OSError:
        return False
