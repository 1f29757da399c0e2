"""Lags of groups that have neither members nor lag in a topic are left out, unless an option asks for them."""

from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.metrics.scrapes import Families, value, watched
from tests.support.consumer_groups import commit, heartbeat, make_group
from tests.support.requests import pull, send, topic_ext

LAGS = (
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_ready_messages",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_queueing_latency_milliseconds",
    "firearrow_consumer_queue_lag_messages",
    "firearrow_consumer_queue_lag_seconds",
)


def rows(families: Families, name: str) -> set[tuple[str, str]]:
    """Group and topic of each series."""
    series = families.get(name, ("", {}))[1]
    return {(dict(own)["consumer_group"], dict(own)["topic"]) for own in series}


def test_groups_without_members_and_lag_have_no_series(tmp_path: Path) -> None:
    with watched(tmp_path / "store") as broker, broker.connect() as connection:
        for group in ("Idle", "Behind", "Online"):
            make_group(connection, group)
        for topic in ("A", "B"):
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2)).code == 0
            for queue in (0, 0, 1):
                assert send(connection, topic, b"x", queue).code == 0
            for group in ("Idle", "Behind", "Online"):
                commit(connection, group, topic, 0, 2)
                commit(connection, group, topic, 1, 0 if (group, topic) == ("Behind", "A") else 1)
        assert pull(connection, "A", 0, 0, consumerGroup="Idle").code == 0
        heartbeat(connection, "Online", "A")
        families = broker.scrape()
        wanted = {("Behind", "A"), ("Online", "A")}
        assert {name: rows(families, name) for name in LAGS} == dict.fromkeys(LAGS, wanted)
        assert value(families, "rocketmq_messages_out_total", consumer_group="Idle", topic="A") == 2
        assert value(families, "rocketmq_consumer_lag_messages", consumer_group="Behind", topic="A") == 1
        changed = connection.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"metricsIdleGroups=true\n")
        assert changed.code == 0, changed.remark
        every = {(group, topic) for group in ("Idle", "Behind", "Online") for topic in ("A", "B")}
        families = broker.scrape()
        assert {name: rows(families, name) for name in LAGS} == dict.fromkeys(LAGS, every)
        assert len(families["firearrow_consumer_queue_lag_messages"][1]) == 2 * len(every)
