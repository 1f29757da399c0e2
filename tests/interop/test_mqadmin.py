"""The commands of Apache's own mqadmin 5.5.0, all in one JVM. It exits 0 whatever happens, so its text is checked."""

import re
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.conftest import Drivers
from tests.interop.driver import Driver, Event
from tests.interop.peers import BROKER, CLUSTER, Peer

pytestmark = pytest.mark.interop

TOPIC, GROUP = "AdminTopic", "AdminGroup"
Mqadmin = Callable[..., str]


@pytest.fixture(scope="module")
def mqadmin(drivers: Drivers) -> Mqadmin:
    def run(*arguments: str) -> str:
        [output] = drivers("java5").ask("mqadmin", argument=list(arguments))
        text = str(output["text"])
        assert "Exception" not in text, text
        return text

    return run


@pytest.fixture(scope="module")
def sent(drivers: Drivers, mqadmin: Mqadmin) -> Iterator[list[Event]]:
    """Four messages in a topic of two queues, read by a group whose one member stays online."""
    java_client = drivers("java5")
    mqadmin("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    bodies = [f"body {number}".encode().hex() for number in range(4)]
    events = java_client.ask(
        "send",
        group="AdminProducer",
        topic=TOPIC,
        how="queue",
        queue=1,
        tags="red",
        keys="key-7",
        body=bodies,
    )
    java_client.ask("consume", name="AdminMember", group=GROUP, topic=TOPIC)
    java_client.await_bodies(["AdminMember"], bodies)
    yield events
    java_client.ask("stop", name="AdminMember")


def row(text: str, *words: str) -> list[str]:
    """The one line with all of the words, split at blanks."""
    rows = [line for line in text.splitlines() if all(word in line.split() for word in words)]
    assert len(rows) == 1, f"{words} in {text}"
    return rows[0].split()


def test_cluster_list(mqadmin: Mqadmin, peer: Peer) -> None:
    assert row(mqadmin("clusterList"), CLUSTER, BROKER)[:4] == [CLUSTER, BROKER, "0", peer.address]


def test_topics_are_made_listed_and_deleted(mqadmin: Mqadmin, peer: Peer) -> None:
    made = mqadmin("updateTopic", "-b", peer.address, "-t", "AdminShort", "-r", "3", "-w", "5", "-p", "6")
    assert f"create topic to {peer.address} success" in made
    assert "AdminShort" in mqadmin("topicList").split()
    route = mqadmin("topicRoute", "-t", "AdminShort")
    assert re.search(r'"readQueueNums":\s*3', route)
    assert re.search(r'"writeQueueNums":\s*5', route)
    assert peer.address in route
    assert CLUSTER in mqadmin("topicClusterList", "-t", "AdminShort").split()
    assert "delete topic [AdminShort] from cluster [DefaultCluster] success" in mqadmin(
        "deleteTopic", "-c", CLUSTER, "-t", "AdminShort"
    )
    assert "AdminShort" not in mqadmin("topicList").split()


def test_topic_status(mqadmin: Mqadmin, sent: list[Event]) -> None:
    text = mqadmin("topicStatus", "-t", TOPIC)
    lines = [line.split() for line in text.splitlines() if line.startswith(BROKER)]
    assert [line[1:4] for line in lines] == [["0", "0", "0"], ["1", "0", "4"]]
    assert lines[1][4].startswith("20")


def test_groups_are_made_and_deleted(mqadmin: Mqadmin, peer: Peer) -> None:
    made = mqadmin("updateSubGroup", "-b", peer.address, "-g", "AdminShortGroup", "-r", "5", "-q", "2")
    assert f"create subscription group to {peer.address} success" in made
    assert "groupName=AdminShortGroup" in made
    deleted = mqadmin("deleteSubGroup", "-b", peer.address, "-g", "AdminShortGroup")
    assert f"delete subscription group [AdminShortGroup] from broker [{peer.address}] success" in deleted


def test_connections(mqadmin: Mqadmin, sent: list[Event]) -> None:
    consumers = mqadmin("consumerConnection", "-g", GROUP)
    assert "@AdminMember" in consumers
    assert "JAVA" in consumers
    assert row(consumers, TOPIC) == [TOPIC, "*"]
    assert "CONSUME_PASSIVELY" in consumers
    producers = mqadmin("producerConnection", "-g", "AdminProducer", "-t", TOPIC)
    assert "@AdminProducer" in producers
    assert "JAVA" in producers


def test_broker_status(mqadmin: Mqadmin, peer: Peer, sent: list[Event]) -> None:
    status = mqadmin("brokerStatus", "-b", peer.address)
    for name in ("brokerVersionDesc", "bootTimestamp", "putTps", "commitLogMaxOffset", "msgPutTotalTodayNow"):
        assert re.search(rf"^{name}\s*:\s*\S", status, re.M), f"{name} in {status}"
    assert int(re.search(r"^commitLogMaxOffset\s*:\s*(\d+)", status, re.M)[1]) > 0  # type: ignore[index]


def test_broker_config_is_read_and_changed(mqadmin: Mqadmin, peer: Peer) -> None:
    def value() -> str:
        config = mqadmin("getBrokerConfig", "-b", peer.address)
        return re.search(r"^flushIntervalCommitLog\s*=\s*(\d+)", config, re.M)[1]  # type: ignore[index]

    before = value()
    for wanted in ("321", before):
        changed = mqadmin(
            "updateBrokerConfig", "-b", peer.address, "-k", "flushIntervalCommitLog", "-v", wanted
        )
        assert f"update broker config success, {peer.address}" in changed
        assert value() == wanted


def test_query_by_ids_keys_and_offset(mqadmin: Mqadmin, sent: list[Event]) -> None:
    first, last = sent[0], sent[-1]
    for command, option, wanted in (
        ("queryMsgById", ("-i", first["offsetMsgId"]), first),
        ("queryMsgByUniqueKey", ("-i", last["msgId"]), last),
        ("queryMsgByOffset", ("-b", BROKER, "-i", "1", "-o", "0"), first),
    ):
        text = mqadmin(command, "-t", TOPIC, *option)
        for name, value in (
            ("(?:Message )?Keys", "key-7"),
            ("Queue Offset", str(wanted["queueOffset"])),
            ("Tags", "red"),
        ):
            shown = re.search(rf"^{name}:\s*(\S+)", text, re.M)
            assert shown, f"{name} in {text}"
            assert shown[1].strip("[]") == value
    keys = mqadmin("queryMsgByKey", "-t", TOPIC, "-k", "key-7")
    positions = [line.split()[1:3] for line in keys.splitlines() if re.match(r"[0-9A-F]{32}", line)]
    assert sorted(positions) == [["1", "0"], ["1", "1"], ["1", "2"], ["1", "3"]]


def test_query_consume_queue(mqadmin: Mqadmin, peer: Peer, sent: list[Event]) -> None:
    text = mqadmin("queryCq", "-b", peer.address, "-t", TOPIC, "-q", "1", "-i", "0", "-c", "3", "-g", GROUP)
    assert "max: 4, min: 0" in text
    assert text.count("physicOffset") == 3


def test_print_and_consume(mqadmin: Mqadmin, sent: list[Event]) -> None:
    printed = mqadmin("printMsg", "-t", TOPIC, "-d", "true")
    consumed = mqadmin("consumeMessage", "-t", TOPIC, "-b", BROKER, "-i", "1", "-o", "0", "-c", "4")
    for text in (printed, consumed):
        for number in range(4):
            assert f"body {number}" in text


def test_send(mqadmin: Mqadmin, sent: list[Event]) -> None:
    text = mqadmin("sendMessage", "-t", "AdminSend", "-p", "from mqadmin", "-k", "k", "-c", "t")
    assert "SEND_OK" in text
    assert "from mqadmin" in mqadmin("printMsg", "-t", "AdminSend", "-d", "true")


def test_offsets_are_reset_at_a_member_on_line(java_client: Driver, mqadmin: Mqadmin, name: str) -> None:
    bodies = [f"again {number}".encode().hex() for number in range(8)]
    java_client.ask("send", group=name, topic=name, body=bodies)
    java_client.ask("consume", name=name, group=name, topic=name)
    java_client.await_bodies([name], bodies)
    text = mqadmin("resetOffsetByTime", "-g", name, "-t", name, "-s", "0")
    assert "rollback" in text.lower() or "reset" in text.lower(), text
    java_client.await_bodies([name], bodies * 2, within_s=60)
    java_client.ask("stop", name=name)


# The member commits its offsets 10 s after its start for the first time: the tests above take that long.


def test_consumer_progress(mqadmin: Mqadmin, sent: list[Event]) -> None:
    deadline = time.monotonic() + 40
    while TOPIC not in (text := mqadmin("consumerProgress", "-g", GROUP)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert row(text, TOPIC, "1")[:4] == [TOPIC, BROKER, "1", "4"]
    assert "Consume TPS" in text


def test_stats_of_all(mqadmin: Mqadmin, sent: list[Event]) -> None:
    deadline, lag = time.monotonic() + 40, ""
    while lag != "0" and time.monotonic() < deadline:
        topic, group, lag = row(mqadmin("statsAll", "-t", TOPIC), TOPIC, GROUP)[:3]
        assert (topic, group) == (TOPIC, GROUP)
        time.sleep(0.2)
    assert lag == "0"


def test_lite_topics(mqadmin: Mqadmin, peer: Peer) -> None:
    topic, group = "AdminLite", "AdminLiteGroup"
    attributes = "+message.type=LITE,+lite.topic.expiration=30"
    mqadmin("updateTopic", "-b", peer.address, "-t", topic, "-r", "2", "-w", "2", "-a", attributes)
    bound = f"+lite.bind.topic={topic}"
    mqadmin("updateSubGroup", "-b", peer.address, "-g", group, "-o", "true", "--attributes", bound)
    assert row(mqadmin("getParentTopicInfo", "-p", topic), BROKER)[:3] == [BROKER, "30", "0"]
    assert row(mqadmin("getLiteTopicInfo", "-p", topic, "-l", "one"), BROKER)[:3] == [BROKER, "0", "0"]
    assert row(mqadmin("getLiteClientInfo", "-p", topic, "-g", group, "-c", "none"), BROKER)[1] == "N/A"
    assert "Total Lag Count: 0" in mqadmin("getLiteGroupInfo", "-p", topic, "-g", group)
    assert "dispatched" in mqadmin("triggerLiteDispatch", "-b", BROKER, "-p", topic, "-g", group)
    assert topic in mqadmin("getBrokerLiteInfo", "-b", peer.address, "-d")
