"""supportActingMaster: while a master is gone, the slave with the smallest id stands in its place in routes."""

from typing import Any

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.tables.routes import MinBrokerChange
from tests.support.name_server_harness import NameServerHarness, config, register_body
from tests.support.peers import RecordedPeer

MEMBERS = "rmq_sys_SYNC_BROKER_MEMBER_a"
MASTER, SLAVE, SECOND = ("10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911")
BODY = register_body(config("T1"), config("Closed", perm=2), config(MEMBERS, 1, 1))


def join(harness: NameServerHarness, broker_id: int, address: str, **ext: object) -> RecordedPeer:
    """One broker of the name; returns its connection."""
    peer = RecordedPeer()
    fields: dict[str, Any] = {"enableActingMaster": "true", "body": BODY} | ext
    assert harness.register(peer, broker_id=broker_id, address=address, **fields).code == 0
    return peer


def shown(harness: NameServerHarness, topic: str = "T1") -> tuple[dict[str, str], int]:
    """Addresses by id, and the permission."""
    route = harness.route(topic)
    assert route is not None
    return route["brokerDatas"][0]["brokerAddrs"], route["queueDatas"][0]["perm"]


def members(harness: NameServerHarness) -> dict[str, str]:
    answer = harness.call(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a")
    found: dict[str, str] = fastjson.loads(answer.body)["brokerMemberGroup"]["brokerAddrs"]
    return found


def test_the_smallest_slave_stands_as_master_until_that_is_back() -> None:
    harness = NameServerHarness({"supportActingMaster": "true"})
    master = join(harness, 0, MASTER)
    join(harness, 2, SECOND)
    join(harness, 1, SLAVE)
    assert shown(harness) == ({"0": MASTER, "1": SLAVE, "2": SECOND}, 6)
    master.close()
    assert shown(harness) == ({"0": SLAVE, "2": SECOND}, 4)
    assert shown(harness, "Closed") == ({"0": SLAVE, "2": SECOND}, 0)
    assert shown(harness, MEMBERS) == ({"1": SLAVE, "2": SECOND}, 1)
    assert members(harness) == {"1": SLAVE, "2": SECOND}
    later = register_body(config("T1"), config("New"), counter=2)
    join(harness, 1, SLAVE, body=later)
    assert shown(harness, "New") == ({"0": SLAVE, "2": SECOND}, 4)
    join(harness, 0, MASTER)
    assert shown(harness) == ({"0": MASTER, "1": SLAVE, "2": SECOND}, 6)
    assert shown(harness, "New")[0]["0"] == MASTER


@pytest.mark.parametrize(
    ("support", "enabled", "seen"),
    [
        ("false", "true", ({"1": SLAVE}, 4)),
        ("true", "false", ({"1": SLAVE}, 6)),
        ("true", None, ({"1": SLAVE}, 6)),
    ],
)
def test_routes_stay_without_the_option_of_both(
    support: str, enabled: str | None, seen: tuple[dict[str, str], int]
) -> None:
    harness = NameServerHarness({"supportActingMaster": support})
    master = join(harness, 0, MASTER, enableActingMaster=enabled)
    join(harness, 1, SLAVE, enableActingMaster=enabled)
    master.close()
    assert shown(harness) == seen


def test_a_silent_master_is_dropped_after_its_own_time() -> None:
    harness = NameServerHarness({"supportActingMaster": "true"})
    join(harness, 0, MASTER, heartbeatTimeoutMillis=10_000)
    join(harness, 1, SLAVE, heartbeatTimeoutMillis=10_000)
    for _ in range(2):
        harness.clock.advance(7000)
        harness.call(RequestCode.BROKER_HEARTBEAT, brokerName="a", brokerAddr=SLAVE, clusterName="C")
    harness.routes.expire()
    assert shown(harness)[1] == 4


def test_brokers_are_told_who_is_the_smallest() -> None:
    harness = NameServerHarness()
    join(harness, 1, SLAVE)
    assert harness.changes == []
    master = join(harness, 0, MASTER)
    assert harness.changes.pop() == MinBrokerChange(0, MASTER, "", "10.0.0.1:10912", [SLAVE])
    second = join(harness, 2, SECOND)
    master.close()
    change = harness.changes.pop()
    assert change == MinBrokerChange(1, SLAVE, MASTER, "", [SLAVE, SECOND])
    assert change.ext() == {"minBrokerId": "1", "minBrokerAddr": SLAVE, "offlineBrokerAddr": MASTER}
    second.close()
    assert harness.changes == []
