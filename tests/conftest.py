"""The broker that clients are set upon: ours, or with `--against apache` Apache's. One for the whole run."""

from collections.abc import Iterator

import pytest

from tests.interop.peers import BROKER, LIFE, MARKS_AT_ONCE, Apache, FireArrow, Peer
from tests.interop.workshop import java_class_path, need


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against", choices=("firearrow", "apache"), default="firearrow", help="broker of the clients' tests"
    )


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    store = tmp_path_factory.mktemp("interop") / "store"
    settings = {"autoCreateTopicEnable": "true", "brokerName": BROKER} | LIFE
    if request.config.getoption("--against", "firearrow") == "apache":
        need(lambda: java_class_path("client5"))
        with Apache(store, settings | MARKS_AT_ONCE) as apache:
            yield apache
    else:
        with FireArrow(store, settings) as ours:
            yield ours
