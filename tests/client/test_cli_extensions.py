"""The verbs that only FireArrow's brokers can serve: purge, trim, closing clients, status, history, own options."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ConsumeFromWhere, PullConsumerOptions
from firearrow.client.blocking import Producer, PullConsumer
from firearrow.client.cli.cluster.status import _rate
from firearrow.client.cli.cluster.top import _graph
from firearrow.client.cli.formats import real
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually

MESSAGES = 10
Firearrow = Callable[..., Ran]


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("extensions") / "store"
    with BrokerProcess(store, "--set", "brokerName=own", "--set", "fileReservedTime=71") as broker:
        assert broker.name_server is not None
        yield "{}:{}".format(*broker.name_server)


@pytest.fixture
def firearrow(name_server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Firearrow:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return lambda *words: here(*words, name_server=name_server)


@pytest.fixture
def topic(firearrow: Firearrow, name_server: str, request: pytest.FixtureRequest) -> str:
    """A topic with MESSAGES messages in the first of two queues."""
    name = request.node.name
    firearrow("topic", "create", name, "--queues", "2").succeeded()
    with Producer("sender", name_server=name_server) as producer:
        for number in range(MESSAGES):
            producer.send(Message(name, b"%d" % number), queue=MessageQueue(name, "own", 0))
    return str(name)


def first_offsets(firearrow: Firearrow, topic: str) -> list[int]:
    [shown] = firearrow("topic", "show", topic).rows
    return [queue["minOffset"] for queue in shown["queues"]]


def test_trim_by_offset(firearrow: Firearrow, topic: str) -> None:
    refused = firearrow("topic", "trim", topic, "--queue", "0", "--offset", "4")
    assert (refused.code, f"remove 4 messages of topic {topic}" in refused.err) == (2, True)
    planned = firearrow("topic", "trim", topic, "--queue", "0", "--offset", "4", "--dry-run")
    assert planned.rows == [{"broker": "own", "queueId": 0, "minOffset": 4, "maxOffset": 10, "trimmed": 4}]
    assert first_offsets(firearrow, topic) == [0, 0]
    done = firearrow("topic", "trim", topic, "--queue", "0", "--offset", "4", "--yes")
    assert done.rows == planned.rows
    assert first_offsets(firearrow, topic) == [4, 0]


def test_trim_by_time(firearrow: Firearrow, topic: str) -> None:
    nothing = firearrow("topic", "trim", topic, "--before", "-1h")
    assert (nothing.code, [row["trimmed"] for row in nothing.rows]) == (0, [0, 0])
    assert first_offsets(firearrow, topic) == [0, 0]
    firearrow("topic", "trim", topic, "--before", "+1h", "--yes").succeeded()
    assert first_offsets(firearrow, topic) == [MESSAGES, 0]


def test_purge(firearrow: Firearrow, topic: str) -> None:
    rows = firearrow("topic", "purge", topic, "--yes").rows
    assert [(row["queueId"], row["trimmed"]) for row in rows] == [(0, MESSAGES), (1, 0)]
    [shown] = firearrow("topic", "show", topic).rows
    assert shown["messages"] == 0
    assert firearrow("topic", "purge", "no-such-topic", "--yes").code == 1


def test_a_client_is_closed_by_its_id_and_by_its_address(
    firearrow: Firearrow, topic: str, name_server: str
) -> None:
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    with PullConsumer("closed", name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(5)

        def address_and_id() -> tuple[str, str]:
            rows = eventually(
                lambda: firearrow("clients", "list", "--group", "closed").rows,
                10,
                "the client does not come back",
            )
            assert rows[0]["sinceMs"] <= rows[0]["lastRequestMs"]
            return rows[0]["address"], rows[0]["clientId"]

        address, client_id = address_and_id()
        assert firearrow("clients", "close", client_id).code == 2
        assert firearrow("clients", "close", client_id, "--yes").rows == [{"client": client_id, "closed": 1}]
        again, same = address_and_id()
        assert (again != address, same) == (True, client_id)
        assert firearrow("clients", "close", again, "--yes").rows[0]["closed"] == 1
    assert firearrow("clients", "close", "nobody@here", "--yes").code == 1
    assert firearrow("clients", "close", "127.0.0.1:1", "--yes").code == 1


def test_the_status_has_all_that_the_broker_reports(firearrow: Firearrow) -> None:
    [row] = firearrow("status", "--long").rows
    assert row["status"]["ready"] is True
    assert row["trouble"] == []
    [short] = firearrow("status").rows
    assert "status" not in short


def test_one_broker_is_compared_with_the_defaults(firearrow: Firearrow) -> None:
    ran = firearrow("config", "diff")
    assert ran.code == 1
    assert {"broker": "own", "key": "fileReservedTime", "value": "71"} in ran.lines


def test_the_history_has_what_happened(firearrow: Firearrow, topic: str) -> None:
    """The broker adds to it every ten seconds."""
    rows = eventually(lambda: firearrow("top", "--since", "-10m").rows, 15, "there is no history")
    assert all(row["broker"] == "own" and row["stepMs"] > 0 for row in rows)
    assert any(value is not None for row in rows for value in row["values"])
    assert firearrow("top", "--since", "-10m", "--series", "no-such-series").rows == []


@pytest.mark.parametrize(
    ("reported", "rate"),
    [
        ("1.26 3.0 5.0", 1.3),
        ("0.0  ", 0.0),
        ("  ", None),  # an Apache broker in its first ten seconds
        ("", None),
        (None, None),
        ("NaN NaN NaN", None),
        ("a b c", None),
    ],
)
def test_the_first_rate_of_those_that_a_broker_reports(reported: str | None, rate: float | None) -> None:
    assert _rate(reported) == rate


def test_numbers_that_a_broker_reports() -> None:
    assert [real(text) for text in ("0.5", "-1", "1E3")] == [0.5, -1, 1000]
    assert [real(text) for text in (None, "", " ", "x", "NaN", "Infinity", "9" * 5000)] == [None] * 7


def test_a_graph() -> None:
    assert _graph([0.0, 3.5, 7.0]) == "▁▄█"
    assert _graph([None, 1.0]) == " █"
    assert _graph([0.0, 0.0]) == "▁▁"
    assert _graph([]) == ""
    assert len(_graph([1.0] * 1000)) == 30


def test_the_list_of_clients_has_neither_name_server_connections_nor_the_command_itself(
    firearrow: Firearrow, topic: str, name_server: str
) -> None:
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    with PullConsumer("listed", name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        assert consumer.poll(5)
        eventually(lambda: [row["groups"] for row in firearrow("clients", "list").rows] == [["listed"]])
        rows = firearrow("clients", "list").rows
        every = firearrow("clients", "list", "--all").rows
        assert len(every) >= len(rows) + 3, "two to the name server, and that of the command"
        assert [row["address"] for row in every if row["groups"]] == [rows[0]["address"]]
    eventually(lambda: firearrow("clients", "list").rows == [])


def test_options_are_compared_across_contexts(firearrow: Firearrow, name_server: str, tmp_path: Path) -> None:
    settings = ("brokerName=own", "brokerClusterName=Second", "fileReservedTime=71", "regionId=Elsewhere")
    words = [word for setting in settings for word in ("--set", setting)]
    with BrokerProcess(tmp_path / "store", *words) as other:
        assert other.name_server is not None
        for context, address in (("one", name_server), ("two", "{}:{}".format(*other.name_server))):
            firearrow("context", "add", context, "--namesrv", address).succeeded()
        ran = firearrow("config", "diff", "--context", "one", "--with", "two")
        assert ran.code == 1
        rows = {row["key"]: row for row in ran.lines}
        assert rows == {
            "regionId": {"key": "regionId", "one/own": "DefaultRegion", "two/own": "Elsewhere"},
        }
        with_all = firearrow("config", "diff", "--context", "one", "--with", "two", "--all")
        assert "brokerClusterName" in {row["key"] for row in with_all.lines}
        assert firearrow("config", "diff", "--with", "two").lines == ran.lines, (
            "the first context is the current one"
        )
        by_address = firearrow("config", "diff", "-n", name_server, "--with", "two").lines
        assert f"{name_server}/own" in by_address[0] or by_address == ran.lines
        assert firearrow("config", "diff", "--with", "three").code == 2
        assert firearrow("config", "diff", "--context", "one", "--with", "two", "--broker", "none").code == 1
        firearrow("config", "set", "regionId=DefaultRegion", "--context", "two", "--yes").succeeded()
        same = firearrow("config", "diff", "--context", "one", "--with", "two")
        assert (same.code, same.out) == (0, "")
