"""The broker that clients are tested against, one for a whole run: ours, or with `--against apache` Apache's."""

from collections.abc import Iterator

import pytest

from tests.interop.peers import BROKER, LIFE, MARKS_AT_ONCE, Apache, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.startup import QUICK_REVIVE


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    store = tmp_path_factory.mktemp("interop") / "store"
    settings = {"autoCreateTopicEnable": "true", "brokerName": BROKER} | LIFE
    if request.config.getoption("--against", "firearrow") == "apache":
        need(lambda: java_class_path("client5"))
        with Apache(store, settings | MARKS_AT_ONCE) as apache:
            yield apache
    else:
        with FireArrow(store, settings, QUICK_REVIVE) as ours:
            yield ours
