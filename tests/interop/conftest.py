"""One broker and one process of each client for the whole run; a test takes a topic of its own from `topics`.

`--against apache` runs the same tests against Apache's broker. Without the tools the part is skipped in one line, which
`FIREARROW_INTEROP=required` turns into a failure.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.driver import Driver
from tests.interop.peers import Apache, FireArrow, Peer
from tests.interop.workshop import FETCH_S, Unavailable, go_driver, java_class_path, missing

_numbers = itertools.count(1)
CLUSTER, BROKER = "DefaultCluster", "broker-a"
LIFE = {
    "messageDelayLevel": "1s 2s 1s 1s 1s 1h", "timerWheelEnable": "true", "recallMessageEnable": "true",
    "transactionCheckInterval": "1000", "transactionTimeOut": "1000", "enablePropertyFilter": "true",
    "traceTopicEnable": "true", "enableLmq": "true", "enableMultiDispatch": "true", "reviveInterval": "200",
}  # fmt: skip
"""Short delays and checks, and what a broker offers only if told to."""
MARKS_AT_ONCE = {"transactionOpBatchInterval": "100"}
"""Apache's broker writes the marks of decided transactions after 3 s, and asks about them again if it checks sooner."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against", choices=("firearrow", "apache"), default="firearrow", help="broker of the interop tests"
    )


_lacks: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the tools, leave these tests out and say so in one line (see `need` for the run that must have them).

    The first test of a client may have to fetch and build it, so all have time for that.
    """
    for item in items:
        if item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.timeout(FETCH_S + 120))
    if os.environ.get("FIREARROW_INTEROP") == "required":
        return
    left_out = []
    for item in items:
        if item.get_closest_marker("interop"):
            lack = missing("go") if item.name.endswith("[go]") else missing("java", "javac", "mvn")
            if lack is not None:
                _lacks.add(lack)
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish() -> str:
    """Empty if everything is there."""
    return f"interoperation skipped: {'; '.join(sorted(_lacks))}" if _lacks else ""


def need(prepare: Callable[[], object]) -> None:
    """Run `prepare`; skip if this machine lacks something, fail if it must not."""
    try:
        prepare()
    except Unavailable as lack:
        if os.environ.get("FIREARROW_INTEROP") == "required":
            pytest.fail(f"interoperation: {lack}", pytrace=False)
        pytest.skip(f"interoperation: {lack}")


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


class Drivers:
    """Client processes by name; each is started when a test first wants it."""

    def __init__(self, name_server: str, homes: Path) -> None:
        self.name_server = name_server
        self.homes = homes
        self.running: dict[str, Driver] = {}

    def __call__(self, name: str) -> Driver:
        if name not in self.running:
            need(
                go_driver
                if name == "go"
                else lambda: java_class_path({"java4": "client4"}.get(name, "client5"))
            )
            for other in list(self.running):
                self.running.pop(other).stop()
            self.running[name] = Driver(name, self.name_server, self.homes / f"{name}-{next(_numbers)}")
        return self.running[name]


@pytest.fixture(scope="session")
def drivers(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    drivers = Drivers(peer.name_server, tmp_path_factory.mktemp("homes"))
    yield drivers
    for driver in drivers.running.values():
        driver.stop()


@pytest.fixture(scope="module", params=["java5", "java4", "go"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


@pytest.fixture
def java_client(drivers: Drivers) -> Driver:
    return drivers("java5")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topic, group and members that no other test has."""
    return f"I{next(_numbers)}_{Path(request.node.nodeid.split('::')[1].split('[')[0]).name}"


@pytest.fixture
def cluster() -> str:
    return CLUSTER
