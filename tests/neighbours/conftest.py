"""The brokers that neighbours are run against: ours, and Apache's 5.5.0, which shows that a program is right."""

from collections.abc import Iterator

import pytest

from tests.interop.peers import LIFE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.startup import QUICK_REVIVE

SETTINGS = {"autoCreateTopicEnable": "true"} | LIFE


@pytest.fixture(scope="session", params=["firearrow", pytest.param("apache", marks=pytest.mark.long)])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    store = tmp_path_factory.mktemp("neighbours") / "store"
    if request.param == "firearrow":
        with FireArrow(store, SETTINGS, QUICK_REVIVE) as ours:
            yield ours
    else:
        need(lambda: java_class_path("client5"))
        with Apache(store, SETTINGS) as apache:
            yield apache
