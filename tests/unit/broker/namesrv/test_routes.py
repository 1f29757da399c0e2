"""Routes: what a name server returns after brokers registered, changed, went silent and disconnected."""

import json

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables import routes as bounds
from tests.support.name_server_harness import HERE, NameServerHarness, config, register_body
from tests.support.peers import RecordedPeer


def addresses(harness: NameServerHarness, topic: str = "T1") -> dict[str, dict[str, str]]:
    route = harness.route(topic)
    assert route is not None
    return {broker["brokerName"]: broker["brokerAddrs"] for broker in route["brokerDatas"]}


def queues(harness: NameServerHarness, topic: str, broker: str = "a") -> dict[str, int]:
    route = harness.route(topic)
    assert route is not None
    return next(data for data in route["queueDatas"] if data["brokerName"] == broker)


def test_route_of_an_unknown_topic_is_refused_with_the_faq() -> None:
    answer = NameServerHarness().call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="X")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == (
        "No topic route info in name server for the topic: X\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_old_clients_get_bare_keys_and_new_ones_standard_json() -> None:
    harness = NameServerHarness({"orderMessageEnable": "true"})
    harness.register(broker="bröker", __ZONE_NAME="z")
    harness.call(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T1", value="a:4")

    def body(version: int, **ext: str) -> bytes:
        ext["topic"] = "T1"
        return harness.ask(RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext, version=version)).body

    bare = body(400)
    assert b'"brokerAddrs":{0:"10.0.0.1:10911"}' in bare
    assert "bröker".encode() in bare
    assert bare == body(0)
    for standard in (body(401), body(0, acceptStandardJsonOnly="true")):
        assert b'"brokerAddrs":{"0":"10.0.0.1:10911"}' in standard
        assert b"br\\u00f6ker" in standard
        assert json.loads(standard) == fastjson.loads(bare)
    assert json.loads(body(401)) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "10.0.0.1:10911"},
                "brokerName": "bröker",
                "cluster": "C",
                "enableActingMaster": False,
                "zoneName": "z",
            }
        ],
        "filterServerTable": {},
        "orderTopicConf": "a:4",
        "queueDatas": [
            {
                "brokerName": "bröker",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }


def test_no_order_config_unless_enabled() -> None:
    harness = NameServerHarness()
    harness.register()
    harness.call(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T1", value="a:4")
    route = harness.route("T1")
    assert route is not None
    assert "orderTopicConf" not in route


def test_two_brokers_serve_one_topic() -> None:
    harness = NameServerHarness()
    harness.register(broker="a", address="10.0.0.1:1")
    harness.register(broker="b", address="10.0.0.2:1")
    assert addresses(harness) == {"a": {"0": "10.0.0.1:1"}, "b": {"0": "10.0.0.2:1"}}
    answer = harness.call(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.body == (
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:1"},"brokerName":"a","cluster":"C",'
        b'"enableActingMaster":false},"b":{"brokerAddrs":{0:"10.0.0.2:1"},"brokerName":"b","cluster":"C",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"C":["a","b"]}}'
    )


def test_a_slave_learns_its_master_and_leaves_the_topics_alone() -> None:
    harness = NameServerHarness()
    harness.register(broker_id=0, address="10.0.0.1:1", haServerAddr="10.0.0.1:2")
    body = register_body(config("T1", 9), config("T3"), counter=7)
    answer = harness.register(broker_id=1, address="10.0.0.2:1", body=body)
    assert answer.ext == {"haServerAddr": "10.0.0.1:2", "masterAddr": "10.0.0.1:1"}
    assert addresses(harness) == {"a": {"0": "10.0.0.1:1", "1": "10.0.0.2:1"}}
    assert queues(harness, "T1")["readQueueNums"] == 4
    assert harness.route("T3") is None
    group = harness.call(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a")
    assert group.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:1",1:"10.0.0.2:1"},"brokerName":"a","cluster":"C"}}'
    )


def test_the_slave_of_a_new_broker_registers_topics_while_it_is_the_lowest() -> None:
    harness = NameServerHarness()
    harness.register(broker_id=1, address="10.0.0.2:1", enableActingMaster="false")
    assert addresses(harness) == {"a": {"1": "10.0.0.2:1"}}
    other = NameServerHarness()
    other.register(broker_id=1, address="10.0.0.2:1")
    assert other.route("T1") is None


def test_a_slave_that_becomes_master_is_not_listed_twice() -> None:
    harness = NameServerHarness()
    harness.register(broker_id=1, address="10.0.0.2:1", enableActingMaster="false")
    harness.register(broker_id=0, address="10.0.0.2:1")
    assert addresses(harness) == {"a": {"0": "10.0.0.2:1"}}


def test_a_broker_of_the_same_name_and_id_takes_over_unless_its_state_is_older() -> None:
    harness = NameServerHarness()
    first, second, third = (RecordedPeer(local=HERE) for _ in range(3))
    harness.register(first, address="10.0.0.1:1", body=register_body(config("T1"), config("T2"), state=5))
    older = harness.register(
        second, address="10.0.0.9:1", body=register_body(config("T1"), config("T2"), state=4)
    )
    assert (older.code, older.ext) == (0, {})
    assert addresses(harness) == {"a": {"0": "10.0.0.1:1"}}
    harness.register(third, address="10.0.0.3:1", body=register_body(config("T1"), config("T2"), state=5))
    assert addresses(harness) == {"a": {"0": "10.0.0.3:1"}}
    first.close()
    assert addresses(harness) == {"a": {"0": "10.0.0.3:1"}}


def test_a_name_belongs_to_one_cluster() -> None:
    harness = NameServerHarness()
    harness.register(cluster="C")
    answer = harness.register(cluster="D", broker_id=1, address="10.0.0.2:1")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "cluster C" in answer.remark


def test_an_address_that_registers_under_another_name_leaves_the_old_one() -> None:
    harness = NameServerHarness()
    harness.register(broker="a")
    harness.register(broker="b")
    assert addresses(harness) == {"b": {"0": "10.0.0.1:10911"}}


def test_the_first_registration_must_hold_more_than_one_topic() -> None:
    harness = NameServerHarness()
    answer = harness.register(body=register_body(config("T1")))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    assert harness.routes.brokers == {}
    assert harness.register(body=register_body()).code == 0
    assert harness.register(body=register_body(config("T1"), counter=2)).code == 0
    assert harness.route("T1") is not None


def test_topics_change_with_the_data_version_and_new_ones_are_always_added() -> None:
    harness = NameServerHarness()
    harness.register(body=register_body(config("T1", 4), config("T2", 4), counter=1))
    harness.register(body=register_body(config("T1", 8), config("T3", 8), counter=1))
    assert queues(harness, "T1")["readQueueNums"] == 4
    assert queues(harness, "T3")["readQueueNums"] == 8
    harness.register(body=register_body(config("T1", 8), counter=2))
    assert queues(harness, "T1")["readQueueNums"] == 8
    assert harness.route("T2") is not None


def test_missing_topics_are_deleted_only_if_enabled() -> None:
    harness = NameServerHarness({"deleteTopicWithBrokerRegistration": "true"})
    harness.register()
    harness.register(broker="b", address="10.0.0.2:1")
    harness.register(body=register_body(config("T2"), config("T3"), counter=2))
    assert set(addresses(harness, "T1")) == {"b"}
    assert set(addresses(harness, "T3")) == {"a"}


def test_silent_brokers_expire_and_are_disconnected() -> None:
    harness = NameServerHarness()
    quiet, lively, short = (RecordedPeer(local=HERE) for _ in range(3))
    harness.register(quiet, broker="a", address="10.0.0.1:1")
    harness.register(lively, broker="b", address="10.0.0.2:1")
    harness.register(short, broker="c", address="10.0.0.3:1", heartbeatTimeoutMillis=1000)
    harness.clock.advance(1000)
    harness.routes.expire()
    assert set(addresses(harness)) == {"a", "b", "c"}
    harness.clock.advance(1)
    harness.routes.expire()
    assert set(addresses(harness)) == {"a", "b"}
    assert short.closed
    beat = harness.call(
        RequestCode.BROKER_HEARTBEAT, clusterName="C", brokerAddr="10.0.0.2:1", brokerName="b"
    )
    assert beat.code == 0
    harness.clock.advance(bounds.TIMEOUT_MS - 1000)
    harness.routes.expire()
    assert set(addresses(harness)) == {"b"}
    assert (quiet.closed, lively.closed) == (True, False)


def test_a_heartbeat_of_an_unknown_broker_is_answered_and_changes_nothing() -> None:
    harness = NameServerHarness()
    beat = harness.call(
        RequestCode.BROKER_HEARTBEAT, clusterName="C", brokerAddr="10.0.0.2:1", brokerName="b"
    )
    assert (beat.code, dict(harness.routes.brokers)) == (0, {})


def test_a_lost_connection_removes_its_brokers() -> None:
    harness = NameServerHarness()
    one, two = RecordedPeer(local=HERE), RecordedPeer(local=HERE)
    harness.register(one, broker="a", address="10.0.0.1:1")
    harness.register(one, broker="b", address="10.0.0.2:1")
    harness.register(two, broker="c", address="10.0.0.3:1")
    harness.register(two, broker="b", address="10.0.0.2:1")
    one.close()
    assert set(addresses(harness)) == {"b", "c"}
    two.close()
    assert harness.route("T1") is None
    assert (
        harness.call(RequestCode.GET_BROKER_CLUSTER_INFO).body
        == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    )


def test_unregister_removes_the_topics_of_the_last_address() -> None:
    harness = NameServerHarness()
    harness.register(broker_id=0, address="10.0.0.1:1")
    harness.register(broker_id=1, address="10.0.0.2:1")
    fields = {"brokerName": "a", "clusterName": "C"}
    assert (
        harness.call(RequestCode.UNREGISTER_BROKER, brokerAddr="10.0.0.1:1", brokerId=0, **fields).code == 0
    )
    assert addresses(harness) == {"a": {"1": "10.0.0.2:1"}}
    assert (
        harness.call(RequestCode.UNREGISTER_BROKER, brokerAddr="10.0.0.7:1", brokerId=0, **fields).code == 0
    )
    assert (
        harness.call(RequestCode.UNREGISTER_BROKER, brokerAddr="10.0.0.2:1", brokerId=1, **fields).code == 0
    )
    assert harness.route("T1") is None
    assert not harness.routes.topics


def test_query_data_version_returns_the_known_one_and_keeps_alive() -> None:
    harness = NameServerHarness()
    peer = RecordedPeer(local=HERE)
    harness.register(peer)
    ext = {"brokerName": "a", "brokerAddr": "10.0.0.1:10911", "clusterName": "C", "brokerId": "0"}
    known = b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'
    harness.clock.advance(bounds.TIMEOUT_MS)
    same = harness.ask(RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext, known))
    assert (same.code, same.ext, same.body) == (0, {"changed": "false"}, known)
    harness.clock.advance(bounds.TIMEOUT_MS)
    harness.routes.expire()
    assert harness.route("T1") is not None
    other = b'{"counter":2,"timestamp":1700000000000}'
    changed = harness.ask(RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext, other))
    assert (changed.ext, changed.body) == ({"changed": "true"}, known)
    stranger = harness.ask(
        RemotingCommand(RequestCode.QUERY_DATA_VERSION, {**ext, "clusterName": "D"}, known)
    )
    assert (stranger.ext, stranger.body) == ({"changed": "true"}, b"")
    bad = harness.ask(RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext, b"[]"))
    assert bad.code == ResponseCode.SYSTEM_ERROR


