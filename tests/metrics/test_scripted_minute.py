"""Sends, pulls, pops, transactions, timers, retries and dead letters, counted by the client and by the metrics."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from firearrow._native.wire.codes import RequestCode
from tests.integration.pops import QUICK, ack, pop, records
from tests.integration.test_transactions import end, prepare
from tests.metrics.scrapes import Families, WatchedBroker, value, watched
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, send, send_ext, topic_ext

GOLDEN = Path(__file__).with_name("apache-5.5.0.prom.gz")
"""A scrape of Apache's broker 5.5.0, with its proxy in LOCAL mode, after the clients of five languages."""
COMMIT, ROLLBACK = 8, 12
GROUP = "CG"


def properties(**pairs: str) -> str:
    return "".join(f"{name}\x01{text}\x02" for name, text in pairs.items())


def play(connection: ClientSocket) -> None:
    """20 plain messages, 5 with a sharding key, 3 large ones, 2 timers, 3 transactions; pulls, pops, retries."""
    for topic, queues in (("Plain", 1), ("Fifo", 1), ("Ended", 2), ("Timed", 1), ("Popped", 1)):
        connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues))
    for number in range(20):
        assert send(connection, "Plain", b"x" * number + b"y").code == 0
    for _ in range(5):
        ext = send_ext("Fifo", i=properties(__SHARDINGKEY="k", TAGS="t"))
        assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, b"ordered").code == 0
    for _ in range(3):
        assert send(connection, "Plain", b"z" * 5000).code == 0
    for _ in range(2):
        ext = send_ext("Timed", i=properties(TIMER_DELAY_SEC="1"))
        assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, b"late").code == 0
    ends = [(b"1", COMMIT), (b"2", ROLLBACK), (b"3", 0)]
    for body, what in ends:
        half = prepare(connection, "Ended", body)
        if what:
            assert end(connection, half, what).code == 0
    assert pull(connection, "Plain", maxMsgNums="4").code == 0
    assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, offset_ext("Plain", 4)).code == 0


def play_pops(connection: ClientSocket) -> None:
    """6 are sent, 4 are popped, 3 acknowledged; then one is sent back twice, and once to the dead letters."""
    for _ in range(6):
        sent = send(connection, "Popped", b"p")
    popped = pop(connection, "Popped", maxMsgNums="4")
    found = records(popped)
    assert len(found) == 4
    for record in found[:3]:
        assert ack(connection, popped, record).code == 0
    back = {
        "offset": str(int(sent.ext["msgId"][-16:], 16)),
        "group": GROUP,
        "originTopic": "Popped",
        "unitMode": "false",
    }
    for level in ("0", "0", "-1"):
        answer = connection.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back | {"delayLevel": level})
        assert answer.code == 0, answer.remark


def offset_ext(topic: str, offset: int) -> dict[str, str]:
    return {"consumerGroup": GROUP, "topic": topic, "queueId": "0", "commitOffset": str(offset)}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WatchedBroker, Families]]:
    store = tmp_path_factory.mktemp("metrics") / "store"
    with watched(store, *QUICK, "--set", "metricsLabel=zone:a") as broker, broker.connect() as connection:
        play(connection)
        play_pops(connection)
        eventually(lambda: value(broker.scrape(), "rocketmq_timer_dequeue_total", topic="Timed") >= 2)
        yield broker, broker.scrape()


