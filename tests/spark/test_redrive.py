"""redrive: dead letters go back to their topics with no retries counted; those without an original topic are named."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from firearrow._native.protocol.name_rules import RETRIED
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import blocking
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import DeadLetter
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.base.provenance import Provenance
from firearrow.spark_tools.jobs.dead_letters import DeadLetterRoute, origin
from firearrow.spark_tools.jobs.redrive import cli
from tests.spark.replaying import Job, bodies, file_hashes, job, stored
from tests.spark.stores import BROKER, SETTINGS, Golden

GROUP = "workers"
ASK_MAX = 2000


@pytest.fixture
def redrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return job(cli, tmp_path, monkeypatch)


@pytest.fixture
def burying(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker with ten dead letters of GROUP: six from Orders, three from Payments, one without an original topic."""
    root = tmp_path / "burying" / BROKER
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS) as broker:
        with blocking.Admin(name_server=broker.name_server) as admin:
            admin.create_topic("Orders", 2)
            admin.create_topic("Payments", 2)
        with blocking.Producer("p", name_server=broker.name_server) as producer:
            for number in range(9):
                topic = "Payments" if number % 3 == 2 else "Orders"
                tags = "late" if number < 3 else "early"
                producer.send(Message(topic, f"poison {number}".encode(), tags=tags, keys=[f"key-{number}"]))
            bury(broker, 9)
            producer.send(Message(f"%DLQ%{GROUP}", b"stray", keys=["stray"]))
        yield broker


def bury(broker: LocalBroker, count: int) -> None:
    """Consume `count` messages and accept none of them."""
    seen = threading.Semaphore(0)

    def handler(messages: Sequence[ReceivedMessage]) -> DeadLetter:
        seen.release(len(messages))
        return DeadLetter()

    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = blocking.PushConsumer(GROUP, name_server=broker.name_server, options=options)
    consumer.subscribe("Orders", handler)
    consumer.subscribe("Payments", handler)
    with consumer:
        for _ in range(count):
            assert seen.acquire(timeout=20)
    queue = MessageQueue(f"%DLQ%{GROUP}", BROKER, 0)
    with blocking.Admin(name_server=broker.name_server) as admin:
        assert any(admin.max_offset(queue) == count for _ in range(ASK_MAX))


def fates(broker: LocalBroker, topic: str) -> list[bytes]:
    return sorted(body for queue in bodies(broker.store, topic).values() for body in queue)


def test_dead_letters_go_back_to_their_topics_with_no_retries(burying: LocalBroker, redrive: Job) -> None:
    before = {topic: fates(burying, topic) for topic in ("Orders", "Payments")}
    letters = stored(burying.store, f"%DLQ%{GROUP}")
    there = ("--target", burying.name_server)
    ran = redrive("--name-server", burying.name_server, "--group", GROUP, *there, "--verify")
    assert ran.code == 0, ran.err
    for topic in ("Orders", "Payments"):
        assert fates(burying, topic) == sorted(2 * before[topic])
        again = [
            record
            for records in stored(burying.store, topic).values()
            for record in records
            if Provenance.of(record.properties)
        ]
        assert sorted(record.body for record in again) == before[topic]
        for record in again:
            assert record.reconsume_times == 0
            assert not RETRIED & record.properties.keys()
            assert {"TAGS", "KEYS", "UNIQ_KEY"} <= record.properties.keys()
            provenance = Provenance.of(record.properties)
            assert provenance is not None
            assert provenance.queue == MessageQueue(f"%DLQ%{GROUP}", BROKER, 0)
    assert stored(burying.store, f"%DLQ%{GROUP}") == letters
    assert ran.report["totals"]["messages"] == 9
    assert ran.report["verification"]["missing"] == 0


def test_a_letter_without_origin_is_named_and_left(burying: LocalBroker, redrive: Job) -> None:
    ran = redrive("--name-server", burying.name_server, "--group", GROUP, "--target", burying.name_server)
    assert ran.code == 0, ran.err
    assert ran.report["totals"]["unrouted"] == 1
    (left,) = ran.report["unrouted"]
    assert (left["topic"], left["queueOffset"], left["keys"]) == (f"%DLQ%{GROUP}", 9, "stray")
    assert "stray" in ran.out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--tags", "late"), {0, 1, 2}),
        (("--keys", "key-4,key-8"), {4, 8}),
        (("--sql", "KEYS = 'key-1'"), {1}),
    ],
)
def test_only_chosen_letters_go_back(
    burying: LocalBroker, redrive: Job, arguments: tuple[str, ...], wanted: set[int]
) -> None:
    with blocking.Admin(name_server=burying.name_server) as admin:
        admin.create_topic("Elsewhere", 1)
    store = ("--path", str(burying.store), "--group", GROUP)
    ran = redrive(*store, *arguments, "--to-topic", "Elsewhere", "--target", burying.name_server)
    assert ran.code == 0, ran.err
    assert fates(burying, "Elsewhere") == [f"poison {number}".encode() for number in sorted(wanted)]


