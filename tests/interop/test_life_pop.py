"""The push consumer that pops: switched by mqadmin, together with others that pull; priorities."""

import pytest

from tests.interop.driver import Driver
from tests.interop.messages import hexed, numbered, pull_all
from tests.interop.peers import CLUSTER

pytestmark = pytest.mark.interop


def administer(client: Driver, *arguments: str) -> str:
    [output] = client.ask("mqadmin", argument=list(arguments))
    assert "Exception" not in output["text"], output["text"]
    return str(output["text"])


def make_group(client: Driver, group: str) -> None:
    administer(client, "updateSubGroup", "-c", CLUSTER, "-g", group)


def set_pop(client: Driver, topic: str, group: str, share: int = 0) -> None:
    administer(
        client, "setConsumeMode", "-c", CLUSTER, "-t", topic, "-g", group, "-m", "POP", "-q", str(share)
    )


def test_poppers_beside_pullers(java_client: Driver, name: str) -> None:
    """Two members of one group pop, a member of another pulls; each group gets everything once. One message fails
    once, which hides it for ten seconds; only the popping group gets it again."""
    client, poppers, puller = java_client, f"{name}-pop", f"{name}-pull"
    administer(client, "updateTopic", "-c", CLUSTER, "-t", name, "-r", "4", "-w", "4")
    make_group(client, poppers)
    set_pop(client, name, poppers)
    members = (f"{name}-1", f"{name}-2")
    for member in members:
        client.ask("consume", name=member, group=poppers, topic=name, pop="yes")
    client.ask("consume", name=puller, group=puller, topic=name)
    [again] = hexed("again")
    client.ask("send", group=name, topic=name, tags="t", keys="k", body=again, **{"property.failures": 1})
    bodies = numbered("popped", 60)
    client.ask("send", group=name, topic=name, body=bodies)
    client.await_bodies(members, [*bodies, again])
    client.await_bodies([puller], [*bodies, again])
    got = client.await_bodies(members, [*bodies, again, again], 60)
    assert sorted(event["body"] for event in got) == sorted([*bodies, again, again])
    assert all("POP_CK" in event["properties"] for event in got)
    first, second = (event for event in got if event["body"] == again)
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert 9000 <= second["at"] - first["at"] < 25_000
    assert (second["topic"], second["tags"], second["keys"]) == (name, "t", "k")
    for member in (*members, puller):
        client.ask("stop", name=member)
    assert sorted(event["body"] for event in client.consumed(puller)) == sorted(
        [*bodies, *([again] * len([e for e in client.consumed(puller) if e["body"] == again]))]
    )


def test_a_group_is_switched_to_pop_and_goes_on(java_client: Driver, name: str) -> None:
    client = java_client
    administer(client, "updateTopic", "-c", CLUSTER, "-t", name, "-r", "2", "-w", "2")
    make_group(client, name)
    client.ask("consume", name=f"{name}-1", group=name, topic=name)
    client.ask("send", group=name, topic=name, body=numbered("pulled", 20))
    client.await_bodies([f"{name}-1"], numbered("pulled", 20))
    client.ask("stop", name=f"{name}-1")
    set_pop(client, name, name)
    client.ask("send", group=name, topic=name, body=numbered("popped", 20))
    client.ask("consume", name=f"{name}-2", group=name, topic=name, pop="yes")
    client.await_bodies([f"{name}-2"], numbered("popped", 20))
    client.ask("stop", name=f"{name}-2")
    seen = [event["body"] for event in client.consumed(f"{name}-2")]
    assert set(numbered("popped", 20)) <= set(seen)
    assert len(seen) == len(set(seen))


def test_priorities_choose_the_queue(java_client: Driver, name: str) -> None:
    client = java_client
    administer(
        client, "updateTopic", "-c", CLUSTER, "-t", name, "-r", "4", "-w", "4", "-a", "+message.type=PRIORITY"
    )
    for priority in (0, 2, 3, 7):
        [sent] = client.ask("send", group=name, topic=name, priority=priority, body=hexed(f"{priority}"))
        assert sent["queueId"] == min(priority, 3)
    assert [e["properties"]["_SYS_MSG_PRIORITY_"] for e in pull_all(client, name, 3)] == ["3", "7"]


def test_priorities_are_popped_highest_first(java_client: Driver, name: str) -> None:
    client = java_client
    administer(
        client, "updateTopic", "-c", CLUSTER, "-t", name, "-r", "4", "-w", "4", "-a", "+message.type=PRIORITY"
    )
    make_group(client, name)
    set_pop(client, name, name)
    for priority in range(4):
        client.ask("send", group=name, topic=name, priority=priority, body=numbered(f"{priority}", 5))
    client.ask("consume", name=name, group=name, topic=name, pop="yes")
    got = client.await_bodies([name], [body for priority in range(4) for body in numbered(f"{priority}", 5)])
    client.ask("stop", name=name)
    assert got[0]["queueId"] == 3
    assert len(got) == 20
