"""What gRPC needs is loaded when its first client connects: other brokers have none of it."""

from pathlib import Path

from firearrow.broker.grpc import messages
from tests.support.broker_process import BrokerProcess
from tests.support.grpc_caller import GrpcCaller, create_topic
from tests.support.requests import send

PARTS = ("libnghttp2", "/google/", "_native/http2/", "_native/grpc/")


def loaded(broker: BrokerProcess) -> list[str]:
    """Which of the parts the process has in its memory."""
    maps = Path(f"/proc/{broker.process.pid}/maps").read_text()
    return [part for part in PARTS if part in maps]


def test_a_broker_without_clients_of_grpc_has_none_of_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with broker.connect() as connection:
            create_topic(connection, "T")
            assert send(connection, "T", b"x").code == 0
        assert loaded(broker) == []
        with GrpcCaller(broker.address) as caller:
            assert caller.send("T", b"x").status.code == messages.CODES["OK"]
        assert loaded(broker) == list(PARTS)
        assert broker.stop() == 0