def test_letters_are_chosen_by_the_time_of_their_death(burying: LocalBroker, redrive: Job) -> None:
    """A letter with a later time than all others."""
    dead = f"%DLQ%{GROUP}"
    newest = max(record.store_timestamp for record in stored(burying.store, dead)[BROKER, 0])
    while time.time_ns() // 1_000_000 <= newest:
        pass
    with blocking.Producer("p", name_server=burying.name_server) as producer:
        producer.send(Message(dead, b"late", keys=["late"]))
    with blocking.Admin(name_server=burying.name_server) as admin:
        admin.create_topic("Late", 1)
        admin.create_topic("Early", 1)
    store = ("--path", str(burying.store), "--group", GROUP, "--target", burying.name_server)
    assert redrive(*store, "--from", str(newest + 1), "--to-topic", "Late").code == 0
    assert fates(burying, "Late") == [b"late"]
    assert redrive(*store, "--until", str(newest + 1), "--to-topic", "Early", checkpoint="other").code == 0
    assert fates(burying, "Early") == sorted(
        [b"stray", *(f"poison {number}".encode() for number in range(9))]
    )


def test_another_topic_takes_all_or_those_of_one_origin(burying: LocalBroker, redrive: Job) -> None:
    with blocking.Admin(name_server=burying.name_server) as admin:
        admin.create_topic("Elsewhere", 1)
    store = ("--path", str(burying.store), "--group", GROUP, "--target", burying.name_server)
    assert redrive(*store, "--to-topic", "Elsewhere").code == 0
    assert len(fates(burying, "Elsewhere")) == 10
    assert redrive(*store, "--to-topic", "Payments=Elsewhere", checkpoint="other").code == 0
    assert len(fates(burying, "Elsewhere")) == 13
    assert len(fates(burying, "Orders")) == 12


def test_a_dry_run_counts_and_sends_nothing(burying: LocalBroker, redrive: Job) -> None:
    before = file_hashes(burying.store / "commitlog")
    ran = redrive("--path", str(burying.store), "--group", GROUP, "--dry-run")
    assert ran.code == 0, ran.err
    rows = ran.report["counts"][f"%DLQ%{GROUP}"]
    assert {(row["tag"], row["messages"]) for row in rows} == {("late", 3), ("early", 6), ("", 1)}
    assert file_hashes(burying.store / "commitlog") == before


def test_apaches_dead_letter_goes_back(golden_clean: Golden, redrive: Job, broker: LocalBroker) -> None:
    with blocking.Admin(name_server=broker.name_server) as admin:
        admin.create_topic("GoldenRetry", 1)
    ran = redrive(
        "--path", str(golden_clean.root), "--group", "CG_RETRY", "--target", broker.name_server, "--verify"
    )
    assert ran.code == 0, ran.err
    ((_, (record,)),) = stored(broker.store, "GoldenRetry").items()
    assert record.properties["KEYS"] == "always"
    assert not {"DELAY", "REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"} & record.properties.keys()


def test_a_topic_that_is_gone_is_an_error_that_says_what_to_do(
    golden_clean: Golden, redrive: Job, broker: LocalBroker
) -> None:
    with LocalBroker(settings={"autoCreateTopicEnable": "false"}) as strict:
        ran = redrive("--path", str(golden_clean.root), "--group", "CG_RETRY", "--target", strict.name_server)
    assert ran.code == 1
    assert "GoldenRetry" in ran.report["failures"][0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--path", "s"), "--group: name the consumer group"),
        (("--group", "g", "--topics", "T"), "--group decides what is read"),
    ],
)
def test_wrong_usage_is_one_sentence(redrive: Job, arguments: tuple[str, ...], expected: str) -> None:
    ran = redrive(*arguments, "--target", "127.0.0.1:1")
    assert ran.code == 2
    assert expected in ran.err


# ---- the properties of a letter ----


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "T"}, "T"),
        ({"RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%workers"}, "T"),
        ({"RETRY_TOPIC": "%RETRY%workers", "DLQ_ORIGIN_TOPIC": "T"}, "T"),
        ({"REAL_TOPIC": "T"}, "T"),
        ({"RETRY_TOPIC": "%RETRY%workers_T_1"}, "T_1"),
        ({"RETRY_TOPIC": "%RETRY%workers+T"}, "T"),
        ({"REAL_TOPIC": "%RETRY%workers"}, None),
        ({"RETRY_TOPIC": "%DLQ%workers"}, None),
        ({"RETRY_TOPIC": "SCHEDULE_TOPIC_XXXX"}, None),
        ({"RETRY_TOPIC": "%RETRY%others_T"}, None),
        ({"RETRY_TOPIC": ""}, None),
        ({}, None),
    ],
)
def test_the_origin_comes_from_the_properties(properties: dict[str, str], topic: str | None) -> None:
    assert origin(GROUP, properties) == topic


def test_letters_with_one_sharding_key_stay_together() -> None:
    there = [MessageQueue("T", BROKER, number) for number in range(4)]
    route = DeadLetterRoute(GROUP, {}, lambda topic: there)
    chosen = {route._queue({"RETRY_TOPIC": "T", "__SHARDINGKEY": "customer"}) for _ in range(200)}
    spread = {route._queue({"RETRY_TOPIC": "T"}) for _ in range(300)}
    assert len(chosen) == 1
    assert spread == set(there)
