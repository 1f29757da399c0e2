"""Light message queues (LMQ)."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed, pull_all
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def test_one_message_in_lmqs(client: Driver, peer: Peer, name: str) -> None:
    """Stored once, found in its own queue and in each LMQ that it names."""
    lmqs = [f"%LMQ%{name}-1", f"%LMQ%{name}-2"]
    bodies = hexed("both", "both again")
    client.ask(
        "send",
        group=name,
        topic=name,
        how="queue",
        queue=1,
        body=bodies,
        **{"system.INNER_MULTI_DISPATCH": ",".join(lmqs)},
    )
    assert [event["body"] for event in pull_all(client, name, 1)] == bodies
    with ClientSocket(address(peer.address)) as connection:
        for lmq in lmqs:
            found = pull(connection, lmq)
            assert [record.body.hex() for record in records(found.body)] == bodies
            assert found.ext["nextBeginOffset"] == "2"
