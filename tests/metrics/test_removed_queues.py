"""Queues that were taken away from a topic: what is left in them is unread, and counts alike in the metrics, in the
status, in the command line and in Apache's consumerProgress (GET_CONSUME_STATS)."""

import json
from pathlib import Path

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from tests.metrics.scrapes import Families, WatchedBroker, value, watched
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.requests import send, topic_ext

COUNTS = {0: 4, 1: 3, 2: 7, 3: 5, 4: 2}
"""Messages of each queue; the group has consumed one of each, and all of the last one."""
LAG = sum(COUNTS.values()) - 4 - 2
STRANDED = 7 - 1 + 5 - 1


def lags(broker: WatchedBroker, connection: ClientSocket) -> dict[str, int]:
    """The group's lag by who reports it."""
    stats = fastjson.loads(connection.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}).body)
    whole = fastjson.loads(connection.ask(RequestCode.GET_BROKER_CONSUME_STATS, {}).body)
    extension = json.loads(connection.ask(RequestCode.GET_LAG, {"group": "G"}).body)["queues"]
    assert broker.name_server is not None
    names = "{}:{}".format(*broker.name_server)
    listed = here("group", "list", "-l", name_server=names).rows
    shown = here("group", "lag", "G", name_server=names).rows
    doctor = here("doctor", name_server=names)
    assert doctor.code in (0, 1), doctor
    families = broker.scrape()
    return {
        "metric": int(value(families, "rocketmq_consumer_lag_messages", consumer_group="G", topic="T")),
        "queues of the metric": int(sum(queue_values(families))),
        "consume stats": sum(
            of["brokerOffset"] - of["consumerOffset"] for of in stats["offsetTable"].values()
        ),
        "broker consume stats": whole["totalDiff"],
        "extension": sum(of["lag"] for of in extension),
        "group list": next(of["lag"] or 0 for of in listed if "G" in (of.get("name"), of.get("group"))),
        "group lag": sum(of["lag"] for of in shown),
    }


def queue_values(families: Families) -> list[float]:
    name = "firearrow_consumer_queue_lag_messages"
    return list(families.get(name, ("", {}))[1].values())


def test_everybody_reports_the_same_lag(tmp_path: Path) -> None:
    with watched(tmp_path / "store") as broker, broker.connect() as connection:
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T", len(COUNTS))).code == 0
        assert (
            connection.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"G"}').code
            == 0
        )
        for queue_id, count in COUNTS.items():
            for _ in range(count):
                assert send(connection, "T", b"x", queue_id).code == 0
            at = {"consumerGroup": "G", "topic": "T", "queueId": str(queue_id)}
            at["commitOffset"] = str(count if queue_id == 4 else 1)
            assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, at).code == 0
        assert set(lags(broker, connection).values()) == {LAG}
        assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T", 2)).code == 0
        seen = lags(broker, connection)
        assert set(seen.values()) == {LAG}, seen
        assert LAG > STRANDED > 0
        assert connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
        assert not any('consumer_group="G"' in line for line in str(broker.scrape()).splitlines())
        assert broker.stop() == 0
