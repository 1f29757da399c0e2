"""Queues taken away from a topic: what is unread in them is not lost from sight."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.client.conftest import unique
from tests.interop.peers import BROKER, FireArrow, Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.command_line import Ran, here
from tests.support.requests import send


class Shop:
    """A broker, ours or Apache's, and topics of four queues."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.client = ClientSocket(address(peer.address))

    def firearrow(self, *words: str) -> Ran:
        return here(*words, name_server=self.peer.name_server)

    def topic(self, *messages: int) -> str:
        """A new topic with four queues, and as many messages in each."""
        name = unique("shrink")
        assert self.firearrow("topic", "create", name, "--queues", "4").code == 0
        for queue, count in enumerate(messages):
            for _ in range(count):
                assert send(self.client, name, b"x", queue).code == 0
        return name

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        self.client.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"%s"}' % group.encode()
        )
        ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue), "commitOffset": str(offset)}
        assert self.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0

    def queues(self, topic: str) -> tuple[int, int]:
        """Write and read queues."""
        config = json.loads(self.client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).body)
        return config["writeQueueNums"], config["readQueueNums"]

    def findings(self, topic: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.firearrow("doctor", "--json").lines
        return [
            each
            for each in found
            if each.get("subject") == f"topic {topic}" and "read queues" in each["found"]
        ]


@pytest.fixture
def shop(peer: Peer) -> Iterator[Shop]:
    made = Shop(peer)
    yield made
    made.client.close()


def test_fewer_queues_are_refused_with_the_numbers_of_each_group(shop: Shop) -> None:
    topic = shop.topic(5, 5, 5, 5)
    for queue in range(4):
        shop.commit(f"billing-{topic}", topic, queue, 5)
        shop.commit(f"audit-{topic}", topic, queue, 2)
    ran = shop.firearrow("topic", "set", topic, "--queues", "2", "--yes")
    assert ran.code == 1
    assert ran.lines == [{"group": f"audit-{topic}", "broker": BROKER, "queues": 2, "unread": 6}]
    assert f"6 of group audit-{topic}" in ran.err
    assert f"firearrow topic shrink {topic} --queues 2" in ran.err
    assert shop.queues(topic) == (4, 4)
    assert shop.firearrow("topic", "set", topic, "--read-queues", "2", "--yes").code == 1
    for queue in (2, 3):
        shop.commit(f"audit-{topic}", topic, queue, 5)
    assert shop.firearrow("topic", "set", topic, "--queues", "2", "--yes").code == 0
    assert shop.queues(topic) == (2, 2)
    assert not shop.findings(topic)


def test_a_topic_without_groups_hides_nothing_silently(shop: Shop) -> None:
    topic = shop.topic(1, 1, 3, 4)
    ran = shop.firearrow("topic", "set", topic, "--queues", "2", "--yes")
    assert (ran.code, ran.lines) == (1, [{"group": "", "broker": BROKER, "queues": 2, "unread": 7}])
    assert "hold 7 messages, and no group reads it" in ran.err
    assert shop.firearrow("topic", "shrink", topic, "--queues", "2", "--yes").code == 1
    assert shop.queues(topic) == (2, 4)
    empty = shop.topic()
    assert shop.firearrow("topic", "set", empty, "--queues", "1", "--yes").code == 0
    assert shop.queues(empty) == (1, 1)


def test_shrink_takes_write_queues_first_and_goes_on_when_it_is_run_again(shop: Shop) -> None:
    topic = shop.topic(5, 5, 5, 5)
    for queue in range(4):
        shop.commit(f"slow-{topic}", topic, queue, 1)
    dry = shop.firearrow("topic", "shrink", topic, "--queues", "1", "--dry-run")
    assert (dry.code, dry.lines[0]["unread"]) == (0, 12)
    assert shop.queues(topic) == (4, 4)
    ran = shop.firearrow("topic", "shrink", topic, "--queues", "1", "--wait", "0.5", "--yes")
    assert (ran.code, ran.lines[0]["unread"]) == (1, 12)
    assert shop.queues(topic) == (1, 4)
    [finding] = shop.findings(topic)
    assert f"12 of group slow-{topic}" in finding["found"]
    assert "topic shrink" in finding["fix"]

    again: list[Ran] = []
    thread = threading.Thread(
        target=lambda: again.append(shop.firearrow("topic", "shrink", topic, "--queues", "1", "--yes"))
    )
    thread.start()
    for queue in (1, 2, 3):
        with ClientSocket(address(shop.peer.address)) as other:
            ext = {
                "consumerGroup": f"slow-{topic}",
                "topic": topic,
                "queueId": str(queue),
                "commitOffset": "5",
            }
            assert other.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
    thread.join(30)
    assert (again[0].code, again[0].lines[0]["stranded"]) == (0, 0)
    assert shop.queues(topic) == (1, 1)
    assert not shop.findings(topic)
    assert shop.firearrow("topic", "shrink", topic, "--queues", "1", "--yes").code == 0


def test_read_queues_do_not_become_fewer_than_those_that_are_written(shop: Shop) -> None:
    topic = shop.topic()
    ran = shop.firearrow("topic", "set", topic, "--read-queues", "2", "--yes")
    assert ran.code == 1
    assert "producers write to 4 queues" in ran.err
    assert shop.queues(topic) == (4, 4)
    assert shop.firearrow("topic", "set", topic, "--read-queues", "2", "--force", "--yes").code == 0
    assert shop.queues(topic) == (4, 2)


def test_shrink_keeps_what_others_change_while_it_waits(shop: Shop) -> None:
    topic = shop.topic(1, 1, 1, 1)
    shop.commit(f"slow-{topic}", topic, 0, 1)
    ran: list[Ran] = []
    thread = threading.Thread(
        target=lambda: ran.append(shop.firearrow("topic", "shrink", topic, "--queues", "1", "--yes"))
    )
    thread.start()
    until = time.monotonic() + 20
    while shop.queues(topic) != (1, 4) and time.monotonic() < until:
        time.sleep(0.05)
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "1", "perm": "4"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert shop.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
    for queue in (1, 2, 3):
        shop.commit(f"slow-{topic}", topic, queue, 1)
    thread.join(30)
    assert ran[0].code == 0
    assert shop.queues(topic) == (1, 1)
    config = json.loads(shop.client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).body)
    assert config["perm"] == 4


