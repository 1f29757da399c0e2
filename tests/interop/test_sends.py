"""Every way an official client sends, and what comes back from the log."""

import random

import pytest

from tests.interop.driver import Driver, Failed
from tests.interop.messages import hexed, pull_all, read

pytestmark = pytest.mark.interop


def test_one_message_with_everything(client: Driver, name: str) -> None:
    body = "火箭 · rocket · 🚀".encode() + bytes(range(256))
    [sent] = client.ask(
        "send",
        group=name,
        topic=name,
        body=body.hex(),
        tags="tag-é",
        keys="k1 ключ",
        flag=7,
        **{"property.colour": 'grün \\ "quoted"', "property.long": "x" * 2000},
    )
    assert sent["status"] == "SEND_OK"
    assert (sent["topic"], sent["queueOffset"]) == (name, 0)
    [got] = read(client, name, 1)
    assert bytes.fromhex(got["body"]) == body
    assert (got["tags"], got["keys"], got["flag"]) == ("tag-é", "k1 ключ", 7)
    assert got["properties"]["colour"] == 'grün \\ "quoted"'
    assert got["properties"]["long"] == "x" * 2000
    assert got["queueId"] == sent["queueId"]
    assert got["msgId"] in (sent["msgId"], sent["offsetMsgId"])
    assert 0 <= got["storeTimestamp"] - got["bornTimestamp"] < 10_000


@pytest.mark.parametrize("how", ["sync", "async"])
def test_many_messages_each_answered(client: Driver, name: str, how: str) -> None:
    bodies = hexed(*(f"{how} {number}" for number in range(200)))
    sent = client.ask("send", group=name, topic=name, body=bodies, how=how)
    assert [event["status"] for event in sent] == ["SEND_OK"] * 200
    positions = {(event["queueId"], event["queueOffset"]) for event in sent}
    assert len(positions) == 200
    got = read(client, name, 200)
    assert sorted(event["body"] for event in got) == sorted(bodies)
    assert {(event["queueId"], event["queueOffset"]) for event in got} == positions


def test_oneway_arrives_without_an_answer(client: Driver, name: str) -> None:
    [first] = hexed("makes the topic")
    client.ask("send", group=name, topic=name, body=first)
    bodies = hexed(*(f"oneway {number}" for number in range(50)))
    client.ask("send", group=name, topic=name, body=bodies, how="oneway")
    client.ask("consume", name=name, group=name, topic=name)
    got = client.await_bodies([name], [first, *bodies])
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted([first, *bodies])


def test_batch_lands_together(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    bodies = hexed(*(f"item {number}" for number in range(20)))
    [sent] = client.ask("send", group=name, topic=name, body=bodies, how="batch", tags="b", keys="batched")
    assert sent["status"] == "SEND_OK"
    assert sent["offsetMsgId"].count(",") == 19
    queue = [event for event in read(client, name, 21) if event["tags"] == "b"]
    assert [event["body"] for event in queue] == bodies
    assert {event["queueId"] for event in queue} == {sent["queueId"]}
    assert {event["keys"] for event in queue} == {"batched"}
    offsets = [event["queueOffset"] for event in queue]
    assert offsets == list(range(sent["queueOffset"], sent["queueOffset"] + 20))


def test_big_body(client: Driver, name: str) -> None:
    """Big enough to be compressed by the client, and incompressible."""
    body = random.Random(5).randbytes(3 << 20)
    [sent] = client.ask("send", group=name, topic=name, body=[body.hex()])
    assert sent["status"] == "SEND_OK"
    client.ask("send", group=name, topic=name, body=["61" * (1 << 20)])
    got = read(client, name, 2)
    assert {event["body"] for event in got} == {body.hex(), "61" * (1 << 20)}


def test_chosen_queue(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    sent = client.ask("send", group=name, topic=name, body=hexed("a", "b", "c"), how="queue", queue=2)
    assert {event["queueId"] for event in sent} == {2}
    assert [event["body"] for event in pull_all(client, name, 2)][-3:] == hexed("a", "b", "c")


def test_route_of_a_created_topic(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    queues = client.ask("route", group=name, topic=name)
    assert sorted(queue["queueId"] for queue in queues) == [0, 1, 2, 3]
    assert {queue["broker"] for queue in queues} == {"broker-a"}


def test_body_too_large_is_refused_by_the_broker(java_client: Driver, name: str) -> None:
    with pytest.raises(Failed) as refused:
        java_client.ask(
            "send",
            group=name,
            topic=name,
            maxMessageSize=8 << 20,
            body=random.Random(6).randbytes(5 << 20).hex(),
        )
    assert refused.value.code == 13  # MESSAGE_ILLEGAL


def test_topic_that_may_not_be_written(java_client: Driver, name: str, cluster: str) -> None:
    java_client.ask(
        "mqadmin", argument=["updateTopic", "-c", cluster, "-t", name, "-p", "4", "-r", "2", "-w", "2"]
    )
    with pytest.raises(Failed) as refused:
        java_client.ask("send", group=name, topic=name, body=hexed("no"))
    assert refused.value.type in ("MQClientException", "MQBrokerException")
