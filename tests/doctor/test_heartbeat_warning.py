"""Members of a group that subscribe differently are named in the broker's log, once for each change."""

import json
import time
from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.doctor.heartbeats import beat
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket

WARNING = "its members subscribe differently"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("warning") / "store") as running:
        yield running


@pytest.fixture
def a(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


@pytest.fixture
def b(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


def warnings(broker: BrokerProcess, group: str, count: int = 1) -> list[str]:
    """Those in the log, which a thread writes, as soon as there are `count`."""
    deadline = time.monotonic() + 10
    while True:
        lines = broker.log.read_text().splitlines()
        found = [line for line in lines if f"group {group}:" in line and WARNING in line]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


def differences(connection: ClientSocket, group: str) -> list[dict[str, object]]:
    facts = json.loads(connection.ask(RequestCode.GET_MACHINE).body)
    return next((each["members"] for each in facts["differences"] if each["group"] == group), [])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"orders": "TagA"}, {"orders": "TagB"}),
        ({"orders": "*"}, {"orders": "*", "bills": "*"}),
        ({"orders": "*"}, {"bills": "*"}),
    ],
)
def test_the_log_names_what_each_client_subscribes_to(
    broker: BrokerProcess, a: ClientSocket, b: ClientSocket, one: dict[str, str], other: dict[str, str]
) -> None:
    group = "G" + "-".join([*one, *other, *other.values()]).replace("*", "all")
    for _ in range(3):
        beat(a, group, "client-a", one)
        beat(b, group, "client-b", other)
    (line,) = warnings(broker, group)
    assert "'client-a'" in line
    assert "'client-b'" in line
    for topic, expression in (*one.items(), *other.items()):
        assert f"{topic} {expression}" in line
    assert [each["clients"] for each in differences(a, group)] == [["client-a"], ["client-b"]]


def test_members_that_subscribe_alike_are_not_warned_of(
    broker: BrokerProcess, a: ClientSocket, b: ClientSocket
) -> None:
    """Whatever the order of topics and tags."""
    beat(a, "Alike", "client-a", {"orders": "A||B", "bills": "*"})
    beat(b, "Alike", "client-b", {"bills": "", "orders": "B || A", "%RETRY%Alike": "*"})
    beat(a, "After", "client-a", {"orders": "A"})
    beat(b, "After", "client-b", {"orders": "B"})
    assert warnings(broker, "After"), "the log has everything before it"
    assert not warnings(broker, "Alike", 0)
    assert not differences(a, "Alike")


def test_models_that_differ_are_warned_of(broker: BrokerProcess, a: ClientSocket, b: ClientSocket) -> None:
    beat(a, "Models", "client-a", {"orders": "*"})
    beat(b, "Models", "client-b", {"orders": "*"}, model="BROADCASTING")
    (line,) = warnings(broker, "Models")
    assert "CLUSTERING orders *" in line
    assert "BROADCASTING orders *" in line


def test_a_member_that_leaves_ends_the_difference(broker: BrokerProcess, a: ClientSocket) -> None:
    beat(a, "Leaves", "client-a", {"orders": "A"})
    for _ in range(2):  # it comes and goes: that is no change
        with broker.connect() as b:
            beat(b, "Leaves", "client-b", {"orders": "B"})
            assert differences(a, "Leaves")
            ext = {"clientID": "client-b", "consumerGroup": "Leaves"}
            assert b.ask(RequestCode.UNREGISTER_CLIENT, ext).code == 0
        assert not differences(a, "Leaves")
    assert len(warnings(broker, "Leaves")) == 1


def test_hostile_names_do_not_reach_the_log_as_they_are(
    broker: BrokerProcess, a: ClientSocket, b: ClientSocket
) -> None:
    beat(a, "Hostile", "client\n\x1b[2J" + "x" * 900, {"orders": "A"})
    beat(b, "Hostile", "client-b", {"orders": "B\n\x1b[2J" + "y" * 9000})
    (line,) = warnings(broker, "Hostile")
    assert line.isprintable()
    assert len(line) < 1000
