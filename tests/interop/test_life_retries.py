"""Messages that were not consumed: sent back, retried, dead letters; by concurrent and orderly consumers.

The retry levels of the peer (3 and up) are one second each.
"""

import itertools
import time
from contextlib import suppress

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.conftest import Drivers
from tests.interop.driver import Driver, Event, Failed
from tests.interop.messages import hexed, pull_all
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.requests import topic_ext

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def dead_letters(client: Driver, group: str, count: int) -> list[Event]:
    """Once `count` are there; the topic is made with the first."""
    found: list[Event] = []
    deadline = time.monotonic() + 40
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} dead letters"
        time.sleep(0.2)
        with suppress(Failed):
            found = pull_all(client, f"%DLQ%{group}", 0)
    return found


def takings(client: Driver, name: str, body: str) -> list[Event]:
    return [event for event in client.consumed(name) if event["body"] == body]


def test_retried_until_consumed_or_given_up(client: Driver, name: str) -> None:
    bodies = {failures: hexed(f"fails {failures} times")[0] for failures in (0, 1, 2, 99)}
    sent: dict[int, Event] = {}
    for failures, body in bodies.items():
        [sent[failures]] = client.ask(
            "send",
            group=name,
            topic=name,
            tags="t",
            keys="k",
            flag=7,
            body=body,
            **{"property.failures": failures},
        )
    client.ask("consume", name=name, group=name, topic=name, tags="t", maxReconsumeTimes=2)
    client.await_bodies([name], [bodies[0], *[bodies[1]] * 2, *[bodies[2]] * 3, *[bodies[99]] * 3])
    [dead] = dead_letters(client, name, 1)
    client.ask("stop", name=name)
    assert len(client.consumed(name)) == 9
    for failures, body in bodies.items():
        events = takings(client, name, body)
        assert [event["reconsumeTimes"] for event in events] == list(range(min(failures, 2) + 1))
        assert {event["topic"] for event in events} == {name}
        assert {event["flag"] for event in events} == {7}
        assert {(event["tags"], event["keys"]) for event in events} == {("t", "k")}
        assert {event["bornTimestamp"] for event in events} == {events[0]["bornTimestamp"]}
        assert {event["properties"]["UNIQ_KEY"] for event in events} == {sent[failures]["msgId"]}
        for earlier, again in itertools.pairwise(events):
            assert again["queueId"] == 0
            assert again["storeTimestamp"] - earlier["at"] >= 900
            assert again["properties"]["RETRY_TOPIC"] == name
            assert again["properties"]["ORIGIN_MESSAGE_ID"] == sent[failures]["offsetMsgId"]
            assert again["properties"]["DELAY"] == str(2 + again["reconsumeTimes"])
            assert again["properties"]["REAL_TOPIC"] == f"%RETRY%{name}"
    assert (dead["body"], dead["reconsumeTimes"]) == (bodies[99], 3)
    assert (dead["tags"], dead["keys"], dead["flag"]) == ("t", "k", 7)
    assert dead["properties"]["RETRY_TOPIC"] == name
    assert dead["properties"]["ORIGIN_MESSAGE_ID"] == sent[99]["offsetMsgId"]


def test_given_up_at_once(client: Driver, name: str) -> None:
    """The listener chooses -1 for the next delivery."""
    [body] = hexed("hopeless")
    client.ask("send", group=name, topic=name, body=body, **{"property.failures": 1})
    client.ask("consume", name=name, group=name, topic=name, delayLevel=-1)
    [dead] = dead_letters(client, name, 1)
    client.ask("stop", name=name)
    assert len(client.consumed(name)) == 1
    assert (dead["body"], dead["reconsumeTimes"]) == (body, 1)


def test_the_wished_level(client: Driver, name: str) -> None:
    """Level 2 of the peer is two seconds."""
    [body] = hexed("in two seconds")
    client.ask("send", group=name, topic=name, body=body, **{"property.failures": 1})
    client.ask("consume", name=name, group=name, topic=name, delayLevel=2)
    first, again = client.await_bodies([name], [body] * 2)
    client.ask("stop", name=name)
    assert 1900 <= again["at"] - first["at"] < 5000
    assert again["properties"]["DELAY"] == "2"


def test_tags_hold_for_retries(client: Driver, name: str) -> None:
    """A retry keeps its tag; the group's other subscriptions must not lose it for that."""
    bodies = hexed("red", "blue")
    for tag, body in zip(("red", "blue"), bodies, strict=True):
        client.ask("send", group=name, topic=name, tags=tag, body=body, **{"property.failures": 1})
    client.ask("consume", name=name, group=name, topic=name, tags="red || blue")
    got = client.await_bodies([name], bodies * 2)
    client.ask("stop", name=name)
    assert sorted((event["tags"], event["reconsumeTimes"]) for event in got) == [
        ("blue", 0),
        ("blue", 1),
        ("red", 0),
        ("red", 1),
    ]


def test_in_order_the_queue_waits_for_a_failed_message(client: Driver, name: str) -> None:
    bodies = hexed("never", "twice", "then")
    for body, failures in zip(bodies, (99, 2, 0), strict=True):
        client.ask(
            "send", group=name, topic=name, how="queue", queue=0, body=body, **{"property.failures": failures}
        )
    client.ask(
        "consume", name=name, group=name, topic=name, orderly="yes", maxReconsumeTimes=3, suspendMs=100
    )
    client.await_bodies([name], [bodies[0]] * 4 + [bodies[1]] * 3 + [bodies[2]])
    [dead] = dead_letters(client, name, 1)
    client.ask("stop", name=name)
    seen = [event["body"] for event in client.consumed(name)]
    assert seen == [bodies[0]] * 4 + [bodies[1]] * 3 + [bodies[2]]
    assert dead["body"] == bodies[0]
    assert dead["properties"]["RETRY_TOPIC"] == name


@pytest.mark.parametrize("language", ["go"])
def test_another_language_delays_and_retries(drivers: Drivers, peer: Peer, name: str, language: str) -> None:
    """The Go client looks for the retry topic when it starts and then after 30 s, so the topic is made before."""
    with ClientSocket(address(peer.address)) as connection:
        for topic, queues in ((name, 4), (f"%RETRY%{name}", 1)):
            made = connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues))
            assert made.code == 0, made.remark
    client, [later, fails] = drivers(language), hexed("later", "fails")
    client.ask("consume", name=name, group=name, topic=name, maxReconsumeTimes=3)
    client.ask("send", group=f"{name}-p", topic=name, tags="t", delayLevel=2, body=later)
    client.ask("send", group=f"{name}-p", topic=name, tags="t", body=fails, **{"property.failures": 2})
    client.await_bodies([name], [later, *[fails] * 3])
    client.ask("stop", name=name)
    [delayed] = takings(client, name, later)
    assert delayed["at"] - delayed["bornTimestamp"] >= 1900
    assert delayed["properties"]["DELAY"] == "2"
    retried = takings(client, name, fails)
    assert [event["reconsumeTimes"] for event in retried] == [0, 1, 2]
    assert {event["tags"] for event in retried} == {"t"}
    assert retried[2]["at"] - retried[0]["at"] >= 1900
