"""Troubles of topics: each is made at a real broker, and found."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.records import GroupConfig
from tests.doctor.heartbeats import beat
from tests.doctor.running import doctor_of
from tests.integration.test_transactions import SOON, await_check, join, prepare
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send, send_ext, topic_ext


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("topics") / "store") as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ClientSocket]:
    with broker.connect() as connection:
        yield connection


def make(client: ClientSocket, topic: str, queues: int = 4, **changes: str) -> None:
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues) | changes).code == 0


def test_a_topic_that_no_group_reads(broker: BrokerProcess, client: ClientSocket) -> None:
    make(client, "Unread")
    assert doctor_of(broker).about("topic Unread") == {}, "it is empty"
    assert send(client, "Unread", b"m").code == 0
    assert doctor_of(broker).about("topic Unread").keys() == {"topics-without-groups"}
    with broker.connect() as member:
        beat(member, "Reader", "a", {"Unread": "*"})
        assert doctor_of(broker).about("topic Unread") == {}


def test_a_topic_with_one_queue(broker: BrokerProcess, client: ClientSocket) -> None:
    make(client, "Single", 1)
    assert send(client, "Single", b"m").code == 0
    finding = doctor_of(broker).about("topic Single")["one-queue-topics"]
    assert finding["severity"] == "NOTE"
    assert "firearrow topic set Single --queues" in finding["fix"]


def test_queues_that_nobody_can_read(broker: BrokerProcess, client: ClientSocket) -> None:
    make(client, "Hidden", readQueueNums="2")
    for queue_id in range(4):
        assert send(client, "Hidden", b"m", queue_id).code == 0
    finding = doctor_of(broker).about("topic Hidden")["unreadable-queues"]
    assert finding["severity"] in ("WARNING", "CRITICAL")
    assert "4 write queues and 2 read queues" in finding["found"]


def test_messages_far_beyond_the_read_queues(broker: BrokerProcess, client: ClientSocket) -> None:
    """The topic had 40 queues; those next to the ones that it has now are empty."""
    make(client, "Far", 40)
    for _ in range(3):
        assert send(client, "Far", b"m", 30).code == 0
    make(client, "Far", 2)
    finding = doctor_of(broker).about("topic Far")["unreadable-queues"]
    assert finding["severity"] == "CRITICAL"
    assert "the others hold 3 messages, unread: 3" in finding["found"]
    assert "firearrow topic set Far --read-queues 31" in finding["fix"]


def test_delay_levels_beyond_the_table(tmp_path: Path) -> None:
    """Messages that asked for such a level, groups whose retries need one, and messages that wait in one since the
    table became shorter."""
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        assert doctor_of(broker).findings == []
        for level in ("18", "20", "30"):
            ext = send_ext("Late", i=f"DELAY\x01{level}\x02")
            assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"m").code == 0
        body = GroupConfig(group="Stubborn", retries_max=20).encode()
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
        said = doctor_of(broker)
        beyond = said.about("topic Late")["delay-levels-beyond"]
        assert beyond["found"].startswith("2 messages asked")
        assert "after 2h" in beyond["why"]
        retries = said.about("group Stubborn")["retries-beyond-levels"]
        assert retries["severity"] == "NOTE"
        assert "retry 20 times, which needs delay level 22" in retries["found"]
        assert broker.stop() == 0
    with BrokerProcess(tmp_path / "store", "--set", "messageDelayLevel=1s 5s") as broker:
        (finding,) = doctor_of(broker).of("removed-delay-levels")
    assert finding["found"] == "3 messages wait in delay levels 18, and messageDelayLevel has 2"


def test_transactions_that_were_discarded(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "store", *SOON, "--set", "transactionCheckMax=1") as broker,
        broker.connect() as client,
    ):
        assert doctor_of(broker).of("discarded-transactions") == []
        with broker.connect() as silent:  # it is asked once, and leaves
            join(silent)
            prepare(client, "Tx", b"forgotten")
            await_check(silent)
        (finding,) = eventually(lambda: doctor_of(broker).of("discarded-transactions"))
    assert finding["found"].startswith("1 transaction was discarded, as no producer ended them in all checks")
    assert "firearrow tx list --discarded" in finding["fix"]


@pytest.mark.parametrize(("perm", "word"), [("4", "write"), ("2", "read")])
def test_a_topic_without_a_permission(
    broker: BrokerProcess, client: ClientSocket, perm: str, word: str
) -> None:
    make(client, f"Perm{perm}", perm=perm)
    finding = doctor_of(broker).about(f"topic Perm{perm}")["topic-permissions"]
    assert finding["found"].endswith(f"no client may {word} it")


def test_skewed_queues(broker: BrokerProcess, client: ClientSocket) -> None:
    make(client, "Skew")
    make(client, "Even")
    for number in range(1000):
        assert send(client, "Even", b"m", number % 4).code == 0
        assert send(client, "Skew", b"m", 2 if number % 10 else number // 10 % 4).code == 0
    said = doctor_of(broker)
    assert "queue 2 at" in said.about("topic Skew")["skewed-queues"]["found"]
    assert "skewed-queues" not in said.about("topic Even")


@pytest.mark.parametrize(("size", "is_big"), [((1 << 20) - 500, False), (1 << 20, True)])
def test_big_messages(broker: BrokerProcess, client: ClientSocket, size: int, is_big: bool) -> None:
    topic = f"Big{size}"
    make(client, topic)
    assert send(client, topic, bytes(size)).code == 0
    found = doctor_of(broker).about(f"topic {topic}")
    assert ("big-messages" in found) == is_big
    if is_big:
        assert "1.0 MiB" in found["big-messages"]["found"]


@pytest.mark.parametrize(("by_s", "words"), [(3630, "1h0m ahead of"), (-7230, "2h0m behind")])
def test_a_client_with_a_wrong_clock(
    broker: BrokerProcess, client: ClientSocket, by_s: int, words: str
) -> None:
    topic = f"Clock{abs(by_s)}"
    make(client, topic)
    born_ms = time.time_ns() // 1_000_000 + by_s * 1000
    assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, g=str(born_ms)), b"m").code == 0
    finding = doctor_of(broker).about(f"topic {topic}")["client-clocks"]
    assert words in finding["found"]
    assert "127.0.0.1" in finding["found"]


def test_a_delayed_message_is_no_wrong_clock(broker: BrokerProcess, client: ClientSocket) -> None:
    """Its store time is later than its born time by its delay."""
    make(client, "Delayed")
    born_ms = time.time_ns() // 1_000_000 - 7_200_000
    ext = send_ext("Delayed", g=str(born_ms), i="DELAY\x011\x02")
    assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"m").code == 0
    eventually(
        lambda: (
            client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Delayed", "queueId": "0"}).integer("offset")
            != 0
        ),
        10,
    )
    assert "client-clocks" not in doctor_of(broker).about("topic Delayed")