def test_mqadmin_is_obeyed_and_both_log_and_doctor_say_what_is_lost(shop: Shop) -> None:
    """updateTopic of Java's command line takes the queues away at once."""
    topic = shop.topic(5, 5, 5, 5)
    for queue in range(4):
        shop.commit(f"billing-{topic}", topic, queue, 5)
        shop.commit(f"audit-{topic}", topic, queue, 3)
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6"}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    assert shop.client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
    assert shop.queues(topic) == (2, 2)
    log = shop.peer.broker.log.read_text() if isinstance(shop.peer, FireArrow) else ""
    assert not log or f"topic {topic} has 2 read queues now, it had 4" in log
    assert not log or f"hold 10 messages; unread: 4 of group audit-{topic};" in log
    [finding] = shop.findings(topic)
    assert finding["severity"] == "CRITICAL"
    assert f"4 of group audit-{topic}" in finding["found"]
    assert f"firearrow topic set {topic} --read-queues 4" in finding["fix"]
    shop.commit(f"new-{topic}", topic, 0, 5)  # which never had the queues that are away
    for queue in (2, 3):
        shop.commit(f"audit-{topic}", topic, queue, 5)
    assert not shop.findings(topic)
    [row] = [row for row in shop.firearrow("group", "list", "-l").lines if row["group"] == f"new-{topic}"]
    assert row["lag"] == 5  # of queue 1, which it can be given
    assert shop.firearrow("topic", "shrink", topic, "--queues", "2", "--yes").code == 0
    assert shop.firearrow("topic", "set", topic, "--read-queues", "4", "--yes").code == 0
    ran = shop.firearrow("topic", "set", topic, "--queues", "2", "--yes")
    assert (ran.code, ran.lines[0]["group"], ran.lines[0]["unread"]) == (1, f"new-{topic}", 10)
    assert shop.firearrow("topic", "set", topic, "--queues", "2", "--force", "--yes").code == 0
    assert shop.queues(topic) == (2, 2)
