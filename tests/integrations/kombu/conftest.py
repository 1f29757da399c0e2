"""Connections of kombu to FireArrow's broker and to Apache's: the same tests run against both."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("kombu")

import kombu

import firearrow.client.integrations.kombu as _registers  # noqa: F401
from tests.interop.peers import LIFE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need

HERE = Path(__file__).parent
SETTINGS = LIFE | {"messageDelayLevel": "1s 1s 2s", "timerPrecisionMs": "100", "defaultTopicQueueNums": "4"}
ALWAYS_AT_APACHE = {
    "test_bodies_come_as_they_were_sent",
    "test_a_rejected_message_comes_again_and_is_marked",
    "test_a_fanout_reaches_every_queue_that_is_bound_to_it",
    "test_exchanges_route_by_key_and_by_pattern",
    "test_the_highest_priority_comes_first",
    "test_a_delayed_message_comes_when_it_is_due",
}
"""The others run against Apache's broker with `--long`."""
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == HERE and hasattr(item, "callspec"):
            is_at_apache = item.callspec.params.get("site") == "apache"
            if is_at_apache and item.originalname not in ALWAYS_AT_APACHE:
                item.add_marker(pytest.mark.long)


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
