"""A topic that is deleted and recreated: consumers that go on with old offsets are sent to its beginning."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import COMMIT, SUBSCRIPTION, SUSPEND, pull, pull_ext, records, send, topic_ext

FOUND, NOT_FOUND, MOVED = 0, 19, 21
HELD = str(SUBSCRIPTION | SUSPEND)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("again") / "store") as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def fill(connection: ClientSocket, topic: str, count: int, queue_id: int = 0) -> None:
    for n in range(count):
        assert send(connection, topic, b"%d" % n, queue_id).code == 0


def pulled_to(connection: ClientSocket, topic: str, offset: int, queue_id: int = 0, **more: str) -> None:
    """The group has pulled the queue up to the offset."""
    answer = pull(connection, topic, 0, queue_id, maxMsgNums=str(offset), **more)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (FOUND, str(offset))


def delete(connection: ClientSocket, topic: str) -> None:
    assert connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0


def create(connection: ClientSocket, topic: str, queues: int = 4) -> None:
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues)).code == 0


def is_sent_to_the_first(answer: RemotingCommand) -> bool:
    return (answer.code, answer.ext.get("nextBeginOffset")) == (MOVED, "0")


def join(connection: ClientSocket, topic: str, group: str, model: str = "CLUSTERING") -> None:
    member = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
    }
    body = {"clientID": "c", "consumerDataSet": [member], "producerDataSet": []}
    assert connection.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode()).code == 0


def commit(connection: ClientSocket, topic: str, offset: int, group: str = "CG") -> None:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(connection: ClientSocket, topic: str, group: str = "CG") -> int:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
    answer = connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int(answer.ext["offset"]) if answer.code == 0 else -1


@pytest.mark.parametrize("made", ["by request", "by a send"])
def test_a_pull_that_was_held_meanwhile(broker: BrokerProcess, made: str) -> None:
    topic = f"Held-{made[-4:].strip()}"
    with broker.connect() as consumer, broker.connect() as admin:
        fill(admin, topic, 10)
        pulled_to(consumer, topic, 10)
        ext = pull_ext(topic, 10, sysFlag=HELD, suspendTimeoutMillis="15000")
        opaque = consumer.send_request(RequestCode.PULL_MESSAGE, ext)
        consumer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"})
        delete(admin, topic)
        if made == "by request":
            create(admin, topic)
        fill(admin, topic, 1)
        assert is_sent_to_the_first(consumer.answer_to(opaque))
        answer = pull(consumer, topic, 0)
        assert [record.body for record in records(answer.body)] == [b"0"]


def test_an_offset_that_the_new_queue_has_reached_meanwhile(broker: BrokerProcess) -> None:
    with broker.connect() as consumer:
        fill(consumer, "Reached", 10)
        pulled_to(consumer, "Reached", 10)
        delete(consumer, "Reached")
        fill(consumer, "Reached", 15)
        assert is_sent_to_the_first(pull(consumer, "Reached", 10)), "asked where it was"
        assert is_sent_to_the_first(pull(consumer, "Reached", 10)), "as often as it asks"
        pulled_to(consumer, "Reached", 3)
        answer = pull(consumer, "Reached", 10)
        assert len(list(records(answer.body))) == 5, "the group has read the new queue: the offset is its own"


def test_an_offset_that_is_the_end_of_the_new_queue(broker: BrokerProcess) -> None:
    with broker.connect() as consumer:
        fill(consumer, "End", 10)
        pulled_to(consumer, "End", 10)
        delete(consumer, "End")
        fill(consumer, "End", 10)
        assert is_sent_to_the_first(pull(consumer, "End", 10, sysFlag=HELD, suspendTimeoutMillis="15000"))


def test_an_ordinary_offset_past_the_end_leads_to_the_end(broker: BrokerProcess) -> None:
    with broker.connect() as consumer:
        fill(consumer, "Ordinary", 10)
        delete(consumer, "Ordinary")
        fill(consumer, "Ordinary", 3)
        assert is_sent_to_the_first(pull(consumer, "Ordinary", 10))
        answer = pull(consumer, "Ordinary", 11)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (MOVED, "3"), "no queue had this offset"
        pulled_to(consumer, "Ordinary", 3)
        answer = pull(consumer, "Ordinary", 10)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (MOVED, "3"), (
            "the group has read the new queue"
        )
        fresh = pull(consumer, "Ordinary", 3, consumerGroup="Other", sysFlag=str(SUBSCRIPTION))
        assert fresh.code == NOT_FOUND


def test_what_a_member_commits_late_is_not_an_offset_of_the_new_queue(broker: BrokerProcess) -> None:
    with broker.connect() as consumer, broker.connect() as admin:
        fill(admin, "Commits", 10)
        join(consumer, "Commits", "CG")
        pulled_to(consumer, "Commits", 8)
        commit(consumer, "Commits", 7)
        delete(admin, "Commits")
        fill(admin, "Commits", 15)
        commit(consumer, "Commits", 7)
        assert committed(consumer, "Commits") == -1
        carried = pull(consumer, "Commits", 8, sysFlag=str(SUBSCRIPTION | COMMIT), commitOffset="8")
        assert is_sent_to_the_first(carried)
        assert committed(consumer, "Commits") == -1
        commit(admin, "Commits", 5)
        assert committed(consumer, "Commits") == 5, "an operator's commit counts"
        pulled_to(consumer, "Commits", 9)
        commit(consumer, "Commits", 9)
        assert committed(consumer, "Commits") == 9


def test_each_client_of_a_broadcasting_group(broker: BrokerProcess) -> None:
    with broker.connect() as one, broker.connect() as other:
        fill(one, "Broadcast", 10)
        for client in (one, other):
            join(client, "Broadcast", "BG", "BROADCASTING")
            pulled_to(client, "Broadcast", 10, consumerGroup="BG")
        delete(one, "Broadcast")
        fill(one, "Broadcast", 3)
        assert is_sent_to_the_first(pull(one, "Broadcast", 10, consumerGroup="BG"))
        pulled_to(one, "Broadcast", 3, consumerGroup="BG")
        assert is_sent_to_the_first(pull(other, "Broadcast", 10, consumerGroup="BG"))


def test_a_queue_that_is_added_later_and_a_retry_topic(broker: BrokerProcess) -> None:
    with broker.connect() as consumer:
        create(consumer, "Later", 2)
        fill(consumer, "Later", 10, queue_id=1)
        pulled_to(consumer, "Later", 10, queue_id=1)
        delete(consumer, "Later")
        create(consumer, "Later", 1)
        create(consumer, "Later", 2)
        fill(consumer, "Later", 2, queue_id=1)
        assert is_sent_to_the_first(pull(consumer, "Later", 10, queue_id=1))
        join(consumer, "Later", "Retries")
        fill(consumer, "%RETRY%Retries", 4)
        pulled_to(consumer, "%RETRY%Retries", 4, consumerGroup="Retries")
        delete(consumer, "%RETRY%Retries")
        join(consumer, "Later", "Retries")
        fill(consumer, "%RETRY%Retries", 1)
        assert is_sent_to_the_first(pull(consumer, "%RETRY%Retries", 4, consumerGroup="Retries"))


@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_known_after_a_restart(tmp_path: Path, ending: str, when: str) -> None:
    """The broker ends `when` the topic is recreated."""
    with BrokerProcess(tmp_path / "store") as running, running.connect() as consumer:
        for topic in ("Past", "Within"):
            fill(consumer, topic, 10)
            pulled_to(consumer, topic, 10)
            delete(consumer, topic)
        if when == "after":
            fill(consumer, "Past", 3)
            fill(consumer, "Within", 15)
        if ending == "kill":
            running.kill()
        else:
            assert running.stop() == 0
    with BrokerProcess(tmp_path / "store") as running, running.connect() as consumer:
        if when == "before":
            fill(consumer, "Past", 3)
            fill(consumer, "Within", 15)
        assert is_sent_to_the_first(pull(consumer, "Past", 10))
        assert is_sent_to_the_first(pull(consumer, "Within", 10))
        for topic, count in (("Past", 3), ("Within", 15)):
            answer = pull(consumer, topic, 0)
            assert [record.body for record in records(answer.body)] == [b"%d" % n for n in range(count)]
        answer = pull(consumer, "Within", 10)
        assert len(list(records(answer.body))) == 5
