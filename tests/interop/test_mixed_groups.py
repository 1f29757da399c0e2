"""Members in Python, Java and Go share one group: the same queues by the same rule, joining and leaving under load."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver
from tests.interop.messages import hexed
from tests.interop.peers import Peer, address
from tests.interop.toolchain import go_driver, java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.requests import topic_ext

pytestmark = pytest.mark.interop
LANGUAGES = ("python", "java5", "go")
QUEUES = 10


@pytest.fixture(scope="module")
def members(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """One process of each language."""
    need(lambda: java_class_path("client5"))
    need(go_driver)
    homes = tmp_path_factory.mktemp("members")
    drivers: dict[str, Driver] = {}
    try:
        for language in LANGUAGES:
            drivers[language] = Driver(language, peer.name_server, homes / language)
        yield drivers
    finally:
        for driver in drivers.values():
            driver.stop()


@pytest.fixture
def topic(peer: Peer, name: str) -> str:
    with ClientSocket(address(peer.address)) as connection:
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(name, QUEUES)).code == 0
    return name


def share(count: int, of: int) -> list[list[int]]:
    """AVG: the blocks of queues, in the order of the members."""
    each, more = divmod(count, of)
    sizes = [each + (member < more) for member in range(of)]
    ends = list(itertools.accumulate(sizes))
    return [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def held(driver: Driver, member: str, topic: str, count: int) -> list[int]:
    return sorted(
        event["queueId"]
        for event in driver.ask("awaitQueues", name=member, topic=topic, count=count, seconds=60)
    )


def test_queues_are_split_by_the_same_rule(members: dict[str, Driver], topic: str) -> None:
    """Client ids begin with the address, then the name: so the names decide the order."""
    members["python"].ask("send", group=topic, topic=topic, body=hexed("first"), how="queue", queue=0)
    order = [
        (f"{topic}-{letter}", language)
        for letter, language in zip("abc", ("go", "python", "java5"), strict=True)
    ]
    for name, language in order:
        members[language].ask("consume", name=name, group=topic, topic=topic)
    for (name, language), queues in zip(order, share(QUEUES, 3), strict=True):
        assert held(members[language], name, topic, len(queues)) == queues
    members["go"].ask("stop", name=order[0][0])
    for (name, language), queues in zip(order[1:], share(QUEUES, 2), strict=True):
        assert held(members[language], name, topic, len(queues)) == queues
    members["java5"].ask("stop", name=order[2][0])
    assert held(members["python"], order[1][0], topic, QUEUES) == list(range(QUEUES))
    members["python"].ask("stop", name=order[1][0])


@contextmanager
def load(peer: Peer, topic: str, homes: Path) -> Iterator[list[str]]:
    """A producer sends all the time; the bodies that were stored."""
    bodies: list[str] = []
    ended = threading.Event()
    with Driver("python", peer.name_server, homes) as sender:

        def send() -> None:
            for number in itertools.count():
                if ended.wait(0.02):
                    return
                body = hexed(*(f"load {number} {part}" for part in range(10)))
                sender.ask("send", group=f"{topic}-load", topic=topic, body=body)
                bodies.extend(body)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield bodies
        finally:
            ended.set()
            thread.join(30)


def test_joining_and_leaving_under_load_loses_nothing(
    members: dict[str, Driver], peer: Peer, topic: str, tmp_path: Path
) -> None:
    """Only queues that changed owners have duplicates; each member that was stopped has committed its offsets."""
    names = {language: f"{topic}-{language}" for language in LANGUAGES}

    def join(language: str) -> None:
        members[language].ask("consume", name=names[language], group=topic, topic=topic)

    def leave(language: str) -> None:
        members[language].ask("stop", name=names[language])

    def got() -> Counter[str]:
        return Counter(
            event["body"] for language in LANGUAGES for event in members[language].consumed(names[language])
        )

    with load(peer, topic, tmp_path) as bodies:
        for change, language, count in (
            (join, "python", QUEUES),
            (join, "java5", 5),
            (join, "go", None),
            (leave, "java5", 5),
            (leave, "python", None),
            (join, "python", 5),
        ):
            change(language)
            if count is not None:
                held(members["python"], names["python"], topic, count)
    wanted = set(bodies)
    deadline = time.monotonic() + 60
    while missing := wanted - got().keys():
        assert time.monotonic() < deadline, f"{len(missing)} of {len(wanted)} did not come"
        time.sleep(0.05)
    for language in ("python", "go"):
        leave(language)
    repeated = sum(times - 1 for times in got().values())
    assert len(wanted) > 100
    assert repeated <= 5 * 32 * QUEUES, f"{repeated} of {len(wanted)} came again"
