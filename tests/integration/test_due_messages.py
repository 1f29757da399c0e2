"""Messages that are due for a queue or topic that does not exist any more: they go to a queue that is read, or to the
dead letters, and are reported."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.pops import pop
from tests.integration.test_transactions import half_ext, half_of
from tests.metrics.scrapes import WatchedBroker
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.messages import read_messages
from tests.support.requests import send, send_ext, topic_ext
from tests.support.startup import QUICK_REVIVE

SETTINGS = (
    "--set",
    "messageDelayLevel=1s 1s 1s 1s 1s",
    "--set",
    "timerPrecisionMs=100",
    "--set",
    "reviveInterval=100",
    "--set",
    "brokerName=b",
)
LOST = "%DLQ%SCHEDULE_CONSUMER"
DELAY, TIMER = "DELAY\x012\x02", "TIMER_DELAY_MS\x01900\x02"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    with WatchedBroker(
        tmp_path_factory.mktemp("due") / "store", *SETTINGS, environment=QUICK_REVIVE
    ) as broker:
        yield broker
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


@pytest.fixture
def client(broker: WatchedBroker) -> Iterator[ClientSocket]:
    with broker.connect() as client:
        yield client


def ask(client: ClientSocket, code: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    answer = client.ask(code, ext, body)
    assert answer.code == 0, answer.remark
    return answer


def set_queues(client: ClientSocket, topic: str, read: int, write: int | None = None) -> None:
    counts = {"readQueueNums": str(read), "writeQueueNums": str(read if write is None else write)}
    ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, **topic_ext(topic) | counts)


def delete(client: ClientSocket, topic: str) -> None:
    ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


def counts_of(client: ClientSocket, topic: str) -> tuple[int, int]:
    """Read and write queues; of a topic that does not exist, none."""
    table = json.loads(ask(client, RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
    config = table.get(topic, {"readQueueNums": 0, "writeQueueNums": 0})
    return config["readQueueNums"], config["writeQueueNums"]


def in_queues(client: ClientSocket, topic: str) -> dict[int, list[bytes]]:
    """The bodies of each queue that is read and has messages."""
    queues, _ = counts_of(client, topic)
    found = {n: [record.body for record in read_messages(client, topic, n)] for n in range(queues)}
    return {number: bodies for number, bodies in found.items() if bodies}


def until_stored(client: ClientSocket, topic: str, count: int) -> dict[int, list[bytes]]:
    eventually(
        lambda: sum(map(len, in_queues(client, topic).values())) >= count,
        what=lambda: in_queues(client, topic),
    )
    return in_queues(client, topic)


def half(client: ClientSocket, topic: str, queue_id: int) -> dict[str, str]:
    """The decision that commits a new half message."""
    answer = client.ask(
        RequestCode.SEND_MESSAGE_V2, half_ext(topic, f"k-{topic}") | {"e": str(queue_id)}, b"committed"
    )
    made = half_of(answer)
    return {
        "producerGroup": "PG",
        "tranStateTableOffset": made.queue_offset,
        "commitLogOffset": made.physical_offset,
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "",
    }


@pytest.mark.parametrize(("read", "write", "queue_id"), [(2, 2, 1), (2, 4, 1), (4, 2, 1), (3, 0, 2)])
def test_a_queue_that_was_taken_away(client: ClientSocket, read: int, write: int, queue_id: int) -> None:
    topic = f"Fewer-{read}-{write}"
    set_queues(client, topic, 8)
    for properties, body in ((DELAY, b"delayed"), (TIMER, b"timed")):
        assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, 5, i=properties), body).code == 0
    decision = half(client, topic, 5)
    set_queues(client, topic, read, write)
    ask(client, RequestCode.END_TRANSACTION, **decision)
    found = until_stored(client, topic, 3)
    set_queues(client, topic, 8)
    assert in_queues(client, topic) == found
    assert {number: sorted(bodies) for number, bodies in found.items()} == {
        queue_id: [b"committed", b"delayed", b"timed"]
    }


def test_a_topic_that_was_deleted(broker: WatchedBroker, client: ClientSocket) -> None:
    for properties, body in ((DELAY, b"delayed"), (TIMER, b"timed")):
        assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Deleted", 3, i=properties), body).code == 0
    decision = half(client, "Deleted", 3)
    delete(client, "Deleted")
    ask(client, RequestCode.END_TRANSACTION, **decision)
    until_stored(client, LOST, 3)
    letters = read_messages(client, LOST)
    assert sorted(letter.body for letter in letters) == [b"committed", b"delayed", b"timed"]
    for properties in (letter.properties for letter in letters):
        assert properties.get("DLQ_ORIGIN_TOPIC", properties.get("REAL_TOPIC")) == "Deleted"
    assert counts_of(client, "Deleted") == (0, 0)
    families = broker.scrape()
    redirected = families["firearrow_redirected_messages_total"][1]
    assert redirected[frozenset({("topic", "Deleted"), ("to", "dlq")})] == 3
    dead = families["rocketmq_send_to_dlq_messages_total"][1]
    assert (
        sum(count for labels, count in dead.items() if ("consumer_group", "SCHEDULE_CONSUMER") in labels) == 3
    )
    assert "it goes to" in broker.log.read_text()


def retried(client: ClientSocket, group: str, body: bytes) -> None:
    """A consumer of the group sends a message back."""
    sent = send(client, "Work", body)
    offset = str(int(sent.ext["msgId"][-16:], 16))
    ask(
        client,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=offset,
        group=group,
        delayLevel="1",
        originTopic="Work",
    )


def set_group(client: ClientSocket, group: str, retry_queues: int) -> None:
    body = json.dumps({"groupName": group, "retryQueueNums": retry_queues}).encode()
    ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def test_retries_go_to_queues_that_members_know(client: ClientSocket) -> None:
    """retryQueueNums rises: the retry topic gets the queues, and for a while retries go to those from before."""
    set_group(client, "Rising", 1)
    retried(client, "Rising", b"first")
    set_group(client, "Rising", 8)
    assert counts_of(client, "%RETRY%Rising") == (8, 8)
    for _ in range(30):
        retried(client, "Rising", b"x")
    assert list(until_stored(client, "%RETRY%Rising", 31)) == [0]
    set_group(client, "Rising", 2)
    assert counts_of(client, "%RETRY%Rising") == (8, 8), "what is in the other queues is still read"


def test_a_retry_topic_with_fewer_queues_than_its_group_says(client: ClientSocket) -> None:
    set_group(client, "Narrow", 8)
    retried(client, "Narrow", b"first")
    set_queues(client, "%RETRY%Narrow", 2)
    for _ in range(30):
        retried(client, "Narrow", b"x")
    found = until_stored(client, "%RETRY%Narrow", 31)
    assert set(found) <= {0, 1}
    assert len(found) == 2


def test_retries_of_a_deleted_retry_topic(client: ClientSocket) -> None:
    """Of a group that still exists, and of one that does not."""
    for group in ("Stays", "Leaves"):
        set_group(client, group, 1)
        retried(client, group, b"back")
        delete(client, f"%RETRY%{group}")
    ask(client, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="Leaves")
    assert until_stored(client, "%RETRY%Stays", 1) == {0: [b"back"]}
    assert until_stored(client, "%DLQ%Leaves", 1) == {0: [b"back"]}
    assert counts_of(client, "%RETRY%Leaves") == (0, 0)


def test_fewer_revive_queues(tmp_path: Path) -> None:
    """Check points in queues that reviveQueueNum had before are still read."""
    with (
        BrokerProcess(tmp_path / "store", *SETTINGS, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        ask(client, RequestCode.UPDATE_AND_CREATE_TOPIC, **topic_ext("T", 1))
        for number in range(4):  # each pop takes the next revive queue
            send(client, "T", b"%d" % number)
            assert pop(client, "T", invisibleTime="1500").code == 0
    one = "--set", "reviveQueueNum=1"
    with (
        BrokerProcess(tmp_path / "store", *SETTINGS, *one, environment=QUICK_REVIVE) as broker,
        broker.connect() as client,
    ):
        revived = [body for bodies in until_stored(client, "%RETRY%CG_T", 4).values() for body in bodies]
        assert sorted(revived) == [b"%d" % number for number in range(4)]
