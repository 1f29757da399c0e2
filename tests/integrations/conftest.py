"""The brokers that the integrations run against: FireArrow's and Apache's, each started once for the whole run."""

import itertools
import os
from collections.abc import Iterator

import pytest

from firearrow.client.rebalance import rebalance
from firearrow.client.remoting import client_instance
from tests.interop.peers import LIFE, MARKS_AT_ONCE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.async_tests import pytest_pyfunc_call
from tests.support.startup import QUICK_REVIVE

__all__ = ["pytest_pyfunc_call"]
SETTINGS = LIFE | {"autoCreateTopicEnable": "true"}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def firearrow_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with FireArrow(tmp_path_factory.mktemp("firearrow") / "store", SETTINGS, QUICK_REVIVE) as firearrow:
        yield firearrow


@pytest.fixture(scope="session")
def apache_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need(lambda: java_class_path("client5"))
    with Apache(tmp_path_factory.mktemp("apache") / "store", SETTINGS | MARKS_AT_ONCE) as apache:
        yield apache


@pytest.fixture(params=["firearrow", pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.long])])
def site(request: pytest.FixtureRequest) -> Peer:
    """FireArrow's broker, and Apache's with --long."""
    peer: Peer = request.getfixturevalue(f"{request.param}_site")
    return peer


@pytest.fixture(params=["firearrow", pytest.param("apache", marks=pytest.mark.interop)])
def every_site(request: pytest.FixtureRequest) -> Peer:
    """FireArrow's broker and Apache's in every run: the short form of what `site` tries."""
    peer: Peer = request.getfixturevalue(f"{request.param}_site")
    return peer


@pytest.fixture
def name() -> str:
    """A queue and group that no other test uses."""
    return f"queue-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def name_server(site: Peer) -> str:
    return site.name_server


@pytest.fixture
def topic() -> str:
    return unique("topic")


def unique(prefix: str) -> str:
    """A unique name."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    """A consumer begins at once, not up to 1.5 s after its start: Java's waits keep rounds few, and order nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_instance, "REBALANCE_GAP_S", 0.05)
        patch.setattr(rebalance, "BEGIN_AFTER_S", 0.02)
        yield
