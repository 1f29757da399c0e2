"""Clients in a namespace: what they send, consume, lock and send back has its name at the broker."""

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.conftest import Drivers
from tests.interop.driver import Driver
from tests.interop.messages import hexed
from tests.interop.peers import Peer
from tests.support.client_socket import ClientSocket

pytestmark = pytest.mark.interop

WAYS = [
    ("java5", "setNamespace"),
    ("java5", "setNamespaceV2"),
    ("java4", "setNamespace"),
    ("python", "setNamespace"),
    ("python", "setNamespaceV2"),
]
SHORT = (
    ("java5", "setNamespace", ""),
    ("java5", "setNamespaceV2", "yes"),
    ("python", "setNamespace", "yes"),
    ("python", "setNamespaceV2", ""),
)
"""Each client, kind and order, in two pairs."""


def known_topics(peer: Peer) -> str:
    host, _, port = peer.name_server.partition(":")
    with ClientSocket((host, int(port))) as naming:
        return naming.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body.decode()


@pytest.mark.parametrize(
    ("client", "kind", "orderly"),
    [
        pytest.param(*way, orderly, marks=() if (*way, orderly) in SHORT else pytest.mark.long)
        for way in WAYS
        for orderly in ("", "yes")
    ],
)
def test_a_namespace_is_kept(
    peer: Peer, drivers: Drivers, name: str, client: str, kind: str, orderly: str
) -> None:
    driver: Driver = drivers(client)
    plain, again = hexed("1", "2", "3"), hexed("4")
    space = {"name": name, "namespace": "MQ_INST_1", "kind": kind, "topic": name, "group": f"{name}-g"}
    driver.ask("enter", **space, orderly=orderly, tags="again", body=again)
    found = driver.await_bodies([name], again * 2)
    assert [event["reconsumeTimes"] for event in found] == [0, 1]
    assert {event["topic"] for event in found} == {name}
    driver.ask("leave", name=name)
    driver.ask("enter", **space, orderly=orderly, body=plain)
    found = driver.await_bodies([name], plain)
    assert sorted(event["body"] for event in found if event["body"] in plain) == plain
    driver.ask("leave", name=name)
    topics = known_topics(peer)
    assert f'"MQ_INST_1%{name}"' in topics or kind == "setNamespaceV2"
    assert f'"%RETRY%MQ_INST_1%{name}-g"' in topics or kind == "setNamespaceV2"
