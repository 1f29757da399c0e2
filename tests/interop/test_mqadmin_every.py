"""Every command of Apache's own mqadmin 5.5.0, in one JVM: what it prints of our broker as of Apache's."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.commands import COMMANDS
from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.peers import CLUSTER, Peer

pytestmark = pytest.mark.interop

TOPIC, GROUP, MEMBER = "EveryTopic", "EveryGroup", "EveryMember"
ALL = 94
"""Commands of 5.5.0 except `clusterRT` and `startMonitoring`, which never end."""


def printed(driver: Driver, line: str) -> str:
    [output] = driver.ask("mqadmin", argument=line.split())
    return str(output["text"])


def prepare(driver: Driver) -> dict[str, str]:
    """Four messages in queue 0, consumed by one member; what the commands' lines need to know of them."""
    printed(driver, f"updateTopic -c {CLUSTER} -t {TOPIC} -r 2 -w 2")
    bodies = [f"body {number}".encode().hex() for number in range(4)]
    first, *_ = driver.ask(
        "send",
        group="EveryProducer",
        topic=TOPIC,
        how="queue",
        queue=0,
        tags="red",
        keys="key-7",
        body=bodies,
    )
    driver.ask("consume", name=MEMBER, group=GROUP, topic=TOPIC)
    driver.await_bodies([MEMBER], bodies)
    deadline = time.monotonic() + 40  # it commits its offsets 10 s after its start, then every 5 s
    while not re.search(rf"{TOPIC} +\S+ +0 +4 +4 ", printed(driver, f"consumerProgress -g {GROUP}")):
        assert time.monotonic() < deadline, "the member does not commit its offsets"
        time.sleep(0.2)
    client = re.search(rf"\S+@{MEMBER}", printed(driver, f"consumerConnection -g {GROUP}"))
    assert client is not None
    return {"t": TOPIC, "g": GROUP, "c": client[0], "m": first["offsetMsgId"], "u": first["msgId"]}


def test_every_command_is_there() -> None:
    assert len({command.line.split()[0] for command in COMMANDS}) == ALL


@pytest.fixture
def fresh(drivers: Drivers, peer: Peer, tmp_path: Path) -> Iterator[Driver]:
    """A separate JVM: some commands keep a client that they cannot start again."""
    drivers("java5")
    driver = Driver("java5", peer.name_server, tmp_path / "home")
    yield driver
    driver.stop()


def test_every_command(fresh: Driver, peer: Peer, tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text(
        '[{"topicName":"EveryListed","readQueueNums":2,"writeQueueNums":2,"perm":6}]'
    )
    (tmp_path / "groups.json").write_text('[{"groupName":"EveryListed","consumeEnable":true}]')
    driver = fresh
    fields = prepare(driver) | {"b": peer.address, "n": peer.name_server, "f": str(tmp_path)}
    quoted = {name: re.escape(value) for name, value in fields.items()}
    wrong = []
    for command in COMMANDS:
        wanted = command.apache if peer.kind == "apache" and command.apache else command.prints
        text = printed(driver, command.line.format(**fields))
        if not re.search(wanted.format(**quoted), text):
            wrong.append(f"{command.line}: no {wanted!r} in\n{text[:1500]}")
    driver.ask("stop", name=MEMBER)
    assert not wrong, "\n\n".join(wrong)
