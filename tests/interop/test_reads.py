"""Pull consumers, offsets, search by time, view by id and query by key."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed
from tests.interop.peers import Peer

pytestmark = pytest.mark.interop


def fill(client: Driver, topic: str, count: int, **more: object) -> list[str]:
    """The topic, made, and `count` messages in queue 1 whose offsets are 0 to count - 1."""
    client.ask("send", group=topic, topic=topic, body=hexed("makes the topic"), how="queue", queue=0)
    bodies = hexed(*(f"message {number}" for number in range(count)))
    sent = client.ask("send", group=topic, topic=topic, body=bodies, how="queue", queue=1, **more)
    assert [event["queueOffset"] for event in sent] == list(range(count))
    return bodies


def test_pull_states(client: Driver, name: str) -> None:
    bodies = fill(client, name, 40, tags="even")
    *found, state = client.ask("pull", topic=name, queue=1, offset=0, count=32)
    assert [event["body"] for event in found] == bodies[:32]
    assert (state["status"], state["next"], state["min"], state["max"]) == ("FOUND", 32, 0, 40)
    [state] = client.ask("pull", topic=name, queue=1, offset=1000)
    assert (state["status"], state["next"]) == ("OFFSET_ILLEGAL", 40)
    [state] = client.ask("pull", topic=name, queue=1, offset=0, tags="odd")
    assert state["status"] == "NO_MATCHED_MSG"
    assert 0 < state["next"] <= 40


@pytest.mark.parametrize(
    "client",
    ["java5", *(pytest.param(name, marks=pytest.mark.long) for name in ("java4", "go")), "python"],
    indirect=True,
)
def test_a_pull_at_the_end(client: Driver, name: str) -> None:
    """Go's waits 20 s."""
    fill(client, name, 3)
    [state] = client.ask("pull", topic=name, queue=1, offset=3)
    assert (state["status"], state["next"]) == ("NO_NEW_MSG", 3)


def test_offsets_and_time(java_client: Driver, name: str) -> None:
    fill(java_client, name, 10)
    queue = next(event for event in java_client.ask("queues", topic=name) if event["queueId"] == 1)
    assert (queue["min"], queue["max"]) == (0, 10)
    *messages, _ = java_client.ask("pull", topic=name, queue=1, offset=0)
    times = [message["storeTimestamp"] for message in messages]
    assert queue["earliest"] == times[0]
    for number, time_ms in enumerate(times):
        [found] = java_client.ask("search", topic=name, queue=1, timestamp=time_ms)
        assert times[found["offset"]] == time_ms, number
    [found] = java_client.ask("search", topic=name, queue=1, timestamp=times[-1] + 60_000)
    assert found["offset"] in (9, 10)


def test_committed_offset(java_client: Driver, peer: Peer, name: str) -> None:
    """The group is made first: the pull consumer's heartbeat comes too late for its first commit."""
    fill(java_client, name, 10)
    java_client.ask("mqadmin", argument=["updateSubGroup", "-b", peer.address, "-g", "interop-puller"])
    java_client.ask("commit", topic=name, queue=1, offset=7)
    [found] = java_client.ask("committed", topic=name, queue=1)
    assert found["offset"] == 7


@pytest.mark.parametrize("version", ["java5", "java4", "python"])
def test_lite_pull(drivers: Drivers, version: str, name: str) -> None:
    client = drivers(version)
    bodies = fill(client, name, 100)
    got = client.ask("readLite", group=name, topic=name, count=101)
    assert [event["body"] for event in got if event["queueId"] == 1] == bodies


def test_view_and_query(java_client: Driver, name: str) -> None:
    [sent] = java_client.ask(
        "send", group=name, topic=name, keys="order-1 order-2", tags="t", body=hexed("look for me")
    )
    for kind in ("offsetMsgId", "msgId"):
        [got] = java_client.ask("view", topic=name, id=sent[kind])
        assert (got["body"], got["keys"]) == (hexed("look for me")[0], "order-1 order-2")
    for key in ("order-1", "order-2"):
        [got] = java_client.ask("query", topic=name, key=key)
        assert got["queueOffset"] == sent["queueOffset"]
    java_client.ask("send", group=name, topic=name, keys="order-1", body=hexed("a second one"))
    assert len(java_client.ask("query", topic=name, key="order-1")) == 2
