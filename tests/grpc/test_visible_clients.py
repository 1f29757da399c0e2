"""Clients of gRPC in lists, metrics and status, with their protocol, beside those of remoting."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.integration.pops import pop_ext
from tests.metrics.scrapes import WatchedBroker, value
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic
from tests.support.requests import send

VERSION = [("x-mq-client-version", '5.1"2')]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """With a consumer and a producer of gRPC, and a client of remoting."""
    store: Path = tmp_path_factory.mktemp("visible") / "store"
    with (
        WatchedBroker(store) as running,
        running.connect() as connection,
        GrpcCaller(running.address, "consumer@1", VERSION) as consumer,
        GrpcCaller(running.address, "producer@2") as producer,
    ):
        create_topic(connection, "T")
        create_group(connection, "G")
        consumer.consume("G", "T", kind="PUSH_CONSUMER")
        producer.produce("T")
        producer.send("T", b"grpc")
        assert consumer.receive("G", "T", auto_renew=True)
        send(connection, "T", b"remoting")
        yield running


def test_clients_are_listed_with_their_protocol(broker: WatchedBroker) -> None:
    assert broker.name_server is not None
    name_server = "{}:{}".format(*broker.name_server)
    rows = {row["clientId"]: row for row in here("clients", "list", name_server=name_server).rows}
    one = rows["consumer@1"]
    assert (one["protocol"], one["language"], one["version"]) == ("grpc", "PYTHON", '5.1"2')
    assert (one["groups"], one["producerGroups"]) == (["G"], [])
    assert (rows["producer@2"]["protocol"], rows["producer@2"]["producerGroups"]) == ("grpc", ["T"])
    of_group = here("clients", "list", "--group", "G", name_server=name_server).rows
    assert [row["clientId"] for row in of_group] == ["consumer@1"]
    with broker.connect() as connection:
        answer = json.loads(connection.ask(RequestCode.LIST_CONNECTIONS, {}).body)
    listed = {each["clientId"]: each for each in answer["connections"]}
    assert (listed["consumer@1"]["clientVersion"], listed["consumer@1"]["toNameServer"]) == ('5.1"2', False)
    assert listed["consumer@1"]["requests"]["calls"] >= 2
    assert {each["protocol"] for each in answer["connections"]} == {"grpc", "remoting"}


def test_metrics_have_the_protocol(broker: WatchedBroker) -> None:
    scraped = broker.scrape()
    own = {"language": "python", "protocol_type": "grpc"}
    assert value(scraped, "rocketmq_consumer_connections", consumer_group="G", **own) == 1
    assert value(scraped, "rocketmq_producer_connections", **own) == 1
    assert value(scraped, "firearrow_connections", **own, version='5.1"2') == 1
    assert value(scraped, "firearrow_renewed_messages") == 1
    assert value(scraped, "firearrow_renewals_refused_total") == 0
    count, sent = "rocketmq_rpc_latency_milliseconds_count", {"request_code": "send_message_v2"}
    popped = {"request_code": "pop_message", "response_code": "success"}
    assert value(scraped, count, protocol_type="grpc", **sent) == 1
    assert value(scraped, count, protocol_type="grpc", **popped) >= 1
    assert value(scraped, count, protocol_type="remoting", **popped) == 0
    with broker.connect() as connection:
        assert connection.ask(RequestCode.POP_MESSAGE, pop_ext("T", consumerGroup="G")).code == 0
    assert value(broker.scrape(), count, protocol_type="remoting", **popped) == 1


def test_the_status_has_the_protocol(broker: WatchedBroker) -> None:
    status = json.loads(broker.get("/status")[2])
    assert status["counts"]["renewedMessages"] == 1
    found = [each for each in status["connections"] if each["protocol"] == "grpc"]
    assert [(each["language"], each["count"]) for each in found] == [("python", 1)] * 2


def test_several_clients_of_a_connection_are_listed_and_one_can_be_closed(broker: WatchedBroker) -> None:
    with broker.connect() as connection, GrpcCaller(broker.address, "first@1") as shared:
        shared.produce("T")
        shared.metadata = [("x-mq-client-id", "second@2"), ("x-mq-language", "RUST")]
        shared.produce("T")
        rows = of(connection, "first@1", "second@2")
        assert len({row["address"] for row in rows}) == 1
        assert [row["language"] for row in rows] == ["PYTHON", "RUST"]
        answer = connection.ask(RequestCode.CLOSE_CONNECTION, {"clientId": "second@2"})
        assert json.loads(answer.body) == {"closed": 1}
        eventually(lambda: of(connection, "first@1", "second@2") == [])


def test_a_client_leaves_the_groups_that_its_new_settings_do_not_name(broker: WatchedBroker) -> None:
    """Else their queues would be a member's that reads none, and its silence there would end the client."""
    with broker.connect() as connection, GrpcCaller(broker.address, "changes@1") as caller:
        for name in ("Before", "After"):
            create_topic(connection, f"{name}-T")
            create_group(connection, f"{name}-G")
        stream = caller.consume("Before-G", "Before-T")
        [row] = of(connection, "changes@1")
        assert (row["groups"], row["producerGroups"]) == (["Before-G"], [])
        subscription = {"group": {"name": "After-G"}, "subscriptions": []}
        stream.send(settings={"client_type": "SIMPLE_CONSUMER", "subscription": subscription})
        stream.receive()
        [row] = of(connection, "changes@1")
        assert (row["groups"], row["producerGroups"]) == (["After-G"], [])
        for topics in (["Before-T", "After-T"], ["After-T"]):
            publishing = {"topics": [{"name": topic} for topic in topics]}
            stream.send(settings={"client_type": "PRODUCER", "publishing": publishing})
            stream.receive()
            [row] = of(connection, "changes@1")
            assert (row["groups"], row["producerGroups"]) == ([], sorted(topics))


def of(connection: ClientSocket, *client_ids: str) -> list[dict[str, Any]]:
    answer = json.loads(connection.ask(RequestCode.LIST_CONNECTIONS, {}).body)
    return [each for each in answer["connections"] if each["clientId"] in client_ids]
