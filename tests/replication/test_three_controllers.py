"""Brokers of ours under three controllers of Apache's: the controllers' leader dies, then the master."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.ports import free_port
from tests.interop.toolchain import java_class_path, need
from tests.replication.controllers import TOPIC, Controllers, broker_under, sent, takes_writes
from tests.replication.pairs import end_of
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import read_queue

pytestmark = [pytest.mark.interop, pytest.mark.long]
NAME, WITHIN_S = "ours", 60


@pytest.fixture(params=["DLedger", "jRaft"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Controllers]]:
    need(lambda: java_class_path("client5"))
    peers = [free_port() for _ in range(3)]
    with ExitStack() as stack:
        running = []
        for number in range(3):
            running.append(Controllers(tmp_path / f"controller{number}", peers, number, request.param))
            stack.callback(running[-1].kill)
        yield running


def leader_of(group: list[Controllers]) -> Controllers:
    """The one that the others name."""
    found: list[Controllers] = []

    def is_known() -> bool:
        named = {each.leader() for each in group}
        found[:] = [each for each in group if each.address in named]
        return len(named) == len(found) == 1

    eventually(is_known, WITHIN_S, "one leader of the controllers")
    return found[0]


def await_members(group: list[Controllers], epoch: int) -> None:
    def is_whole() -> bool:
        info = leader_of(group).replica_info(NAME)
        return (info["set"], info["epoch"]) == ([1, 2], epoch)

    eventually(is_whole, WITHIN_S, f"both members in epoch {epoch}")


def test_the_leader_of_the_controllers_dies_then_the_master(group: list[Controllers], tmp_path: Path) -> None:
    settings = group[0].settings(NAME) | {
        "controllerAddr": ";".join(each.address for each in group),
        "namesrvAddr": ";".join(each.name_server for each in group),
    }
    brokers: list[BrokerProcess] = []
    try:
        brokers.append(broker_under(tmp_path / "a", 0, **settings))
        eventually(lambda: takes_writes(brokers[0].address), WITHIN_S, "a master")
        brokers.append(broker_under(tmp_path / "b", 0, **settings))
        await_members(group, 1)
        sent(brokers[0].address, 20)
        first = leader_of(group)
        first.kill()
        end = sent(brokers[0].address, 20)
        group.remove(first)
        await_members(group, 1)
        with brokers[1].connect() as connection:
            eventually(lambda: end_of(connection) == end, WITHIN_S, "the whole log at the slave")
        brokers[0].kill()
        eventually(lambda: takes_writes(brokers[1].address), WITHIN_S, "the slave as the master")
        with brokers[1].connect() as connection:
            found = [record.body for queue in range(4) for record in read_queue(connection, TOPIC, queue)]
        assert sum(body != b"probe" for body in found) == 40
        brokers.append(broker_under(tmp_path / "a", brokers[0].address[1], **settings))
        await_members(group, 2)
    finally:
        for broker in brokers:
            broker.kill()
