"""No memory: what is too large is refused or disconnected; the process lives and serves the others."""

import contextlib
import resource
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send_ext

MIB = 1 << 20
LARGE, CROWD = 3 * MIB, 12
SMALL = ("--set", "mappedFileSizeCommitLog=16777216", "--set", "mappedFileSizeConsumeQueue=20000")


def ask(connection: ClientSocket) -> int | None:
    """Send a large message; None if the broker closed before it was sent."""
    try:
        return connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("Large"), bytes(LARGE))
    except ConnectionError:
        return None


def code_of(connection: ClientSocket, opaque: int | None) -> int | None:
    try:
        return None if opaque is None else connection.answer_to(opaque).code
    except ConnectionError:
        return None


def address_space(broker: BrokerProcess) -> int:
    pages = int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def test_a_large_request_without_memory_for_it(tmp_path: Path) -> None:
    acknowledged = AcknowledgedMessages()
    with BrokerProcess(tmp_path / "store", *SMALL) as broker, broker.connect() as small:
        assert acknowledged.send(small, "M") == 0
        acknowledged.check(small)
        limit = address_space(broker) + MIB
        resource.prlimit(broker.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        with contextlib.ExitStack() as crowd:
            asked = [(one, ask(one)) for one in (crowd.enter_context(broker.connect()) for _ in range(CROWD))]
            acknowledged.send(small, "M")
            codes = [code_of(one, opaque) for one, opaque in asked]
        assert set(codes) - {0}, "the limit was not felt"
        acknowledged.check(small)
        resource.prlimit(
            broker.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        eventually(lambda: acknowledged.send(small, "M") == 0)
        with broker.connect() as large:
            assert acknowledged.send(large, "M", LARGE) == 0
        acknowledged.check(small)
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "store", *SMALL) as broker, broker.connect() as connection:
        acknowledged.check(connection)