def test_wiped_write_permission_holds_until_a_changed_registration() -> None:
    harness = NameServerHarness()
    harness.register(body=register_body(config("T1"), config("T2", perm=7)))
    wiped = harness.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
    assert wiped.ext == {"wipeTopicCount": "2"}
    assert (queues(harness, "T1")["perm"], queues(harness, "T2")["perm"]) == (4, 5)
    harness.register(body=register_body(config("T1"), config("T2", perm=7)))
    assert queues(harness, "T1")["perm"] == 4
    assert harness.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a").ext == {"addTopicCount": "2"}
    assert (queues(harness, "T1")["perm"], queues(harness, "T2")["perm"]) == (6, 6)
    harness.register(body=register_body(config("T2", perm=7), counter=2))
    assert queues(harness, "T2")["perm"] == 7
    assert harness.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="x").ext == {"wipeTopicCount": "0"}


def test_delete_topic_of_all_or_of_a_cluster() -> None:
    harness = NameServerHarness()
    harness.register(broker="a", address="10.0.0.1:1", cluster="C")
    harness.register(broker="b", address="10.0.0.2:1", cluster="D")
    harness.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T1", clusterName="C")
    assert set(addresses(harness, "T1")) == {"b"}
    harness.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T2")
    assert harness.route("T2") is None
    assert harness.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T9").code == 0


