"""LIST_BROKER_FAULTS: brokers that the name server lost, refused, or knew at two addresses at a time."""

from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.tables.broker_faults import FAULTS_MAX, KEPT_MS, BrokerFaults, Fault
from tests.support.clock import ManualClock
from tests.support.name_server_harness import HERE, NameServerHarness
from tests.support.peers import RecordedPeer


def peer() -> RecordedPeer:
    return RecordedPeer(local=HERE)


def faults(harness: NameServerHarness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fastjson.loads(harness.call(RequestCode.LIST_BROKER_FAULTS).body)["faults"]
    return found


def kinds(harness: NameServerHarness) -> list[tuple[str, str]]:
    return [(each["fault"], each["address"]) for each in faults(harness)]


def test_a_broker_that_disconnects_is_lost_until_it_registers() -> None:
    harness, first, again = NameServerHarness(), peer(), peer()
    harness.register(first)
    assert faults(harness) == []
    first.close()
    (lost,) = faults(harness)
    assert lost == {
        "fault": "lost",
        "cluster": "C",
        "broker": "a",
        "brokerId": 0,
        "address": "10.0.0.1:10911",
        "other": "",
        "ageMs": 0,
        "reason": "",
    }
    harness.register(again, address="10.0.0.2:10911")
    assert faults(harness) == [], "it has moved"


def test_a_silent_broker_is_lost() -> None:
    harness = NameServerHarness()
    harness.register(peer(), heartbeatTimeoutMillis=1000)
    harness.clock.advance(1001)
    harness.routes.expire()
    harness.clock.advance(500)
    (lost,) = faults(harness)
    assert (lost["fault"], lost["ageMs"]) == ("lost", 500)


def test_a_broker_that_unregisters_is_not_lost() -> None:
    """Neither at once, nor after its connection has ended, when an operator asks for it."""
    harness, first = NameServerHarness(), peer()
    ext = {"brokerName": "a", "brokerId": 0, "clusterName": "C", "brokerAddr": "10.0.0.1:10911"}
    harness.register(first)
    harness.call(RequestCode.UNREGISTER_BROKER, **ext)
    first.close()
    assert faults(harness) == []
    second = peer()
    harness.register(second)
    second.close()
    assert kinds(harness) == [("lost", "10.0.0.1:10911")]
    harness.call(RequestCode.UNREGISTER_BROKER, **ext)
    assert faults(harness) == []


def test_a_refused_registration_has_its_reason_until_one_is_accepted() -> None:
    harness, one = NameServerHarness(), peer()
    harness.register(peer())
    assert harness.register(one, broker_id=1, address="10.0.0.2:10911", cluster="D").code != 0
    (refused,) = faults(harness)
    assert (refused["fault"], refused["brokerId"]) == ("refused", 1)
    assert "is registered with the cluster C" in refused["reason"]
    assert harness.register(one, broker_id=1, address="10.0.0.2:10911").code == 0
    assert faults(harness) == []


def test_another_living_broker_of_the_name_has_replaced_it() -> None:
    harness = NameServerHarness()
    harness.register(peer())
    harness.register(peer(), address="10.0.0.2:10911")
    (replaced,) = faults(harness)
    assert (replaced["fault"], replaced["address"], replaced["other"]) == (
        "replaced",
        "10.0.0.2:10911",
        "10.0.0.1:10911",
    )


def test_a_broker_that_restarts_replaces_none() -> None:
    """At another address, or at the same one on a new connection, before or after the old one has ended."""
    harness, old, new = NameServerHarness(), peer(), peer()
    harness.register(old)
    harness.register(new)
    harness.register(new)
    assert faults(harness) == []
    old.close()
    assert faults(harness) == []
    new.close()
    harness.register(peer(), address="10.0.0.2:10911")
    assert faults(harness) == []


def test_two_brokers_of_one_address_take_turns() -> None:
    harness, one, two = NameServerHarness(), peer(), peer()
    for each in (one, two, two):
        harness.register(each)
        assert faults(harness) == []
    harness.register(one)
    (replaced,) = faults(harness)
    assert replaced["address"] == replaced["other"] == "10.0.0.1:10911"


def test_they_are_bounded_and_end() -> None:
    clock = ManualClock()
    table = BrokerFaults(clock)
    for number in range(FAULTS_MAX + 2):
        table.add(Fault.LOST, "C", f"b{number}", 0, "10.0.0.1:10911")
    found = list(table.to_objects())
    assert len(found) == FAULTS_MAX
    assert found[0]["broker"] == f"b{FAULTS_MAX + 1}"
    clock.advance(KEPT_MS + 1)
    assert list(table.to_objects()) == []
