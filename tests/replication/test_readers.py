"""Official clients read on at a slave of ours after its master's death, which is not followed by a promotion."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.driver import Driver
from tests.interop.toolchain import go_driver, java_class_path, need
from tests.replication.pairs import TOPIC
from tests.replication.promoted_pair import PromotedPair
from tests.support.requests import runtime_info, send_ext, topic_ext

pytestmark = pytest.mark.interop
QUEUES = 4
COUNT = 8000
"""More than a consumer holds of its queues, so that it cannot have all before it reads at the slave."""
ROUTES_S = 30
"""How often Go's client asks for routes."""


@pytest.mark.parametrize("client", ["java5", pytest.param("go", marks=pytest.mark.long)])
def test_a_consumer_reads_on(tmp_path: Path, client: str) -> None:
    need(go_driver if client == "go" else lambda: java_class_path("client5"))
    with PromotedPair(tmp_path) as pair, Driver(client, pair.names, tmp_path / "client") as driver:
        with pair.master.connect() as master:
            assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC)).code == 0
            sent = [
                master.send_request(
                    RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, number % QUEUES), b"m%04d" % number
                )
                for number in range(COUNT)
            ]
            assert all(master.answer_to(opaque).code == 0 for opaque in sent)
        pair.caught_up()
        pair.knows(TOPIC)
        driver.ask("consume", name="reader", group="Readers", topic=TOPIC)
        driver.await_queues("reader", QUEUES)  # Go's client asks only a master where a queue begins
        pair.master.kill()
        assert len(driver.consumed("reader")) < COUNT
        driver.await_bodies(["reader"], [(b"m%04d" % number).hex() for number in range(COUNT)], ROUTES_S + 40)
        driver.ask("stop", name="reader")
        with pair.slave.connect() as slave:
            assert int(runtime_info(slave)["msgGetTotalTodayNow"]) > 0
