"""FENCE_BROKER: a master stops writing, and what waits for an answer gets none that says stored."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.ports import free_port
from firearrow._native.store.log.results import WriteRefusal
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.options import Options
from firearrow.broker.replication.failover.fencing import Fencing, proof_of
from firearrow.broker.replication.log.epoch_file import EPOCH_JUMP_MAX, EPOCH_MAX, EpochFile
from firearrow.broker.replication.log.pair_identity import ASYNC_MASTER, PairIdentity, RoleKind, StoredRole
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.registration import BrokerAnnouncement, BrokerIdentity
from firearrow.broker.tables.topics import TopicConfig
from tests.replication.pairs import SECRET, TOPIC, end_of, start_master
from tests.replication.promoted_pair import PromotedPair, is_master, promoted, state_of
from tests.replication.raw_slave import Master
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import process
from tests.support.eventually import eventually
from tests.support.requests import send, send_ext

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 60_000}


def fence(connection: ClientSocket, step: str, **ext: str) -> RemotingCommand:
    return connection.ask(RequestCode.FENCE_BROKER, {"step": step, **ext})


def test_what_waits_for_slaves_is_refused(tmp_path: Path) -> None:
    with Master(tmp_path / "store", **SYNC) as master, master.connect() as client, master.slave() as slave:
        slave.say(0)
        eventually(lambda: master.status()["inSyncSlaveNums"] == 1)
        waiting = client.send_request(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"body")
        eventually(lambda: master.written() > 0)
        with master.connect() as operator:
            assert fence(operator, "fence", epoch="1").code == 0
        answer = client.answer_to(waiting)
        assert (answer.code, "is fenced" in str(answer.remark)) == (14, True)


def test_a_master_that_hears_no_more_is_the_master_again(tmp_path: Path) -> None:
    with start_master(tmp_path / "store", haListenPort=str(free_port())) as master:
        with master.connect() as client:
            assert send(client, TOPIC, b"before").code == 0
            ready = json.loads(fence(client, "prepare").body)
            assert ready == {"epoch": 0, "end": end_of(client)}
            refused = send(client, TOPIC, b"never")
            assert (refused.code, WriteRefusal.HANDOVER in str(refused.remark)) == (14, True)
            status = json.loads(client.ask(RequestCode.GET_BROKER_HA_STATUS).body)
            assert status["refuses"] == f"sends are refused: {WriteRefusal.HANDOVER}"
            commit = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": "1"}
            assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 14
            assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "New"}).code == 14
            for step, ext in (
                ("fence", {"epoch": "1", "end": "1"}),
                ("fence", {"epoch": "0"}),
                ("sleep", {}),
            ):
                assert fence(client, step, **ext).code in (604, 29)
            assert fence(client, "cancel").code == 0
        eventually(lambda: takes_writes(master), what="that it takes writes")
        with master.connect() as client:
            late = {"epoch": "1", "end": str(end_of(client))}
            assert fence(client, "fence", **late).code == 604  # it was not prepared again
            assert is_master(client)


def test_an_epoch_is_bounded(tmp_path: Path) -> None:
    """One that no promotion can follow would fence the pair for good."""
    with (
        start_master(tmp_path / "store", haListenPort=str(free_port())) as master,
        master.connect() as client,
    ):
        for epoch in (EPOCH_MAX, EPOCH_MAX - 1, EPOCH_JUMP_MAX + 1):
            answer = fence(client, "fence", epoch=str(epoch))
            assert (answer.code, "more than 1000 after" in str(answer.remark)) == (29, True)
            assert is_master(client)
        assert fence(client, "fence", epoch=str(EPOCH_JUMP_MAX)).code == 0
        eventually(lambda: state_of(master) == "fenced", what="that it is fenced")


def test_who_fences_knows_the_secret(tmp_path: Path) -> None:
    options = {"haListenPort": str(free_port()), "haSecret": SECRET}
    with start_master(tmp_path / "store", **options) as master, master.connect() as client:
        steps: tuple[tuple[str, dict[str, str]], ...] = (
            ("prepare", {}),
            ("fence", {"epoch": "1"}),
            ("cancel", {}),
        )
        for step, ext in steps:
            fields = {"step": step, **ext}
            nonces = [json.loads(fence(client, "challenge").body)["nonce"] for _ in range(2)]
            with (
                master.connect() as other
            ):  # another connection's nonce, an older one, another secret, no proof
                for nonce, secret in ((nonces[1], SECRET), ("", SECRET)):
                    proof = proof_of(secret.encode(), nonce, fields)
                    assert fence(other, step, **ext, proof=proof).code == 16
            for nonce, secret in ((nonces[0], SECRET), (nonces[1], "0123456789abcdef"), (nonces[1], SECRET)):
                proof = proof_of(secret.encode(), nonce, fields)
                assert fence(client, step, **ext, proof=proof).code == 16, "a nonce is used once"
            assert fence(client, step, **ext).code == 16
        assert send(client, TOPIC, b"goes on").code == 0
        fields = {"step": "fence", "epoch": "1"}
        nonce = json.loads(fence(client, "challenge").body)["nonce"]
        changed = proof_of(SECRET.encode(), nonce, fields)
        assert fence(client, "fence", epoch="2", proof=changed).code == 16
        nonce = json.loads(fence(client, "challenge").body)["nonce"]
        assert fence(client, "fence", epoch="1", proof=proof_of(SECRET.encode(), nonce, fields)).code == 0
        eventually(lambda: state_of(master) == "fenced", what="that it is fenced")


def test_a_slave_that_knows_the_secret_takes_over(tmp_path: Path) -> None:
    with PromotedPair(tmp_path, haSecret=SECRET) as pair:
        pair.fill(20)
        [row] = promoted(pair.slave).rows
        assert row["epoch"] == 2
        eventually(lambda: state_of(pair.master) == "fenced", what="that the old master is fenced")
        assert [pair.master.stop(), pair.slave.stop()] == [0, 0]
        epochs = EpochFile(pair.slave.store)
        epochs.append(EPOCH_JUMP_MAX + 3, row["end"])
        pair.slave = pair.start_slave()  # the master of an epoch that cannot be
        pair.master = pair.start_master(brokerRole="SLAVE", brokerId="2")
        eventually(
            lambda: "more than 1000 after 1, that of this store" in pair.master.log.read_text(),
            what="that it is not followed",
        )
        assert EpochFile(pair.master.store).last == 1


def test_without_a_secret_only_this_machine_fences() -> None:
    options = Options()
    context = SimpleNamespace(config=SimpleNamespace(options=options))
    fencing = Fencing(cast("Any", context), cast("Any", None), is_master=True, stop_services=lambda: None)
    request = RemotingCommand.request(RequestCode.FENCE_BROKER, {"step": "prepare"})
    for host in ("10.0.0.9", "2001:db8::1", "::ffff:10.0.0.9"):
        peer = cast("Any", SimpleNamespace(remote=(host, 1), closed=False))
        with pytest.raises(Refusal, match="only brokers on this machine may fence it"):
            fencing.fence(request, peer)


@pytest.mark.parametrize("epoch", [EPOCH_MAX, EPOCH_JUMP_MAX + 1])
def test_a_registration_with_an_epoch_that_cannot_be_fences_no_master(tmp_path: Path, epoch: int) -> None:
    with start_master(tmp_path / "store", haListenPort=str(free_port())) as master:
        other = BrokerIdentity("DefaultCluster", "pair", "10.0.0.9", 10911, 0)
        with master.connect_name_server() as names:
            assert register(names, other, epoch).code == 1
        eventually(
            lambda: "claims to be the master of epoch" in master.log.read_text(), what="that it is reported"
        )
        with master.connect() as client:
            assert is_master(client)
            assert send(client, TOPIC, b"goes on").code == 0


def test_the_way_out_of_an_epoch_that_cannot_be(tmp_path: Path) -> None:
    """As it was taken before epochs were bounded."""
    store = tmp_path / "store"
    with start_master(store, haListenPort=str(free_port())) as master:
        assert master.stop() == 0
    identity = PairIdentity(store / "config")
    identity.set_role(StoredRole(RoleKind.FENCED, EPOCH_MAX, ASYNC_MASTER))
    epochs = EpochFile(store)
    epochs.append(3, 0)
    epochs.append(EPOCH_MAX, 100)
    promoted = process("store", "promote", str(store), "--force", "--yes")
    assert promoted.code == 3
    assert "run `firearrow store reset-epoch`" in promoted.err
    reset = process("store", "reset-epoch", str(store), "--yes")
    reset.succeeded()
    assert f"is of epoch 3 now, it was {EPOCH_MAX}, and is fenced no more" in reset.out
    with start_master(store, haListenPort=str(free_port())) as master, master.connect() as client:
        assert is_master(client)
        eventually(lambda: takes_writes(master), what="that it takes writes")
        assert fence(client, "fence", epoch="4").code == 0


def takes_writes(broker: BrokerProcess) -> bool:
    try:
        with broker.connect() as client:
            return send(client, TOPIC, b"after").code == 0
    except OSError:
        return False


def test_the_name_server_in_its_process_tells_a_master_of_a_newer_one(tmp_path: Path) -> None:
    """Which is refused until the master is fenced."""
    newer = BrokerIdentity("DefaultCluster", "pair", "10.0.0.9", 10911, 0)
    with start_master(tmp_path / "store", haListenPort=str(free_port())) as master:
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=0).code == 1
        assert takes_writes(master)
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=2).code == 1
        eventually(lambda: state_of(master) == "fenced", what="that it is fenced")
        with master.connect_name_server() as names:
            assert register(names, newer, state_version=2).code == 0
        assert not takes_writes(master)


def register(names: ClientSocket, identity: BrokerIdentity, state_version: int) -> RemotingCommand:
    version = DataVersion(1, state_version, 1)
    topics = [TopicConfig(name, 4, 4, 6) for name in (TOPIC, "Other")]
    announcement = BrokerAnnouncement.of(identity, version, topics, 6)
    [body] = announcement.bodies()
    return names.ask(RequestCode.REGISTER_BROKER, announcement.ext("10.0.0.9", body), body)
