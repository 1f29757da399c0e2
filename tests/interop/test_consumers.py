"""Push consumers of the official clients: clustering, broadcasting, in order, filtered, from a place or a time."""

import time

import pytest

from tests.interop.driver import Driver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]


def hexed(*texts: str) -> list[str]:
    return [text.encode().hex() for text in texts]


def numbered(what: str, count: int) -> list[str]:
    return hexed(*(f"{what} {number}" for number in range(count)))


def queues_of(client: Driver, member: str, topic: str, count: int, **more: object) -> set[int]:
    return {event["queueId"] for event in client.ask("awaitQueues", name=member, topic=topic, count=count, **more)}


def test_two_members_join_and_leave(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=numbered("before", 40))
    one, two = f"{name}-1", f"{name}-2"
    client.ask("consume", name=one, group=name, topic=name)
    client.await_bodies([one], numbered("before", 40))
    client.ask("consume", name=two, group=name, topic=name)
    first = queues_of(client, one, name, 2, seconds=15)
    second = queues_of(client, two, name, 2, seconds=15)
    assert first | second == {0, 1, 2, 3}
    client.ask("send", group=name, topic=name, body=numbered("shared", 40))
    client.await_bodies([one, two], numbered("shared", 40))
    shared = set(numbered("shared", 40))
    by_queue = {
        member: {event["queueId"] for event in client.consumed(member) if event["body"] in shared} for member in (one, two)
    }
    assert by_queue == {one: first, two: second}
    client.ask("stop", name=one)
    assert queues_of(client, two, name, 4, seconds=15) == {0, 1, 2, 3}
    client.ask("send", group=name, topic=name, body=numbered("after", 40))
    client.await_bodies([two], numbered("after", 40))
    client.ask("stop", name=two)


def test_a_group_goes_on_where_it_stopped(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=numbered("old", 30))
    client.ask("consume", name=f"{name}-1", group=name, topic=name)
    client.await_bodies([f"{name}-1"], numbered("old", 30))
    client.ask("stop", name=f"{name}-1")
    client.ask("send", group=name, topic=name, body=numbered("new", 30))
    client.ask("consume", name=f"{name}-2", group=name, topic=name)
    got = client.await_bodies([f"{name}-2"], numbered("new", 30))
    client.ask("stop", name=f"{name}-2")
    assert sorted(event["body"] for event in got) == sorted(numbered("new", 30))


def test_broadcasting_gives_everything_to_each(client: Driver, name: str) -> None:
    bodies = numbered("all", 40)
    members = (f"{name}-1", f"{name}-2")
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    for member in members:
        client.ask("consume", name=member, group=name, topic=name, model="BROADCASTING")
        queues_of(client, member, name, 4)
    client.ask("send", group=name, topic=name, body=bodies)
    for member in members:
        client.await_bodies([member], bodies)
        client.ask("stop", name=member)
        assert {event["queueId"] for event in client.consumed(member)} == {0, 1, 2, 3}


def test_orderly_under_locks(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    one, two = f"{name}-1", f"{name}-2"
    client.ask("consume", name=one, group=name, topic=name, orderly="true")
    assert queues_of(client, one, name, 4, locked="true") == {0, 1, 2, 3}
    bodies = {queue: numbered(f"queue {queue}", 60) for queue in range(4)}
    for queue, texts in bodies.items():
        client.ask("send", group=name, topic=name, body=texts[:30], how="queue", queue=queue)
    client.await_bodies([one], [text for texts in bodies.values() for text in texts[:30]])
    client.ask("consume", name=two, group=name, topic=name, orderly="true")
    first = queues_of(client, one, name, 2, locked="true", seconds=40)
    second = queues_of(client, two, name, 2, locked="true", seconds=60)
    assert first | second == {0, 1, 2, 3}
    for queue, texts in bodies.items():
        client.ask("send", group=name, topic=name, body=texts[30:], how="queue", queue=queue)
    got = client.await_bodies([one, two], [text for texts in bodies.values() for text in texts])
    for queue, texts in bodies.items():
        seen = [event["body"] for event in got if event["queueId"] == queue and event["body"] in set(texts)]
        assert seen == texts
    for member in (one, two):
        client.ask("stop", name=member)


def test_tags_choose(client: Driver, name: str) -> None:
    for tag in ("red", "green", "blue"):
        client.ask("send", group=name, topic=name, tags=tag, body=numbered(tag, 20))
    client.ask("consume", name=name, group=name, topic=name, tags="red || blue")
    got = client.await_bodies([name], numbered("red", 20) + numbered("blue", 20))
    client.ask("send", group=name, topic=name, tags="green", body=hexed("not wanted"))
    client.ask("send", group=name, topic=name, tags="blue", body=hexed("wanted"))
    got = client.await_bodies([name], hexed("wanted"))
    client.ask("stop", name=name)
    assert {event["tags"] for event in got} == {"red", "blue"}
    assert len(got) == 41


def test_from_last_starts_with_what_comes_after(client: Driver, name: str) -> None:
    """The queue starts at 0 in memory, so Apache's rule gives a new group the first message until the log has rolled;
    only a group that skipped the beginning by an offset of its own goes on from there."""
    client.ask("send", group=name, topic=name, body=numbered("before", 20))
    client.ask("consume", name=name, group=name, topic=name, **{"from": "LAST_OFFSET"})
    got = client.await_bodies([name], numbered("before", 20))
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(numbered("before", 20))


def test_from_a_time(java_client: Driver, name: str) -> None:
    """A consume timestamp has whole seconds, so the second batch waits for the next full second but one."""
    java_client.ask("send", group=name, topic=name, body=numbered("before", 20))
    moment = int(time.time()) + 2
    while time.time() < moment + 0.05:
        time.sleep(0.05)
    java_client.ask("send", group=name, topic=name, body=numbered("after", 20))
    java_client.ask(
        "consume", name=name, group=name, topic=name, timestamp=time.strftime("%Y%m%d%H%M%S", time.localtime(moment)),
        **{"from": "TIMESTAMP"},
    )  # fmt: skip
    got = java_client.await_bodies([name], numbered("after", 20))
    java_client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(numbered("after", 20))
