"""What clients of gRPC are processing when a slave is promoted: it goes on with the copy of the master's handles, and
with what the log has since."""

from pathlib import Path

from firearrow.broker.grpc import messages
from tests.replication.promoted_pair import PromotedPair, is_master, promoted
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic, renewed, saved

OK = messages.CODES["OK"]


def test_a_promoted_slave_goes_on_with_what_is_renewed(tmp_path: Path) -> None:
    with PromotedPair(tmp_path) as pair:
        with pair.master.connect() as connection:
            create_topic(connection, "T", queues=1)
            create_group(connection, "G")
        with GrpcCaller(pair.master.address, "client@1") as caller:
            caller.consume("G", "T", kind="PUSH_CONSUMER")
            caller.send("T", b"0", b"1", b"2")
            received = sorted(caller.receive("G", "T", auto_renew=True), key=lambda each: int(each.body))
            eventually(lambda: saved(pair.slave.store) == [0, 1, 2])
            copied = (pair.slave.store / "config" / "receiptHandles.json").read_bytes()
            assert caller.ack("G", "T", received[0]).status.code == OK
            pair.caught_up()
            pair.master.kill()
        assert promoted(pair.slave).code == 0
        with pair.slave.connect() as connection:
            assert is_master(connection)
            eventually(lambda: renewed(connection) == 2, what=copied)
            with GrpcCaller(pair.slave.address, "client@1") as caller:
                caller.consume("G", "T", kind="PUSH_CONSUMER")
                assert caller.ack("G", "T", *received[1:]).status.code == OK
                assert renewed(connection) == 0
        assert "Traceback" not in pair.slave.log.read_text()
