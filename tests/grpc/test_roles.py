"""Brokers that take no messages, for their role, their permission or their disk: what clients of gRPC see of that."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.grpc.messages import CODES, PERMISSIONS
from tests.quotas.limited import IN, OUT, set_quota
from tests.replication.acting_rig import TOPIC as ACTED
from tests.replication.acting_rig import Rig
from tests.replication.promoted_pair import PromotedPair, promoted
from tests.replication.test_acting_master import pair as acting_pair
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, message, receive_fields

TOPIC, GROUP = "T", "T-g"
ASKED = {"scheme": "DOMAIN_NAME", "addresses": [{"host": "broker.example", "port": 80}]}
NAMES = {number: name for name, number in PERMISSIONS.items()}


def queues(caller: GrpcCaller, topic: str = TOPIC) -> set[tuple[int, str, tuple[str, int]]]:
    """Of each queue, which broker has it, what may be done there, and where it is."""
    answer = caller.call("QueryRoute", topic={"name": topic}, endpoints=ASKED)
    return {_queue(each) for each in answer.message_queues}


def assigned(caller: GrpcCaller, topic: str = TOPIC) -> set[tuple[int, str, tuple[str, int]]]:
    answer = caller.call("QueryAssignment", topic={"name": topic}, group={"name": GROUP}, endpoints=ASKED)
    return {_queue(each.message_queue) for each in answer.assignments}


def _queue(queue: Any) -> tuple[int, str, tuple[str, int]]:  # noqa: ANN401
    [address] = queue.broker.endpoints.addresses
    return queue.broker.id, NAMES[queue.permission], (address.host, address.port)


OK, TOO_MANY = CODES["OK"], CODES["TOO_MANY_REQUESTS"]
HERE = ("broker.example", 80)


def sent(caller: GrpcCaller, topic: str = TOPIC) -> tuple[str, str]:
    return caller.code("SendMessage", messages=[message(topic, b"x")])


def received(caller: GrpcCaller, topic: str = TOPIC, group: str = GROUP) -> tuple[str, str]:
    return caller.code("ReceiveMessage", **receive_fields(group, topic))


# ---- roles ----


def test_a_slave_names_its_master_and_a_fenced_broker_why(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        with pair.master.connect() as connection:
            create_topic(connection, TOPIC)
            create_group(connection, GROUP)
        pair.knows(TOPIC)
        master = pair.master.address
        with pair.slave.connect() as slave:
            eventually(lambda: GROUP.encode() in slave.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
        with GrpcCaller(pair.slave.address) as caller:
            assert queues(caller) == {(0, "READ_WRITE", master)}
            assert assigned(caller) == {(0, "READ_WRITE", master)}
            at = "{}:{}".format(*master)
            assert sent(caller) == (
                "FORBIDDEN",
                f"no writable queue: this broker is a slave, and its master is {at}",
            )
            caller.consume(GROUP, TOPIC)
            assert received(caller) == (
                "HA_NOT_AVAILABLE",
                "a slave cannot store what pops need: pop and acknowledge at the master",
            )
        promoted(pair.slave).succeeded()
        eventually(lambda: "takes no writes" in pair.master.log.read_text(), what="that it is fenced")
        with GrpcCaller(pair.slave.address) as caller:
            eventually(lambda: _takes_messages(caller), what="the new master")
            assert queues(caller) == {(0, "READ_WRITE", HERE)}
        with GrpcCaller(pair.master.address) as caller:
            eventually(lambda: queues(caller) == {(1, "READ", HERE)}, what="that it starts again")
            code, text = sent(caller)
            assert code == "FORBIDDEN"
            assert "another broker of this brokerName was promoted to the master with epoch" in text
            assert caller.code("QueryAssignment", topic={"name": TOPIC}, group={"name": GROUP}) == (
                "FORBIDDEN",
                "no readable queue",
            )


def _takes_messages(caller: GrpcCaller) -> bool:
    try:
        return sent(caller)[0] == "OK"
    except grpc.RpcError:  # it starts again
        return False


def test_a_slave_that_acts_as_the_master(tmp_path: Path) -> None:
    """Its queues are read by PullMessage; receiving needs a store that takes check points, and waits for the master."""
    rig = Rig(tmp_path)
    try:
        acting_pair(rig)
        with rig.connect("master") as connection:
            create_group(connection, GROUP)
        with rig.connect("slave") as slave:
            eventually(lambda: GROUP.encode() in slave.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
        rig.kill("master")
        rig.wait_route({"0": "slave"}, 4)
        slave_process = rig.running["slave"]
        assert isinstance(slave_process, BrokerProcess)
        with GrpcCaller(slave_process.address) as caller:
            eventually(lambda: queues(caller, ACTED) == {(0, "READ", HERE)}, what="that it acts")
            assert assigned(caller, ACTED) == {(0, "READ", HERE)}
            assert sent(caller, ACTED)[0] == "FORBIDDEN"
            caller.consume(GROUP, ACTED)
            assert received(caller, ACTED)[0] == "HA_NOT_AVAILABLE"
            pulled = caller.call(
                "PullMessage",
                group={"name": GROUP},
                message_queue={"topic": {"name": ACTED}, "id": 0},
                filter_expression={"type": "TAG", "expression": "*"},
                batch_size=32,
            )
            assert [each.message.body for each in pulled if each.HasField("message")][:1] == [b"m000"]
    finally:
        rig.close()


# ---- permissions, the disk, quotas ----


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("roles") / "store") as running:
        with running.connect() as connection:
            create_topic(connection, TOPIC)
            create_group(connection, GROUP)
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def caller(broker: BrokerProcess) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address) as opened:
        opened.consume(GROUP, TOPIC)
        yield opened


def set_option(broker: BrokerProcess, pair: str) -> None:
    with broker.connect() as connection:
        assert connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=pair.encode()).code == 0


def test_a_broker_that_may_only_be_read_or_written(broker: BrokerProcess, caller: GrpcCaller) -> None:
    try:
        set_option(broker, "brokerPermission=4")
        assert {each[1] for each in queues(caller)} == {"READ"}
        assert sent(caller) == ("FORBIDDEN", "no writable queue")
        set_option(broker, "brokerPermission=2")
        assert {each[1] for each in queues(caller)} == {"WRITE"}
        assert sent(caller)[0] == "OK"
        code, text = received(caller)
        assert (code, "pop message is forbidden" in text) == ("FORBIDDEN", True)
        assert caller.code("QueryAssignment", topic={"name": TOPIC}, group={"name": GROUP}) == (
            "FORBIDDEN",
            "no readable queue",
        )
    finally:
        set_option(broker, "brokerPermission=6")


def test_a_full_disk(broker: BrokerProcess, caller: GrpcCaller) -> None:
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (4096, unlimited))
    try:
        code, text = sent(caller)
        assert (code, text.startswith("service not available now.")) == ("INTERNAL_SERVER_ERROR", True)
        assert "File too large" in text or "messages are refused" in text
    finally:
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert sent(caller)[0] == "OK"


def test_quotas_of_sends_and_receives(broker: BrokerProcess, caller: GrpcCaller) -> None:
    """A client that is over its quota waits for its answer, then is refused."""
    with broker.connect() as connection:
        try:
            assert set_quota(connection, "topic", TOPIC, **{IN: 1}).code == 0
            several = [message(TOPIC, b"x") for _ in range(8)]
            entries = caller.call("SendMessage", messages=several).entries
            assert [entries[0].status.code, entries[-1].status.code] == [OK, TOO_MANY]
            assert "is over its quota" in entries[-1].status.message
            assert set_quota(connection, "topic", TOPIC, **{IN: None}).code == 0
            assert set_quota(connection, "group", GROUP, **{OUT: 1}).code == 0
            caller.send(TOPIC, *[b"x"] * 16)
            caller.receive(GROUP, TOPIC)
            code, text = caller.code("ReceiveMessage", timeout=30, **receive_fields(GROUP, TOPIC))
            assert (code, "is over its quota" in text) == ("TOO_MANY_REQUESTS", True)
        finally:
            set_quota(connection, "topic", TOPIC, **{IN: None})
            set_quota(connection, "group", GROUP, **{OUT: None})
