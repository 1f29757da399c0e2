"""What clients of gRPC are processing when the broker stops or is killed: it is renewed afterwards, and their old
receipt handles lead to the newest ones."""

import time
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.grpc import messages
from tests.grpc.conftest import SETTINGS
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, renewed, saved

OK = messages.CODES["OK"]
OFTEN = ("--set", "flushConsumerOffsetInterval=200")


def renewed_at(broker: BrokerProcess) -> int:
    with broker.connect() as connection:
        return renewed(connection)


def received(broker: BrokerProcess, caller: GrpcCaller, count: int) -> list[Any]:
    """So many messages of topic T, which the client processes; by their offsets."""
    with broker.connect() as connection:
        create_topic(connection, "T", queues=1)
        create_group(connection, "G")
    caller.consume("G", "T", kind="PUSH_CONSUMER")
    caller.send("T", *(b"%d" % number for number in range(count)))
    found: list[Any] = []
    while len(found) < count:
        found += caller.receive("G", "T", auto_renew=True)
    assert renewed_at(broker) == count
    return sorted(found, key=lambda each: int(each.body))


def test_messages_in_progress_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store, *SETTINGS) as broker, GrpcCaller(broker.address, "client@1") as caller:
        first, *others = received(broker, caller, 4)
        assert caller.ack("G", "T", first).status.code == OK
        assert broker.stop() == 0
    assert saved(store) == [1, 2, 3]
    with BrokerProcess(store, *SETTINGS, *OFTEN) as broker:
        assert renewed_at(broker) == 3, "before any client of gRPC has connected"
        with GrpcCaller(broker.address, "client@1") as caller:
            caller.consume("G", "T", kind="PUSH_CONSUMER")
            assert caller.ack("G", "T", others[0]).status.code == OK
            eventually(lambda: saved(store) == [2, 3])
            kept = (store / "config" / "receiptHandles.json").read_bytes()
            assert caller.ack("G", "T", others[1]).status.code == OK
            eventually(lambda: saved(store) == [3])
            broker.kill()
    (store / "config" / "receiptHandles.json").write_bytes(kept)  # the kill came before the last save
    with BrokerProcess(store, *SETTINGS) as broker:
        eventually(lambda: renewed_at(broker) == 1)
        with GrpcCaller(broker.address, "client@1") as caller:
            caller.consume("G", "T", kind="PUSH_CONSUMER")
            assert caller.ack("G", "T", others[2]).status.code == OK
            assert renewed_at(broker) == 0
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()
    assert saved(store) == []


def test_a_client_that_ended_gives_back_what_it_had_before_the_restart(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store, *SETTINGS) as broker, GrpcCaller(broker.address, "client@1") as caller:
        received(broker, caller, 2)
        assert broker.stop() == 0
    with BrokerProcess(store, *SETTINGS) as broker, GrpcCaller(broker.address, "client@1") as caller:
        caller.consume("G", "T", kind="PUSH_CONSUMER")
        assert caller.code("NotifyClientTermination", group={"name": "G"})[0] == "OK"
        assert renewed_at(broker) == 0
        with GrpcCaller(broker.address) as other:
            other.consume("G", "T")
            found: list[bytes] = []
            eventually(lambda: found.extend(each.body for each in other.receive("G", "T")) or len(found) == 2)
            assert sorted(found) == [b"0", b"1"]


@pytest.mark.long
def test_a_message_that_takes_longer_than_its_time_is_delivered_once(tmp_path: Path) -> None:
    """The broker is killed while it is processed, and renews it with the handle of the file."""
    store = tmp_path / "store"
    with BrokerProcess(store, *SETTINGS, *OFTEN) as broker, GrpcCaller(broker.address, "client@1") as caller:
        [message] = received(broker, caller, 1)
        eventually(lambda: saved(store) == [0])
        broker.kill()
    began = time.monotonic()
    with BrokerProcess(store, *SETTINGS, *OFTEN) as broker, GrpcCaller(broker.address, "client@1") as caller:
        caller.consume("G", "T", kind="PUSH_CONSUMER")
        while time.monotonic() - began < 75:
            assert caller.receive("G", "T", auto_renew=True) == []
        assert caller.ack("G", "T", message).status.code == OK
        assert renewed_at(broker) == 0


def test_a_transaction_is_decided_after_a_kill(tmp_path: Path) -> None:
    """Its id states where its half message is."""
    store = tmp_path / "store"
    with BrokerProcess(store) as broker:
        with broker.connect() as connection:
            create_topic(connection, "T", "TRANSACTION")
            create_group(connection, "G")
        with GrpcCaller(broker.address, "client@1") as caller:
            caller.produce("T")
            [entry] = caller.send("T", b"half", kind="TRANSACTION").entries
        broker.kill()
    with (
        BrokerProcess(store) as broker,
        GrpcCaller(broker.address) as consumer,
        GrpcCaller(broker.address, "client@1") as caller,
    ):
        consumer.consume("G", "T")
        ended = caller.call(
            "EndTransaction",
            topic={"name": "T"},
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution="COMMIT",
        )
        assert ended.status.code == OK
        found: list[bytes] = []
        eventually(lambda: found.extend(each.body for each in consumer.receive("G", "T")) or found)
        assert found == [b"half"]