EXPECTED = [
    ("rocketmq_messages_in_total", 23, {"topic": "Plain", "message_type": "normal", "is_system": "false"}),
    ("rocketmq_messages_in_total", 5, {"topic": "Fifo", "message_type": "fifo"}),
    ("rocketmq_messages_in_total", 3, {"topic": "Ended", "message_type": "transaction"}),
    ("rocketmq_messages_in_total", 2, {"topic": "Timed", "message_type": "delay"}),
    ("rocketmq_message_size_bucket", 20, {"topic": "Plain", "le": "1024.0"}),
    ("rocketmq_message_size_bucket", 23, {"topic": "Plain", "le": "524288.0"}),
    ("rocketmq_message_size_count", 23, {"topic": "Plain"}),
    ("rocketmq_messages_out_total", 4, {"topic": "Plain", "consumer_group": GROUP, "is_retry": "false"}),
    ("rocketmq_messages_out_total", 4, {"topic": "Popped", "consumer_group": GROUP}),
    ("rocketmq_consumer_lag_messages", 19, {"topic": "Plain", "consumer_group": GROUP, "is_retry": "false"}),
    ("rocketmq_consumer_ready_messages", 19, {"topic": "Plain", "consumer_group": GROUP}),
    ("rocketmq_consumer_inflight_messages", 1, {"topic": "Popped", "consumer_group": GROUP}),
    ("rocketmq_consumer_lag_messages", 3, {"topic": "Popped", "consumer_group": GROUP}),
    ("firearrow_consumer_queue_lag_messages", 19, {"topic": "Plain", "queue_id": "0"}),
    ("rocketmq_commit_messages_total", 1, {"topic": "Ended"}),
    ("rocketmq_rollback_messages_total", 1, {"topic": "Ended"}),
    ("rocketmq_half_messages", 1, {"topic": "Ended"}),
    ("rocketmq_finish_message_latency_milliseconds_count", 1, {"topic": "Ended"}),
    ("rocketmq_timer_enqueue_total", 2, {"topic": "Timed", "storage_medium": "disk"}),
    ("rocketmq_timer_dequeue_total", 2, {"topic": "Timed"}),
    ("rocketmq_timing_messages", 0, {"topic": "Timed"}),
    ("rocketmq_delay_message_latency_seconds_count", 2, {"topic": "Timed"}),
    ("rocketmq_pop_revive_in_message_total", 1, {"topic": "Popped", "revive_message_type": "CK"}),
    ("rocketmq_pop_revive_in_message_total", 3, {"topic": "Popped", "revive_message_type": "ACK"}),
    ("rocketmq_send_to_dlq_messages_total", 1, {"topic": "Popped", "consumer_group": GROUP}),
    ("firearrow_retried_messages_total", 2, {"consumer_group": GROUP}),
    ("firearrow_dead_letters", 1, {"consumer_group": GROUP}),
    ("firearrow_open_half_messages", 1, {}),
    ("firearrow_connections", 1, {"language": "python", "version": "v5_5_0"}),
    ("rocketmq_broker_permission", 6, {}),
]


