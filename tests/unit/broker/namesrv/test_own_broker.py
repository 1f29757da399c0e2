"""The broker of the process: its address is the host that the client connected to; no other broker replaces it."""

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables.registration import BrokerAnnouncement, BrokerIdentity
from firearrow.broker.tables.topics import TopicSettings, TopicTable
from tests.support.name_server_harness import HERE, NameServerHarness, register_request
from tests.support.peers import RecordedPeer


def announce(harness: NameServerHarness, host: str = "", permission: int = 6) -> BrokerIdentity:
    topics = TopicTable(harness.clock, TopicSettings(cluster="C", broker="own"))
    identity = BrokerIdentity("C", "own", host, 10911)
    announcement = BrokerAnnouncement.of(identity, topics.version, topics.configs(), permission)
    harness.routes.register(announcement.registration(), None)
    return identity


def address_for(harness: NameServerHarness, local: str) -> tuple[str, str]:
    """What a route and the cluster list return to a client that connected to `local`."""
    peer = RecordedPeer(local=(local, 9876))
    route = harness.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}), peer)
    cluster = harness.ask(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), peer)
    return (
        fastjson.loads(route.body)["brokerDatas"][0]["brokerAddrs"]["0"],
        fastjson.loads(cluster.body)["brokerAddrTable"]["own"]["brokerAddrs"]["0"],
    )


@pytest.mark.parametrize(
    ("local", "address"),
    [
        ("127.0.0.1", "127.0.0.1:10911"),
        ("192.0.2.7", "192.0.2.7:10911"),
        ("::ffff:192.0.2.7", "192.0.2.7:10911"),
        ("2001:db8::1", "[2001:db8::1]:10911"),
    ],
)
def test_each_client_gets_the_host_it_connected_to(local: str, address: str) -> None:
    harness = NameServerHarness()
    announce(harness)
    assert address_for(harness, local) == (address, address)


def test_a_configured_host_is_returned_to_all_clients() -> None:
    harness = NameServerHarness()
    announce(harness, "198.51.100.3")
    assert address_for(harness, "127.0.0.1") == ("198.51.100.3:10911", "198.51.100.3:10911")


def test_other_brokers_are_returned_as_they_registered() -> None:
    harness = NameServerHarness()
    announce(harness)
    harness.register(broker="b", address="10.0.0.2:10911")
    route = harness.route("T1")
    assert route is not None
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.2:10911"}


def test_no_broker_replaces_our_broker() -> None:
    harness = NameServerHarness()
    announce(harness, "10.0.0.1")
    for broker, address in (("own", "10.0.0.9:1"), ("x", "10.0.0.1:10911")):
        answer = harness.register(broker=broker, address=address)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "the broker of this process" in answer.remark
    fields = {"brokerName": "own", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    assert harness.ask(RemotingCommand(RequestCode.UNREGISTER_BROKER, fields)).code == 0
    assert address_for(harness, "127.0.0.1")[0] == "10.0.0.1:10911"


def test_an_outside_address_needs_a_host() -> None:
    harness = NameServerHarness()
    for address in (":10911", "10.0.0.1", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:123456"):
        answer = harness.register(address=address)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "brokerAddr" in answer.remark


def test_our_broker_does_not_expire_and_is_removed_on_request() -> None:
    harness = NameServerHarness()
    identity = announce(harness)
    harness.register(RecordedPeer(local=HERE), broker="own", broker_id=1, address="10.0.0.2:1", cluster="C")
    harness.clock.advance(10_000_000)
    harness.routes.expire()
    assert address_for(harness, "127.0.0.1")[0] == "127.0.0.1:10911"
    harness.routes.unregister(identity.cluster, identity.address(""), own=True)
    assert not harness.routes.brokers


def test_broker_permission_narrows_every_topic() -> None:
    harness = NameServerHarness()
    announce(harness, permission=4)
    route = harness.route("TBW102")
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 4


@pytest.mark.parametrize(
    ("host", "local", "address"),
    [
        ("", "192.0.2.7", "192.0.2.7:10911"),
        ("", "::1", "[::1]:10911"),
        ("192.0.2.1", "192.0.2.7", "192.0.2.1:10911"),
    ],
)
def test_a_slave_of_ours_gets_an_address_with_a_host_and_no_replication(
    host: str, local: str, address: str
) -> None:
    harness = NameServerHarness()
    announce(harness, host)
    slave = register_request(broker="own", broker_id=1, address="192.0.2.9:10911")
    answer = harness.ask(slave, RecordedPeer(local=(local, 9876)))
    assert (answer.code, answer.ext) == (0, {"masterAddr": address})


@pytest.mark.parametrize(
    ("ha_host", "ha_address"), [("", "192.0.2.7:10912"), ("198.51.100.9", "198.51.100.9:10912")]
)
def test_a_slave_of_ours_gets_the_replication_port_with_a_host(ha_host: str, ha_address: str) -> None:
    harness = NameServerHarness()
    topics = TopicTable(harness.clock, TopicSettings(cluster="C", broker="own"))
    identity = BrokerIdentity("C", "own", "", 10911, ha_host=ha_host, ha_port=10912)
    announcement = BrokerAnnouncement.of(identity, topics.version, topics.configs(), 6)
    harness.routes.register(announcement.registration(), None)
    slave = register_request(broker="own", broker_id=1, address="192.0.2.9:10911")
    answer = harness.ask(slave, RecordedPeer(local=("192.0.2.7", 9876)))
    assert answer.ext == {"masterAddr": "192.0.2.7:10911", "haServerAddr": ha_address}
    assert harness.routes.slave_hosts("own") == {"127.0.0.1"}


def test_a_slave_of_another_broker_without_replication_gets_no_address_for_it() -> None:
    harness = NameServerHarness()
    harness.register(broker_id=0, address="192.0.2.1:1", haServerAddr="192.0.2.1:0")
    answer = harness.register(broker_id=1, address="192.0.2.2:1")
    assert answer.ext == {"masterAddr": "192.0.2.1:1"}
