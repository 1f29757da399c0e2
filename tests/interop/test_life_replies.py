"""Request and reply between two clients, in two processes or in one."""

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long), "python"])
def client(request: pytest.FixtureRequest, drivers: Drivers) -> Driver:
    return drivers(str(request.param))


def test_replies_reach_the_requester(client: Driver, name: str) -> None:
    client.ask("send", group=f"{name}-answers", topic=name, tags="silent", body=hexed("makes the topic"))
    client.ask("reply", name=name, group=f"{name}-answers", topic=name)
    one = client.ask("request", group=f"{name}-one", topic=name, body=hexed("first", "second"))
    two = client.ask("request", group=f"{name}-two", topic=name, body=hexed("third"))
    assert [event["body"] for event in one + two] == hexed("re: first", "re: second", "re: third")
    assert {event["event"] for event in one + two} == {"reply"}
    assert {event["topic"] for event in one + two} == {"DefaultCluster_REPLY_TOPIC"}
    assert len({event["properties"]["CORRELATION_ID"] for event in one + two}) == 3
    [late] = client.ask(
        "request", group=f"{name}-one", topic=name, tags="silent", timeoutMs=300, body=hexed("unheard")
    )
    assert late["event"] == "late"
    client.ask("stopReply", name=name)


def test_a_reply_to_a_client_that_is_gone_is_kept(client: Driver, name: str) -> None:
    """The requester left before the reply: it is stored in the reply topic, and the replier gets an error."""
    client.ask("send", group=f"{name}-answers", topic=name, tags="silent", body=hexed("makes the topic"))
    [late] = client.ask("request", group=f"{name}-asks", topic=name, timeoutMs=200, body=hexed("bye"))
    assert late["event"] == "late"
    client.ask("stopProducer", group=f"{name}-asks")
    client.ask("reply", name=name, group=f"{name}-answers", topic=name)
    client.await_count(name, 1)
    client.ask("stopReply", name=name)
    [answered] = client.consumed(name)
    assert (answered["type"], answered["code"]) == ("MQClientException", 1)
