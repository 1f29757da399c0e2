"""The command line against our broker, Apache's 5.5.0 and 4.9.7: what Apache's protocol can say works at all."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.blocking import Producer, PushConsumer
from tests.interop.peers import BROKER, LIFE, MARKS_AT_ONCE, Apache, Apache4, FireArrow, Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.command_line import Ran, here
from tests.support.eventually import eventually

Firearrow = Callable[..., Ran]
SETTINGS = LIFE | {"autoCreateTopicEnable": "true", "brokerName": BROKER}
KINDS = {
    "apache": (Apache, SETTINGS | MARKS_AT_ONCE),
    "apache4": (Apache4, {"autoCreateTopicEnable": "true"}),
}
APACHES = [
    pytest.param("apache", marks=pytest.mark.interop),
    pytest.param("apache4", marks=[pytest.mark.interop, pytest.mark.long]),
]
QUEUES, MESSAGES = 4, 40
STORES_SOON = 0.2
"""Seconds between two times that members store their offsets"""


@pytest.fixture(scope="module", params=["firearrow", *APACHES])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    store = tmp_path_factory.mktemp("command-line") / "store"
    if request.param == "firearrow":
        with FireArrow(store, SETTINGS) as ours:
            yield ours
    else:
        kind, settings = KINDS[request.param]
        need(lambda: java_class_path(kind.program))
        with kind(store, settings) as apache:
            yield apache


@pytest.fixture
def firearrow(broker: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Firearrow:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return lambda *words: here(*words, name_server=broker.name_server)


@pytest.fixture(scope="module")
def sent(broker: Peer) -> str:
    """A topic with MESSAGES messages in QUEUES queues."""
    made = here("topic", "create", "sent", "--queues", str(QUEUES), name_server=broker.name_server)
    assert made.rows == [{"topic": "sent", "brokers": [BROKER]}]
    with Producer("sent-producer", name_server=broker.name_server) as producer:
        for number in range(MESSAGES):
            producer.send(Message("sent", b"%d" % number, tags="even" if number % 2 == 0 else "odd"))
    return "sent"


def member(
    broker: Peer, group: str, topic: str, tags: str | None = None, seen: list[bytes] | None = None
) -> PushConsumer:
    """A member that begins at the first message; to be used in `with`."""
    consumer = PushConsumer(
        group,
        client=ClientOptions(name_server=broker.name_server, persist_offsets_s=STORES_SOON),
        options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    into = [] if seen is None else seen
    consumer.subscribe(topic, lambda messages: into.extend(each.body for each in messages), tags=tags)
    return consumer


def lag(firearrow: Firearrow, group: str, topic: str) -> int:
    """-1: there is no such group yet."""
    rows = firearrow("group", "lag", group, topic).lines
    return sum(row["lag"] for row in rows) if rows else -1


def offsets(firearrow: Firearrow, group: str, topic: str) -> list[int]:
    return [row["consumerOffset"] for row in firearrow("group", "lag", group, topic).rows]


# ---- topic ----


def test_a_topic_is_created_once_and_changed(firearrow: Firearrow, broker: Peer) -> None:
    has_types = broker.kind != "apache4"
    made = firearrow("topic", "create", "made", "--queues", "3", "--read-queues", "5", "--type", "FIFO")
    assert made.rows == [{"topic": "made", "brokers": [BROKER]}]
    again = firearrow("topic", "create", "made")
    assert again.code == 1
    assert "topic set" in again.err
    changed = firearrow("topic", "set", "made", "--perm", "w", "--queues", "6", "--yes").rows
    wanted = {
        "broker": BROKER,
        "readQueues": 6,
        "writeQueues": 6,
        "perm": "w",
        "type": "FIFO" if has_types else "UNSPECIFIED",
        "order": False,
        "attributes": ["message.type=FIFO"] if has_types else [],
    }
    assert changed == [wanted]
    [shown] = firearrow("topic", "show", "made").rows
    assert shown["brokers"] == [wanted]
    assert firearrow("topic", "delete", "made", "--yes").rows == [{"topic": "made", "deleted": True}]
    assert firearrow("topic", "delete", "made", "--yes").code == 1
    assert firearrow("topic", "show", "made").code == 1


def test_a_change_that_loses_messages_needs_a_yes(firearrow: Firearrow, sent: str) -> None:
    hidden = firearrow("topic", "set", sent, "--read-queues", "1")
    assert (hidden.code, hidden.lines[0]["queues"]) == (1, QUEUES - 1)
    assert "--force" in hidden.err
    refused = firearrow("topic", "set", sent, "--read-queues", "1", "--force")
    assert refused.code == 2
    assert "--yes" in refused.err
    planned = firearrow("topic", "set", sent, "--read-queues", "1", "--dry-run")
    assert (planned.code, [row["readQueues"] for row in planned.lines]) == (1, [1])
    assert "--force" in planned.err
    [shown] = firearrow("topic", "show", sent).rows
    assert shown["brokers"][0]["readQueues"] == QUEUES


def test_topics_are_listed(firearrow: Firearrow, sent: str) -> None:
    names = [row["topic"] for row in firearrow("topic", "list").rows]
    assert sent in names
    assert not {"TBW102", "DefaultCluster", BROKER, "DefaultCluster_REPLY_TOPIC"} & set(names)
    everything = [row["topic"] for row in firearrow("topic", "list", "--all").rows]
    assert {"TBW102", sent} <= set(everything)
    [row] = [row for row in firearrow("topic", "list", "--long").rows if row["topic"] == sent]
    assert (row["queues"], row["messages"], row["brokers"]) == (QUEUES, MESSAGES, [BROKER])


def test_a_topic_is_shown(firearrow: Firearrow, sent: str) -> None:
    [shown] = firearrow("topic", "show", sent).rows
    assert shown["messages"] == MESSAGES
    assert [queue["queueId"] for queue in shown["queues"]] == list(range(QUEUES))
    assert sum(queue["maxOffset"] for queue in shown["queues"]) == MESSAGES
    assert all(queue["lastMs"] > 0 for queue in shown["queues"])


def test_delete_asks(firearrow: Firearrow, sent: str) -> None:
    refused = firearrow("topic", "delete", sent)
    assert refused.code == 2
    assert f"delete topic {sent} with its {MESSAGES} messages" in refused.err
    assert firearrow("topic", "delete", sent, "--dry-run").code == 0
    assert firearrow("topic", "show", sent).code == 0


# ---- group ----


def test_a_group_is_listed_shown_and_deleted(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with member(broker, "listed", sent) as consumer:
        eventually(lambda: lag(firearrow, "listed", sent) == 0)
        [row] = [row for row in firearrow("group", "list", "--long").rows if row["group"] == "listed"]
        assert (row["members"], row["type"], row["model"], row["lag"]) == (
            1,
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            0,
        )
        [shown] = firearrow("group", "show", "listed").rows
        assert (shown["members"], shown["lag"], shown["consuming"]) == (1, 0, True)
        assert [topic["topic"] for topic in shown["topics"] if not topic["topic"].startswith("%")] == [sent]
        [found] = firearrow("group", "members", "listed").rows
        assert found["clientId"] == consumer.client_id
        assert (found["language"], found["version"]) == ("PYTHON", "5.5.0")
        assert "listed" in firearrow("topic", "show", sent).rows[0]["groups"]
    asked = firearrow("group", "delete", "listed")
    assert (asked.code, "delete group listed" in asked.err) == (2, True)
    assert firearrow("group", "delete", "listed", "--topics", "--yes").rows[0]["deleted"] is True
    assert firearrow("group", "delete", "listed", "--yes").code == 1
    assert firearrow("group", "show", "listed").code == 1
    assert firearrow("group", "members", "listed").code == 1


def test_a_group_is_moved_without_members(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with member(broker, "moved", sent):
        eventually(lambda: lag(firearrow, "moved", sent) == 0)
    planned = firearrow("group", "seek", "moved", sent, "--to", "start", "--dry-run").rows
    assert [row["to"] for row in planned] == [0] * QUEUES
    assert lag(firearrow, "moved", sent) == 0
    firearrow("group", "seek", "moved", sent, "--to", "start", "--yes").succeeded()
    assert lag(firearrow, "moved", sent) == MESSAGES
    assert firearrow("group", "lag", "moved", sent, "--max", str(MESSAGES)).code == 0
    behind = firearrow("group", "lag", "moved", sent, "--max", str(MESSAGES - 1))
    assert (behind.code, len(behind.lines)) == (1, QUEUES)
    firearrow("group", "seek", "moved", sent, "--offset", "3", "--queue", "1", "--yes").succeeded()
    assert offsets(firearrow, "moved", sent) == [0, 3, 0, 0]
    firearrow("group", "seek", "moved", sent, "--to", "+1h", "--yes").succeeded()
    assert lag(firearrow, "moved", sent) == 0
    outside = firearrow("group", "seek", "moved", sent, "--offset", "99", "--queue", "1", "--yes")
    assert (outside.code, "choose 0 to" in outside.err) == (2, True)


def test_a_group_is_moved_with_members(firearrow: Firearrow, broker: Peer) -> None:
    assert firearrow("topic", "create", "followed", "--queues", "1").code == 0
    seen: list[bytes] = []
    with (
        member(broker, "followers", "followed", seen=seen),
        Producer("followed-producer", name_server=broker.name_server) as producer,
    ):
        for number in range(3):
            producer.send(Message("followed", b"%d" % number))
        eventually(lambda: len(seen) == 3 and lag(firearrow, "followers", "followed") == 0)
        one_queue = firearrow(
            "group", "seek", "followers", "followed", "--queue", "0", "--to", "start", "--yes"
        )
        assert (one_queue.code, "stop them first" in one_queue.err) == (1, True)
        firearrow("group", "seek", "followers", "--to", "start", "--yes").succeeded()
        producer.send(Message("followed", b"ends a held pull"))
        eventually(lambda: {b"0", b"1", b"2"} <= set(seen[3:]))


def test_a_paused_group_gets_nothing_until_it_is_resumed(firearrow: Firearrow, broker: Peer) -> None:
    assert firearrow("topic", "create", "pausing", "--queues", "1").code == 0
    seen: list[bytes] = []
    with (
        member(broker, "paused", "pausing", seen=seen),
        Producer("pausing-producer", name_server=broker.name_server) as producer,
    ):
        producer.send(Message("pausing", b"before"))
        eventually(lambda: seen == [b"before"])
        assert firearrow("group", "pause", "paused").code == 2
        assert firearrow("group", "pause", "paused", "--yes").rows == [
            {"group": "paused", "consuming": False, "brokers": [BROKER]}
        ]
        [row] = [row for row in firearrow("group", "list").rows if row["group"] == "paused"]
        assert row["consuming"] is False
        producer.send(Message("pausing", b"while"))  # a pull that was held may still get this one
        producer.send(Message("pausing", b"paused"))
        eventually(lambda: firearrow("group", "lag", "paused", "pausing", "--max", "0").code == 1)
        assert b"paused" not in seen
        firearrow("group", "pause", "paused", "--resume", "--yes").succeeded()
        eventually(lambda: seen == [b"before", b"while", b"paused"])
    assert firearrow("group", "pause", "nobody", "--yes").code == 1


def test_one_topic_of_a_group_is_paused(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with member(broker, "half", sent):
        eventually(lambda: lag(firearrow, "half", sent) == 0)
    if broker.kind == "apache4":  # came with 5.0
        assert "not supported" in firearrow("group", "pause", "half", "--topic", sent, "--yes").err
        return
    paused = firearrow("group", "pause", "half", "--topic", sent, "--yes").rows
    assert paused == [{"group": "half", "topic": sent, "consuming": False}]
    resumed = firearrow("group", "pause", "half", "--topic", sent, "--resume", "--yes").rows
    assert resumed == [{"group": "half", "topic": sent, "consuming": True}]


def test_members_with_other_subscriptions_are_found(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with member(broker, "mixed", sent, "even || odd") as first, member(broker, "mixed", sent, "odd||even"):
        eventually(lambda: len(firearrow("group", "members", "mixed").rows) == 2)
        same = firearrow("group", "diff", "mixed")
        assert (same.code, same.out) == (0, "")
        assert "subscribe the same" in same.err
        with member(broker, "mixed", sent, "even") as third:
            eventually(lambda: len(firearrow("group", "members", "mixed").rows) == 3)
            other = firearrow("group", "diff", "mixed")
            assert other.code == 1
            assert other.lines == [
                {
                    "clientId": third.client_id,
                    "what": f"filter of {sent}",
                    "value": "even",
                    "others": "even || odd",
                }
            ]
            assert first.client_id != third.client_id
    alone = firearrow("group", "diff", "mixed")
    assert (alone.code, alone.out, "has no members to compare" in alone.err) == (0, "", True)


# ---- brokers and clients ----


def test_status(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    [row] = firearrow("status").lines
    assert (row["broker"], row["address"]) == (BROKER, broker.address)
    assert row["protocol"] == ("4.9.7" if broker.kind == "apache4" else "5.5.0")
    own = "FireArrow" if broker.kind == "firearrow" else "Apache"
    assert (row["server"], row["version"] == row["protocol"]) == (own, own == "Apache")
    assert row["upMs"] > 0
    assert row["storedToday"] >= 0
    rates = [row["inPerSecond"], row["outPerSecond"]]
    young = row["upMs"] < 15_000
    assert all(rate >= 0 if rate is not None else young for rate in rates), "only a young broker has no rates"


def test_top_measures_rates_and_lags(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with member(broker, "ranked", sent):
        eventually(lambda: lag(firearrow, "ranked", sent) == 0)
    firearrow("group", "seek", "ranked", sent, "--to", "start", "--yes").succeeded()
    rows = firearrow("top", "--once", "--every", "0.2").rows
    [topic] = [row for row in rows if row.get("topic") == sent]
    assert (topic["messages"], topic["inPerSecond"]) == (MESSAGES, 0)
    [group] = [row for row in rows if row.get("group") == "ranked"]
    assert (group["lag"], group["outPerSecond"]) == (MESSAGES, 0)


def test_clients_are_listed(firearrow: Firearrow, broker: Peer, sent: str) -> None:
    with (
        member(broker, "connected", sent) as consumer,
        Producer("connected-producer", name_server=broker.name_server) as producer,
    ):
        producer.send(Message(sent + "-clients", b"makes it known"))

        def row() -> list[dict[str, Any]]:
            return firearrow("clients", "list", "--group", "connected").rows

        eventually(lambda: len(row()) == 1)
        assert row()[0]["clientId"] == consumer.client_id
        assert row()[0]["language"] == "PYTHON"
        eventually(lambda: len(firearrow("clients", "list", "--group", "connected-producer").rows) == 1)


def test_options_are_read_and_changed(firearrow: Firearrow) -> None:
    before = firearrow("config", "get", "fileReservedTime").rows
    assert [(row["broker"], row["key"]) for row in before] == [(BROKER, "fileReservedTime")]
    planned = firearrow("config", "set", "fileReservedTime=71", "--dry-run").rows
    assert planned == [{"broker": BROKER, "key": "fileReservedTime", "from": before[0]["value"], "to": "71"}]
    assert firearrow("config", "get", "fileReservedTime").rows == before
    assert firearrow("config", "set", "fileReservedTime=71").code == 2
    assert firearrow("config", "set", "fileReservedTime=71", "--yes").rows == planned
    assert firearrow("config", "get", "fileReserved*").rows[0]["value"] == "71"
    assert firearrow("config", "get", "noSuchOption").code == 1
    assert firearrow("config", "set", "fileReservedTime", "--yes").code == 2
    assert firearrow("config", "get", "--broker", "nobody").code == 1


@pytest.mark.parametrize("verb", ["send", "receive", "roundtrip"])
def test_bench_measures_and_leaves_nothing(firearrow: Firearrow, verb: str) -> None:
    before = firearrow("topic", "list").rows, firearrow("group", "list").rows
    [found] = firearrow("bench", verb, "--count", "60", "--in-flight", "4", "--queues", "2").rows
    assert (found["messages"], found["failed"]) == (60, 0)
    assert 0 < found["p50Ms"] <= found["p99Ms"] <= found["maxMs"]
    assert found["messagesPerSecond"] > 0
    assert (firearrow("topic", "list").rows, firearrow("group", "list").rows) == before


# ---- what only FireArrow's brokers answer ----


@pytest.mark.parametrize("broker", APACHES, indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        "topic purge sent --yes",
        "topic trim sent --before -1h --yes",
        "clients close nobody --yes",
        "config diff",
        "top --since -1h",
    ],
)
def test_an_apache_broker_says_what_it_cannot_answer(firearrow: Firearrow, sent: str, words: str) -> None:
    refused = firearrow(*words.split())
    assert refused.code == 2
    assert "only FireArrow's" in refused.err
