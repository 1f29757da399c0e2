"""Each async test runs in a separate loop, with its own topics and groups at the broker of the whole run."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.rebalance import rebalance
from firearrow.client.remoting import client_instance
from tests.client.raw_producer import RawProducer
from tests.interop.peer_fixture import peer
from tests.interop.peers import Peer, address
from tests.support.async_tests import pytest_pyfunc_call
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually

__all__ = ["peer", "pytest_pyfunc_call"]

_numbers = itertools.count(1)


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    """A consumer begins at once, not up to 1.5 s after its start: Java's waits keep rounds few, and order nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_instance, "REBALANCE_GAP_S", 0.05)
        patch.setattr(rebalance, "BEGIN_AFTER_S", 0.02)
        yield


@pytest.fixture(scope="session")
def name_server(peer: Peer) -> str:
    """`host:port` of the name server of a real broker."""
    return peer.name_server


@pytest.fixture
def feeder(peer: Peer) -> RawProducer:
    return RawProducer(peer)


def unique(prefix: str) -> str:
    """A unique name."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topics(peer: Peer) -> Callable[..., str]:
    """`topics(queues=4, message_type="TRANSACTION")`: a new topic; other names are attributes (`+message.type`)."""

    def make(queues: int = 4, message_type: str | None = None) -> str:
        name = unique("topic")
        ext = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        if message_type is not None:
            ext["attributes"] = f"+message.type={message_type}"
        with ClientSocket(address(peer.address)) as connection:
            answer = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
        assert answer.code == 0, answer.remark
        _await_route(peer, name)
        return name

    return make


def _await_route(peer: Peer, topic: str) -> None:
    """Apache's broker reports to its name server a moment later."""
    with ClientSocket(address(peer.name_server)) as connection:
        ext = {"topic": topic}
        eventually(lambda: connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext).code == 0, what=topic)
