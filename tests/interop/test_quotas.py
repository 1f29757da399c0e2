"""Official clients over a quota are slowed and lose nothing."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.conftest import Drivers, clients
from tests.interop.messages import hexed
from tests.interop.peers import FireArrow, Peer, address
from tests.interop.toolchain import java_class_path, need
from tests.quotas.limited import IN, OUT, quotas_of, set_quota
from tests.support.client_socket import ClientSocket
from tests.support.requests import topic_ext

CLIENTS = ("java5", *(pytest.param(name, marks=pytest.mark.long) for name in ("java4", "go")))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need(lambda: java_class_path("client5"))
    with FireArrow(tmp_path_factory.mktemp("quotas") / "store", {"brokerName": "broker-a"}) as peer:
        yield peer


@pytest.mark.parametrize("name", CLIENTS)
def test_nothing_is_lost(broker: Peer, drivers: Drivers, tmp_path: Path, name: str) -> None:
    topic, group = f"Quota-{name}", f"quota-{name}"
    with ExitStack() as stack:
        admin = stack.enter_context(ClientSocket(address(broker.address)))
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        assert set_quota(admin, "topic", topic, **{IN: 40, OUT: 40}).code == 0
        client, at = stack.enter_context(clients(broker, drivers, tmp_path))(name, None)
        bodies = hexed(*(f"message {n}" for n in range(160)))
        since = time.monotonic()
        client.ask("send", group=f"P-{topic}", topic=topic, body=bodies, **at)
        assert time.monotonic() - since > 2.5
        row = quotas_of(admin)["topic", topic]
        assert row["delayed"] > 80
        assert row["refused"] == 0
        since = time.monotonic()
        client.ask("consume", name=group, group=group, topic=topic, **at)
        client.await_bodies([group], bodies)
        assert time.monotonic() - since > 2
        client.ask("stop", name=group)
        ends = [
            admin.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue)}).ext["offset"]
            for queue in range(4)
        ]
        assert sum(map(int, ends)) == 160, "each was stored once"
