"""What clients of gRPC find after their broker was killed, or a slave was promoted: what was acknowledged stays so,
what was not comes again, and what was open goes on. `python -m tests.grpc.kills` does so for as long as wanted;
test_restarts has what the broker renews."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.grpc import messages
from tests.grpc.killed_clients import FIFO, FIFO_GROUP, GROUP, HALVES, TOPIC, prepare
from tests.grpc.kills import Killed, OneBroker, Pair, run_round
from tests.integration.pops import bodies, pop
from tests.support.grpc_caller import GrpcCaller, attempts

OK = messages.CODES["OK"]


@pytest.fixture(params=[OneBroker, Pair], ids=["killed", "promoted"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killed]:
    made = request.param(tmp_path)
    try:
        with made.connect() as connection:
            prepare(connection)
        if isinstance(made, Pair):
            made.ready()
        yield made
        assert made.broker.stop() == 0
        assert "Traceback" not in made.broker.log.read_text()
    finally:
        made.close()


def test_nothing_is_lost_under_load(killed: Killed) -> None:
    history = run_round(killed, 1, 1 if isinstance(killed, Pair) else 2, drained=False)
    assert not history.faults, history.faults


def received_by(caller: GrpcCaller, topic: str, count: int) -> list[Any]:
    """So many messages, which the broker renews for the caller."""
    found: list[Any] = []
    for _ in attempts():
        found += caller.receive(GROUP, topic, auto_renew=True)
        if len(found) >= count:
            break
    assert len(found) == count
    return found


class Open:
    """What a client has open when the broker fails."""

    def __init__(self, killed: Killed) -> None:
        with GrpcCaller(killed.address(), "client@1") as caller:
            stream = caller.produce(TOPIC, HALVES)
            consumer = GrpcCaller(killed.address(), "consumer@1")
            consumer.consume(GROUP, TOPIC, kind="PUSH_CONSUMER")
            caller.send(TOPIC, b"acknowledged", b"shown", b"processed")
            found = {each.body: each for each in received_by(consumer, TOPIC, 3)}
            assert consumer.ack(GROUP, TOPIC, found[b"acknowledged"]).status.code == OK
            assert change(consumer, found[b"shown"], 1).status.code == OK
            self.processed = found[b"processed"]
            self._receive_in_order(consumer)
            self.halves = {
                body: caller.send(HALVES, body, kind="TRANSACTION", **later).entries[0]
                for body, later in (
                    (b"asked", {}),
                    (b"committed", {"orphaned_transaction_recovery_duration": {"seconds": 60}}),
                    (b"rolled back", {"orphaned_transaction_recovery_duration": {"seconds": 60}}),
                    (b"orphan", {"orphaned_transaction_recovery_duration": {"seconds": 1}}),
                )
            }
            assert all(each.status.code == OK for each in self.halves.values())
            assert stream.receive().recover_orphaned_transaction_command.message.body == b"asked"
            killed.fail()
            consumer.channel.close()

    @staticmethod
    def _receive_in_order(consumer: GrpcCaller) -> None:
        """Of three messages of a group, the first is acknowledged, and the second was received."""
        for body in (b"1", b"2", b"3"):
            assert consumer.send(FIFO, body, kind="FIFO", message_group="g").status.code == OK
        with GrpcCaller(consumer.address, "fifo@1") as caller:
            caller.consume(FIFO_GROUP, FIFO, kind="PUSH_CONSUMER")
            assert in_order(caller) == b"1"
            [second] = caller.receive(FIFO_GROUP, FIFO, 1, auto_renew=True)
            assert second.body == b"2"
            assert change(caller, second, 1, FIFO_GROUP).status.code == OK


def in_order(caller: GrpcCaller) -> bytes:
    """The next message of the FIFO group, acknowledged."""
    for _ in attempts():
        received = caller.receive(FIFO_GROUP, FIFO, 1, auto_renew=True)
        if received:
            break
    assert caller.ack(FIFO_GROUP, FIFO, *received).status.code == OK
    return bytes(received[0].body)


def change(caller: GrpcCaller, received: Any, seconds: int, group: str = GROUP) -> Any:  # noqa: ANN401
    return caller.call(
        "ChangeInvisibleDuration",
        group={"name": group},
        topic=received.topic,
        receipt_handle=received.system_properties.receipt_handle,
        message_id=received.system_properties.message_id,
        invisible_duration={"seconds": seconds},
    )


def end(caller: GrpcCaller, half: Any, resolution: str, source: str = "SOURCE_CLIENT") -> Any:  # noqa: ANN401
    return caller.call(
        "EndTransaction",
        topic={"name": HALVES},
        transaction_id=half.transaction_id,
        message_id=half.message_id,
        resolution=resolution,
        source=source,
    ).status.code


def test_what_was_open_goes_on(killed: Killed) -> None:
    """A receipt and a transaction's id count at the broker that serves now; it asks about what nothing ended."""
    opened = Open(killed)
    with GrpcCaller(killed.address(), "client@1") as caller:
        assert end(caller, opened.halves[b"committed"], "COMMIT") == OK
        assert end(caller, opened.halves[b"rolled back"], "ROLLBACK") == OK
        assert end(caller, opened.halves[b"asked"], "COMMIT") == OK, "by the id of before it was copied"
        stream = caller.produce(TOPIC, HALVES)
        asked = stream.receive().recover_orphaned_transaction_command
        assert asked.message.body == b"orphan"
        assert end(caller, opened.halves[b"orphan"], "COMMIT", "SOURCE_SERVER_CHECK") == OK
        with GrpcCaller(killed.address(), "consumer@1") as consumer:
            consumer.consume(GROUP, TOPIC, HALVES, kind="PUSH_CONSUMER")
            assert consumer.ack(GROUP, TOPIC, opened.processed).status.code == OK
            consumer.consume(FIFO_GROUP, FIFO, kind="PUSH_CONSUMER")
            assert [in_order(consumer) for _ in range(2)] == [b"2", b"3"]
            [shown] = received_by(consumer, TOPIC, 1)
            assert (shown.body, shown.system_properties.delivery_attempt) == (b"shown", 2)
            assert consumer.ack(GROUP, TOPIC, shown).status.code == OK
            ended = received_by(consumer, HALVES, 3)
            assert sorted(each.body for each in ended) == [b"asked", b"committed", b"orphan"]
            consumer.ack(GROUP, HALVES, *ended)
    with killed.connect() as connection:
        for topic in (TOPIC, HALVES):
            assert bodies(pop(connection, topic, consumerGroup=GROUP)) == []
