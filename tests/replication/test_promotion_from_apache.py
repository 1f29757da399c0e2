"""A slave of Apache's masters takes over while delayed and timer messages are delivered: each comes once."""

import time
from pathlib import Path

import pytest

from tests.interop.toolchain import java_class_path, need
from tests.replication.pairs import words
from tests.replication.taking_over import LEVELS, MESSAGES, each_comes_once, fill, in_the_middle
from tests.replication.test_slave_of_apache import SLAVE, Pair
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "is_killed",
    [pytest.param(True, id="killed"), pytest.param(False, id="stopped", marks=pytest.mark.long)],
)
def test_delayed_messages_come_once(tmp_path: Path, version: str, is_killed: bool) -> None:
    need(lambda: java_class_path("client5" if version == "5.5.0" else "broker4"))
    pair = Pair(tmp_path, version, **LEVELS)
    try:
        promoted(pair, is_killed=is_killed)
    finally:
        pair.close()


def promoted(pair: Pair, *, is_killed: bool) -> None:
    """The master is killed in the middle of its deliveries, and the slave killed or stopped; then it is the master."""
    with pair.slave(**LEVELS) as slave, slave.connect() as reader:
        with pair.connect() as master:
            fill(master, 0, timers=pair.version == "5.5.0")
            in_the_middle(master, reader, 0)
        pair.master.kill()
        time.sleep(0.1)
        if is_killed:
            slave.kill()
        else:
            assert slave.stop() == 0
    options = SLAVE | LEVELS | {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}
    for _ in range(2):  # the second time after a kill of the new master
        with BrokerProcess(pair.folder / "slave", *words(options)) as broker:
            each_comes_once(broker, MESSAGES)
            broker.kill()
