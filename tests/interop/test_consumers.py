"""Push consumers of the official clients: clustering, broadcasting, in order, filtered, from an offset or a time."""

import time
from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver
from tests.interop.messages import hexed, numbered
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket

pytestmark = pytest.mark.interop


def queues_of(client: Driver, member: str, topic: str, count: int, **more: object) -> set[int]:
    return {
        event["queueId"] for event in client.ask("awaitQueues", name=member, topic=topic, count=count, **more)
    }


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
        member: {event["queueId"] for event in client.consumed(member) if event["body"] in shared}
        for member in (one, two)
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
    client.ask("send", group=name, topic=name, body=bodies)
    for member in members:
        client.await_bodies([member], bodies)
        client.ask("stop", name=member)
        assert {event["queueId"] for event in client.consumed(member)} == {0, 1, 2, 3}


def test_orderly_under_locks(client: Driver, name: str) -> None:
    """The Go client 2.1.2 releases a queue's lock only by letting it expire after 60 s (also at Apache's broker), so
    a second member joins only the Java ones."""
    client.ask("send", group=name, topic=name, body=hexed("makes the topic"))
    one, two = f"{name}-1", f"{name}-2"
    members = [one]
    client.ask("consume", name=one, group=name, topic=name, orderly="true")
    assert queues_of(client, one, name, 4, locked="true") == {0, 1, 2, 3}
    bodies = {queue: numbered(f"queue {queue}", 60) for queue in range(4)}
    for queue, texts in bodies.items():
        client.ask("send", group=name, topic=name, body=texts[:30], how="queue", queue=queue)
    client.await_bodies([one], [text for texts in bodies.values() for text in texts[:30]])
    if client.name != "go":
        members.append(two)
        client.ask("consume", name=two, group=name, topic=name, orderly="true")
        first = queues_of(client, one, name, 2, locked="true", seconds=40)
        second = queues_of(client, two, name, 2, locked="true", seconds=60)
        assert first | second == {0, 1, 2, 3}
    for queue, texts in bodies.items():
        client.ask("send", group=name, topic=name, body=texts[30:], how="queue", queue=queue)
    got = client.await_bodies(members, [text for texts in bodies.values() for text in texts])
    for queue, texts in bodies.items():
        seen = [event["body"] for event in got if event["queueId"] == queue and event["body"] in set(texts)]
        assert seen == texts
    for member in members:
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


def from_disk(peer: Peer, percent: int) -> None:
    """A group without an offset begins at 0 while the queue's first message is still counted as in memory (Apache's
    rule); with 0 percent of the memory for that, the client's own setting takes effect."""
    with ClientSocket(address(peer.address)) as connection:
        done = connection.ask(
            RequestCode.UPDATE_BROKER_CONFIG, body=f"accessMessageInMemoryMaxRatio={percent}".encode()
        )
        assert done.code == 0, done.remark


@pytest.fixture
def on_disk(peer: Peer) -> Iterator[None]:
    if peer.kind == "apache":
        pytest.skip(
            "Apache 5.5.0 asks the kernel what is in memory, where the JVM lets it, and else takes all for it"
        )
    from_disk(peer, 0)
    yield
    from_disk(peer, 40)


def test_a_new_group_begins_at_the_first_while_it_is_in_memory(client: Driver, name: str) -> None:
    """Only the Python client asks for a result that distinguishes no offset from offset 0."""
    if client.name == "python":
        from_last_gets_only_what_comes_after(client, name)
        return
    client.ask("send", group=name, topic=name, body=numbered("before", 20))
    client.ask("consume", name=name, group=name, topic=name, **{"from": "LAST_OFFSET"})
    got = client.await_bodies([name], numbered("before", 20))
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(numbered("before", 20))


@pytest.mark.usefixtures("on_disk")
def test_from_last_gets_only_what_comes_after(client: Driver, name: str) -> None:
    from_last_gets_only_what_comes_after(client, name)


def from_last_gets_only_what_comes_after(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=numbered("before", 40))
    client.ask("consume", name=name, group=name, topic=name, **{"from": "LAST_OFFSET"})
    queues_of(client, name, name, 4)
    deadline = time.monotonic() + 30
    while {event["queueId"] for event in client.consumed(name)} != set(range(4)):
        assert time.monotonic() < deadline
        client.ask("send", group=name, topic=name, body=numbered("after", 8))
    client.ask("stop", name=name)
    assert {event["body"] for event in client.consumed(name)} <= set(numbered("after", 8))


@pytest.mark.usefixtures("on_disk")
def test_from_first_gets_everything(client: Driver, name: str) -> None:
    client.ask("send", group=name, topic=name, body=numbered("before", 20))
    client.ask("consume", name=name, group=name, topic=name, **{"from": "FIRST_OFFSET"})
    got = client.await_bodies([name], numbered("before", 20))
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(numbered("before", 20))


@pytest.mark.usefixtures("on_disk")
def test_from_a_time(client: Driver, name: str) -> None:
    """A consume timestamp has whole seconds, so the second part waits until one begins."""
    client.ask("send", group=name, topic=name, body=numbered("before", 40))
    moment = int(time.time()) + 1
    while time.time() < moment + 0.02:
        time.sleep(moment + 0.02 - time.time())
    client.ask("send", group=name, topic=name, body=numbered("after", 40))
    stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(moment))
    client.ask("consume", name=name, group=name, topic=name, timestamp=stamp, **{"from": "TIMESTAMP"})
    got = client.await_bodies([name], numbered("after", 40))
    client.ask("stop", name=name)
    assert sorted(event["body"] for event in got) == sorted(numbered("after", 40))
