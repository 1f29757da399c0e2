"""Stores in which Apache left popped messages unacknowledged: they are redelivered, each once, despite kills."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.integration.pops import ack_ext, bodies, records, until_popped
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages
from tests.unit.store.test_golden import Golden
from tests.wire_golden.replay import AS_RECORDED

GROUP, TOPIC = "CG_POPRAW", "GoldenPopRaw"
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
OPTIONS = AS_RECORDED | {"reviveInterval": "100"}
SETTINGS = [word for key, value in OPTIONS.items() for word in ("--set", f"{key}={value}")]
PENDING = sorted(b"pop raw %d" % number for number in (1, 2, 3, 4, 7, 8, 10))
"""Of the twelve that were popped by hand five were acknowledged; the others are due, some later."""


def wait_for_revived(connection: ClientSocket, count: int, within_s: float = 30) -> None:
    """The retry topic is created with its first message."""
    ext = {"topic": RETRY, "queueId": "0"}
    eventually(lambda: int(connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"]) >= count, within_s)


@pytest.mark.parametrize("name", ["store-apache", "store-apache-crashed"])
def test_what_apache_left_popped_is_redelivered_once(name: str, tmp_path: Path) -> None:
    root = Golden(name, tmp_path).root
    for count in (0, 1):  # killed before it revives, and during that
        with BrokerProcess(root, *SETTINGS) as broker, broker.connect() as client:
            wait_for_revived(client, count)
    with BrokerProcess(root, *SETTINGS) as broker, broker.connect() as client:
        wait_for_revived(client, len(PENDING))
        found: list[bytes] = []
        while len(found) < len(PENDING):
            answer = until_popped(client, TOPIC, consumerGroup=GROUP, maxMsgNums="3")
            found += bodies(answer)
            for record in records(answer):
                assert record.reconsume_times == 1
                ext = ack_ext(answer, record) | {"consumerGroup": GROUP, "topic": RETRY}
                assert client.ask(RequestCode.ACK_MESSAGE, ext).code == 0
        assert sorted(found) == PENDING
        assert broker.stop() == 0
    with BrokerProcess(root, *SETTINGS) as broker, broker.connect() as client:
        assert sorted(record.body for record in read_messages(client, RETRY)) == PENDING
