"""`firearrow status`: versions of broker and protocol, disk by topic, when it is full, what waits longest."""

import sys
from collections.abc import Iterator

import pytest

from firearrow._native.base.command_line import version
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.metrics.status import Status
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here, on_terminal
from tests.support.consumer_groups import commit, make_group
from tests.support.requests import send, topic_ext

SIZES = {"large": 40_000, "small": 100}
MESSAGES = 50


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("status") / "store") as broker, broker.connect() as connection:
        for topic, size in SIZES.items():
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2)).code == 0
            for number in range(MESSAGES):
                assert send(connection, topic, b"x" * (size + number), 1).code == 0
        for group in ("done", "behind"):
            make_group(connection, group)
        commit(connection, "done", "small", 1, MESSAGES)
        commit(connection, "behind", "large", 1, MESSAGES - 2)
        assert broker.name_server is not None
        yield "{}:{}".format(*broker.name_server)


def test_a_broker_of_firearrow(name_server: str) -> None:
    [row] = here("status", name_server=name_server).rows
    assert (row["server"], row["version"], row["protocol"]) == ("FireArrow", version(sys.path), "5.5.0")
    assert (row["unread"], row["oldestUnreadGroup"]) == (2, "behind")
    assert 0 < row["oldestUnreadMs"] < 600_000
    assert row["diskFullMs"] is None or row["diskFullMs"] > 0
    topics = {each["topic"]: each for each in row["topics"]}
    assert row["topics"][0]["topic"] == "large"
    for topic, size in SIZES.items():
        assert topics[topic]["messages"] == MESSAGES
        exact = sum(size + number for number in range(MESSAGES))
        assert exact < topics[topic]["bytes"] < exact + 300 * MESSAGES


def test_on_a_terminal(name_server: str) -> None:
    code, shown = on_terminal("status", "-n", name_server)
    assert code == 0
    for text in ("FireArrow", "PROTOCOL", "FULL IN", "OLDEST UNREAD", "DISK", "large", "small"):
        assert text in shown


@pytest.mark.parametrize(("seconds", "wanted"), [(float("inf"), None), (1.5, 1500), (0.0, 0)])
def test_when_the_disk_is_full(seconds: float, wanted: int | None) -> None:
    asked = Status.__new__(Status)
    asked._seconds_left = lambda free_bytes: seconds
    assert asked._full_in_ms(1) == wanted