@pytest.mark.parametrize(
    ("name", "number", "labels"), EXPECTED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_metrics_count_what_the_client_did(
    scraped: tuple[WatchedBroker, Families], name: str, number: float, labels: dict[str, str]
) -> None:
    assert value(scraped[1], name, **labels) == number


ROUNDS = 60
GROWING = ("rocketmq_messages_in_total", "rocketmq_commit_messages_total", "rocketmq_rollback_messages_total")
GROWING += (
    "rocketmq_timer_enqueue_total",
    "rocketmq_send_to_dlq_messages_total",
    "firearrow_retried_messages_total",
)
GROWING += ("rocketmq_message_size_count", "firearrow_dead_letters", "firearrow_open_half_messages")


def test_an_hour_of_them_is_counted(tmp_path: Path) -> None:
    """As often as an hour has minutes; what grows with each round is ROUNDS times as large."""
    with watched(tmp_path / "store", *QUICK) as broker, broker.connect() as connection:
        for _ in range(ROUNDS):
            play(connection)
            play_pops(connection)
        timers = 2 * ROUNDS
        eventually(lambda: value(broker.scrape(), "rocketmq_timer_enqueue_total", topic="Timed") >= timers)
        families = broker.scrape()
        for name, number, labels in EXPECTED:
            if name in GROWING:
                assert value(families, name, **labels) == number * ROUNDS, (name, labels)


def test_requests_are_counted_by_code_and_way(scraped: tuple[WatchedBroker, Families]) -> None:
    families = scraped[1]
    by_code = families["rocketmq_rpc_latency_milliseconds_count"][1]
    sends = sum(n for own, n in by_code.items() if ("request_code", "send_message_v2") in own)
    assert sends == 20 + 5 + 3 + 2 + 3 + 6
    ways = families["firearrow_requests_total"][1]
    assert sum(n for own, n in ways.items() if ("request", "send") in own) == sends
    assert sum(n for own, n in ways.items() if ("request", "pull") in own) == 1
    assert value(families, "firearrow_send_latency_seconds_count") == sends


def test_every_series_has_the_labels_of_the_options(scraped: tuple[WatchedBroker, Families]) -> None:
    for name, (_, series) in scraped[1].items():
        if not name.startswith("target"):
            assert all(("zone", "a") in own for own in series), name


def test_both_formats_say_the_same(scraped: tuple[WatchedBroker, Families]) -> None:
    broker = scraped[0]
    text, open_metrics = broker.scrape(), broker.scrape(open_metrics=True)
    assert text.keys() == open_metrics.keys()
    assert {n: f[1].keys() for n, f in text.items()} == {n: f[1].keys() for n, f in open_metrics.items()}
    _, _, body = broker.get("/metrics", Accept_Encoding="gzip")
    assert gzip.decompress(body).startswith(b"# HELP ")


APACHE_LABELS = {
    "rocketmq_messages_in_total": {"topic", "message_type", "is_system"},
    "rocketmq_throughput_in_total": {"topic", "message_type", "is_system"},
    "rocketmq_messages_out_total": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_throughput_out_total": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_consumer_lag_messages": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_consumer_lag_latency_milliseconds": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_consumer_inflight_messages": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_consumer_queueing_latency_milliseconds": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_consumer_ready_messages": {"topic", "consumer_group", "is_retry", "is_system"},
    "rocketmq_send_to_dlq_messages_total": {"consumer_group", "topic", "is_system"},
    "rocketmq_half_messages": {"topic"},
    "rocketmq_commit_messages_total": {"topic"},
    "rocketmq_rollback_messages_total": {"topic"},
    "rocketmq_finish_message_latency_milliseconds_count": {"topic"},
    "rocketmq_rpc_latency_milliseconds_count": {
        "protocol_type",
        "request_code",
        "response_code",
        "is_long_polling",
        "result",
    },
    "rocketmq_storage_size_bytes": {"storage_type", "storage_medium"},
    "rocketmq_storage_flush_behind_bytes": {"storage_type", "storage_medium"},
    "rocketmq_storage_dispatch_behind_bytes": {"storage_type", "storage_medium"},
    "rocketmq_storage_message_reserve_time_milliseconds": {"storage_type", "storage_medium"},
    "rocketmq_timer_enqueue_lag": {"storage_type", "storage_medium"},
    "rocketmq_timer_dequeue_latency_milliseconds": {"storage_type", "storage_medium"},
    "rocketmq_timing_messages": {"storage_type", "storage_medium", "topic"},
    "rocketmq_timer_enqueue_total": {"storage_type", "storage_medium", "topic"},
    "rocketmq_timer_dequeue_total": {"storage_type", "storage_medium", "topic"},
    "rocketmq_delay_message_latency_seconds_count": {"storage_type", "storage_medium", "topic"},
    "rocketmq_pop_revive_in_message_total": {
        "topic",
        "consumer_group",
        "revive_message_type",
        "put_status",
    },
    "rocketmq_pop_revive_lag_milliseconds": {"queue_id"},
    "rocketmq_pop_revive_latency_milliseconds": {"queue_id"},
    "rocketmq_topic_number": set(),
    "rocketmq_consumer_group_number": set(),
    "rocketmq_topic_create_execution_time_milliseconds_count": {"invocation_status", "is_system"},
    "target_info": set(),
}
"""As Apache's broker 5.5.0 was seen to have them, without those that every series has."""


@pytest.mark.parametrize("name", APACHE_LABELS)
def test_apaches_metrics_have_apaches_labels(scraped: tuple[WatchedBroker, Families], name: str) -> None:
    _, series = scraped[1][name]
    for own in series:
        assert {label for label, _ in own} - {"zone"} == APACHE_LABELS[name], own


def test_types_and_buckets_are_those_of_a_recorded_scrape(scraped: tuple[WatchedBroker, Families]) -> None:
    ours, checked = scraped[1], 0
    for family in text_string_to_metric_families(gzip.decompress(GOLDEN.read_bytes()).decode()):
        for sample in family.samples:
            if sample.name in ours:
                checked += 1
                assert ours[sample.name][0] == family.type, sample.name
                apaches = set(sample.labels) - {"cluster", "node_type", "node_id", "otel_scope_name"}
                own = next(iter(ours[sample.name][1]))
                assert apaches == {label for label, _ in own} - {"zone"}, sample
        bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
        if bounds and (found := ours.get(f"{family.name}_bucket")) is not None:
            assert bounds == {dict(own)["le"] for own in found[1]}, family.name
    assert checked > 100


NOT_BASE = {"hours", "minutes", "days", "milliseconds", "microseconds", "nanoseconds", "ms", "us", "percent"}
NOT_BASE |= {"kilobytes", "megabytes", "gigabytes", "kb", "mb", "bits"}
TYPES = {"counter", "gauge", "histogram", "summary"}


def test_promtool_has_no_remark_on_our_families(scraped: tuple[WatchedBroker, Families]) -> None:
    """Its rules: help, base units, `_total` for counters and for nothing else, no type in a name. Apache's names are
    as they are."""
    text = scraped[0].get("/metrics")[2].decode()
    assert "# HELP target_info " in text
    families = [family for family in text_string_to_metric_families(text) if family.name != "target_info"]
    ours = [family for family in families if family.name.startswith("firearrow_")]
    assert len(ours) > 30
    for family in families:
        assert family.documentation, family.name
    for family in ours:
        words = set(family.name.split("_"))
        assert not words & (NOT_BASE | TYPES), family.name
        assert family.name.islower()
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
