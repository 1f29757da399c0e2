"""What quotas did is counted, and the fast path serves clients that are throttled."""

from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.metrics.scrapes import WatchedBroker, value
from tests.quotas.limited import BYTES_IN, IN, OUT, SYSTEM_BUSY, make_topic, pull, send, set_quota
from tests.support.client_socket import ClientSocket
from tests.support.requests import runtime_info, send_ext


def test_they_are_counted(tmp_path: Path) -> None:
    with WatchedBroker(tmp_path / "store", "--set", "fastPath=true") as broker:
        with broker.connect() as connection, broker.connect() as other:
            make_topic(connection)
            assert "firearrow_quota_throttled_total" not in {
                name for name, (_, series) in broker.scrape().items() if series
            }
            assert set_quota(connection, "topic", "T", **{IN: 100}).code == 0
            sent = [
                connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x" * 100)
                for _ in range(120)
            ]
            assert {connection.answer_to(opaque).code for opaque in sent} == {0}
            fast = "".join(text for name, text in runtime_info(connection).items() if "fastPath" in name)
            assert "quota" not in fast, "all were handled by the fast path"
            _refuse_one(connection, other)
            assert set_quota(connection, "group", "CG", **{OUT: 1}).code == 0
            assert pull(connection, 0, 2).code == 0
        found = broker.scrape()
    throttled, refused = "firearrow_quota_throttled_total", "firearrow_quota_refused_total"
    assert 15 <= value(found, throttled, entity="topic", quota=IN) <= 20
    assert value(found, refused, entity="topic", quota=BYTES_IN) == 1
    assert value(found, throttled, entity="group", quota=OUT) == 1


def _refuse_one(connection: ClientSocket, other: ClientSocket) -> None:
    assert set_quota(connection, "topic", "T", **{IN: None, BYTES_IN: 1000}).code == 0
    assert send(connection, b"x" * 4000).code == 0
    assert send(other).code == SYSTEM_BUSY
