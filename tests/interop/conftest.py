"""One broker and one process of each client for the whole run; a test takes its own topic from `topics`.

`--against apache` runs the same tests against Apache's broker. Without the tools these tests are skipped in one line,
which `FIREARROW_INTEROP=required` turns into a failure.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.interop.driver import JVMS, Driver
from tests.interop.peer_fixture import peer
from tests.interop.peers import CLUSTER, Peer
from tests.interop.toolchain import FETCH_S, go_driver, java_class_path, missing, need

__all__ = ["peer"]

TOOLS = {"go": ("go",), "node": ("node", "npm"), "rust": ("cargo",)}
_numbers = itertools.count(1)
_lacks: set[str] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without the tools, skip these tests with one line of output (see `need` for the run that must have them).

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
            lack = _lack(item.name)
            if lack is not None:
                _lacks.add(lack)
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_report_collectionfinish() -> str:
    """Empty if everything is there."""
    return f"interoperation skipped: {'; '.join(sorted(_lacks))}" if _lacks else ""


def _lack(test: str) -> str | None:
    """What is missing on this machine for this test."""
    if test.endswith(("python]", "cpp]")):
        return None
    client = test.removesuffix("]").replace("[", "-").rpartition("-")[2]
    return missing(*TOOLS.get(client, ("java", "javac", "mvn")))


class Drivers:
    """Client processes by name; each is started when a test first needs it, and stops while others are needed."""

    def __init__(self, name_server: str, homes: Path) -> None:
        self.name_server = name_server
        self.homes = homes
        self.running: dict[str, Driver] = {}

    def __call__(self, name: str) -> Driver:
        for other in set(self.running) - {name}:
            if not self.running[other].rest():
                del self.running[other]
        if name not in self.running:
            if name == "go":
                need(go_driver)
            elif name != "python":
                need(lambda: java_class_path(JVMS[name]))
            self.running[name] = Driver(name, self.name_server, self.homes / f"{name}-{next(_numbers)}")
        return self.running[name]


@pytest.fixture(scope="session")
def drivers(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    drivers = Drivers(peer.name_server, tmp_path_factory.mktemp("homes"))
    yield drivers
    for driver in drivers.running.values():
        driver.stop()


Clients = Callable[[str, tuple[str, str] | None], tuple[Driver, dict[str, str]]]
"""Name, and access key and secret key → a client, and parameters that its operations need."""


@contextmanager
def clients(peer: Peer, drivers: Drivers, home: Path) -> Iterator[Clients]:
    """Of this broker. A JVM, which takes long to start, is that of all tests; its operations name broker and keys."""
    with ExitStack() as stack:

        def client(name: str, keys: tuple[str, str] | None) -> tuple[Driver, dict[str, str]]:
            if name not in JVMS:
                return stack.enter_context(Driver(name, peer.name_server, home / name, keys)), {}
            driver = drivers(name)
            stack.callback(driver.ask, "rest")
            signed = {} if keys is None else {"accessKey": keys[0], "secretKey": keys[1]}
            return driver, {"nameServer": peer.name_server} | signed

        yield client


EVERY_CLIENT = ("java5", "java4", "go", "python")
"""For what differs between clients, such as the bytes of their headers."""


@pytest.fixture(
    scope="module",
    params=[
        "java5",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("java4", "go")),
        "python",
    ],
)
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


@pytest.fixture
def java_client(drivers: Drivers) -> Driver:
    return drivers("java5")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A unique name for topic, group and members."""
    return f"I{next(_numbers)}_{Path(request.node.nodeid.split('::')[1].split('[')[0]).name}"


@pytest.fixture
def cluster() -> str:
    return CLUSTER