def test_register_topic_takes_known_brokers() -> None:
    harness = NameServerHarness()
    harness.register()
    one = {"brokerName": "a", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4, "topicSysFlag": 1}
    body = fastjson.dumps({"queueDatas": [one, {**one, "brokerName": "x"}]})
    request = RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "N"}, body)
    assert harness.ask(request).code == 0
    assert queues(harness, "N") == one
    assert set(addresses(harness, "N")) == {"a"}
    assert harness.ask(RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "M"})).code == 0
    broken = RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "M"}, b'{"queueDatas":[{}]}')
    assert harness.ask(broken).code == ResponseCode.SYSTEM_ERROR


def topic_list(harness: NameServerHarness, code: RequestCode, **ext: str) -> list[str]:
    body: dict[str, list[str]] = json.loads(harness.call(code, **ext).body)
    return sorted(body["topicList"])


def test_topic_lists() -> None:
    harness = NameServerHarness()
    units = [config("plain"), config("unit", flag=1), config("sub", flag=2), config("both", flag=3)]
    harness.register(broker="a", cluster="C", address="10.0.0.1:1", body=register_body(*units))
    harness.register(broker="b", cluster="D", address="10.0.0.2:1")
    everything = ["T1", "T2", "both", "plain", "sub", "unit"]
    assert topic_list(harness, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == everything
    assert topic_list(harness, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="D") == ["T1", "T2"]
    assert topic_list(harness, RequestCode.GET_TOPICS_BY_CLUSTER, cluster="E") == []
    assert topic_list(harness, RequestCode.GET_UNIT_TOPIC_LIST) == ["both", "unit"]
    assert topic_list(harness, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["both", "sub"]
    assert topic_list(harness, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["sub"]
    system = json.loads(harness.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert system["brokerAddr"] in ("10.0.0.1:1", "10.0.0.2:1")
    assert sorted(system["topicList"]) == ["C", "D", "a", "b"]


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("enableAllTopicList", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        ("enableTopicList", RequestCode.GET_TOPICS_BY_CLUSTER),
        ("enableTopicList", RequestCode.GET_UNIT_TOPIC_LIST),
    ],
)
def test_topic_lists_can_be_disabled(option: str, code: RequestCode) -> None:
    answer = NameServerHarness({option: "false"}).call(code, cluster="C")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


def test_routes_wait_for_the_brokers_if_configured() -> None:
    harness = NameServerHarness({"needWaitForService": "true", "waitSecondsForService": "45"})
    harness.register()
    harness.clock.advance(44_999)
    answer = harness.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T1")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    harness.clock.advance(1)
    assert harness.route("T1") is not None


def test_filter_servers_are_returned_with_the_route_until_the_list_is_empty() -> None:
    harness = NameServerHarness()
    harness.register(body=register_body(config("T1"), config("T2"), filters=["10.0.0.1:777"]))
    route = harness.route("T1")
    assert route is not None
    assert route["filterServerTable"] == {"10.0.0.1:10911": ["10.0.0.1:777"]}
    harness.register()
    route = harness.route("T1")
    assert route is not None
    assert route["filterServerTable"] == {}


def test_the_group_of_an_unknown_broker_is_empty() -> None:
    answer = NameServerHarness().call(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="x")
    assert answer.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"C"}}'
