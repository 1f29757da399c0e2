"""Messages for later: by level and, with 5.x clients, by time; in order, recalled, refused.

Everything is sent first; the tests check the results, so that the waits are shared.
"""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver, Failed
from tests.interop.messages import hexed, numbered, pull_all
from tests.interop.peers import Peer

pytestmark = pytest.mark.interop

FAR_LEVEL = 6


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def test_levels(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("at once"))
    for level in (1, 2, FAR_LEVEL):
        client.ask(
            "send",
            group=name,
            topic=name,
            delayLevel=level,
            keys=f"level{level}",
            how="queue",
            queue=2,
            body=numbered(f"{name} {level}", 20),
        )
    client.ask("consume", name=name, group=name, topic=name)
    wanted = hexed("at once") + numbered(f"{name} 1", 20) + numbered(f"{name} 2", 20)
    got = client.await_bodies([name], wanted)
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(wanted)
    for level in (1, 2):
        of_level = [event for event in got if event["properties"].get("DELAY") == str(level)]
        assert {event["queueId"] for event in of_level} == {2}
        stored = sorted(of_level, key=lambda event: event["queueOffset"])
        assert [event["body"] for event in stored] == numbered(f"{name} {level}", 20)
        for event in of_level:
            assert event["at"] - event["bornTimestamp"] >= level * 1000 - 50
            assert event["storeTimestamp"] - event["bornTimestamp"] < level * 1000 + 3000
            assert event["properties"]["REAL_TOPIC"] == name
            assert event["properties"]["REAL_QID"] == "2"
    waiting = [event["body"] for event in pull_all(client, "SCHEDULE_TOPIC_XXXX", FAR_LEVEL - 1)]
    assert [body for body in waiting if body in set(numbered(f"{name} {FAR_LEVEL}", 20))] == numbered(
        f"{name} {FAR_LEVEL}", 20
    )


def test_a_level_beyond_the_last_is_the_last(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, delayLevel=99, body=hexed(name))
    [found] = [
        e for e in pull_all(client, "SCHEDULE_TOPIC_XXXX", FAR_LEVEL - 1) if e["body"] == hexed(name)[0]
    ]
    assert found["properties"]["DELAY"] == str(FAR_LEVEL)
    assert found["properties"]["REAL_TOPIC"] == name


def test_a_batch_is_not_for_later(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    with pytest.raises(Failed) as refused:
        client.ask("send", group=name, topic=name, how="batch", delayLevel=1, body=numbered("later", 3))
    assert refused.value.type == "MQClientException"


def test_timers(java_client: Driver, name: str) -> None:
    """By seconds, by milliseconds, by a time, in the past; one recalled, one for tomorrow."""
    client = java_client
    whens = {
        "seconds": {"delaySeconds": 2},
        "milliseconds": {"delayMs": 1500},
        "time": {"deliverInMs": 3000},
        "past": {"deliverInMs": -60_000},
        "tomorrow": {"delaySeconds": 86_400},
    }
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    for what, when in whens.items():
        client.ask("send", group=name, topic=name, keys=what, body=hexed(what), **when)
    [recalled] = client.ask("send", group=name, topic=name, delaySeconds=3, body=hexed("recalled"))
    [answer] = client.ask("recall", group=name, topic=name, handle=recalled["recallHandle"])
    assert answer["msgId"] == recalled["msgId"]
    client.ask("consume", name=name, group=name, topic=name)
    wanted = hexed("makes the topic", "seconds", "milliseconds", "time", "past")
    client.await_bodies([name], wanted)
    client.ask("send", group=name, topic=name, delaySeconds=2, body=hexed("last"))
    got = client.await_bodies([name], hexed("last"))
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(wanted + hexed("last"))
    late = {bytes.fromhex(event["body"]).decode(): event["at"] - event["bornTimestamp"] for event in got}
    assert late["past"] < 3500
    assert late["seconds"] >= 1000
    assert late["milliseconds"] >= 500
    assert late["time"] >= 2000
    assert max(late["seconds"], late["milliseconds"], late["time"]) < 6500
    kept = next(event["properties"] for event in got if event["keys"] == "seconds")
    assert kept["TIMER_DELAY_SEC"] == "2"
    assert kept["REAL_TOPIC"] == name


def test_what_timers_are_refused(java_client: Driver, name: str) -> None:
    java_client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    with pytest.raises(Failed) as far:
        java_client.ask("send", group=name, topic=name, delaySeconds=3 * 86_400 + 60, body=hexed("too far"))
    assert far.value.code == 13
    [sent] = java_client.ask("send", group=name, topic=name, body=hexed("not for later"))
    assert sent["recallHandle"] is None
    with pytest.raises(Failed):
        java_client.ask("recall", group=name, topic=name, handle="bm8gaGFuZGxl")


def test_timers_are_counted(java_client: Driver, peer: Peer, name: str) -> None:
    java_client.ask("send", group=name, topic=name, delaySeconds=3600, body=numbered("far", 3))
    [status] = java_client.ask("mqadmin", argument=["brokerStatus", "-b", peer.address])
    assert "timerReadBehind" in status["text"]
