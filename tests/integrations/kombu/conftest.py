"""Connections of kombu to FireArrow's broker and to Apache's: the same tests run against both."""

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("kombu")

import kombu

import firearrow.client.integrations.kombu as _registers  # noqa: F401
from tests.interop.peers import LIFE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need

SETTINGS = LIFE | {"messageDelayLevel": "1s 1s 2s", "timerPrecisionMs": "100", "defaultTopicQueueNums": "4"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["firearrow", "apache"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker with its name server."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "apache":
        need(lambda: java_class_path("client5"))
        with Apache(folder / "store", SETTINGS) as apache:
            yield apache
    else:
        with FireArrow(folder / "store", SETTINGS | {"autoCreateTopicEnable": "false"}) as firearrow:
            yield firearrow


@pytest.fixture
def url(site: Peer) -> str:
    return f"rocketmq://{site.name_server}"


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., kombu.Connection]]:
    """`connect(**transport_options)`: an open connection, closed after the test."""
    opened: list[kombu.Connection] = []

    def make(**options: object) -> kombu.Connection:
        connection = kombu.Connection(url, transport_options=options)
        opened.append(connection)
        return connection

    yield make
    for connection in opened:
        connection.release()


@pytest.fixture
def name() -> str:
    """A queue that no other test uses."""
    return f"queue-{os.getpid()}-{next(_numbers)}"
