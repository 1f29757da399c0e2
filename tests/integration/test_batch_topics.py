"""BatchCQ topics, by raw frames: batches stored as one message, offsets, pulls, what is refused, kills."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.pops import pop
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull, pull_ext, send, send_ext, topic_ext
from tests.support.stores import item, split

OPTIONS = "--set", "messageDelayLevel=1s", "--set", "mapperFileSizeBatchConsumeQueue=460"
INNER_BATCH = 0xC0


@pytest.fixture(params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "store", *OPTIONS, "--set", f"flushDiskType={request.param}") as broker:
        yield broker


def create(connection: ClientSocket, topic: str = "B", queues: int = 2) -> None:
    ext = topic_ext(topic, queues) | {"attributes": "+queue.type=BatchCQ"}
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def send_batch(
    connection: ClientSocket, *texts: bytes, topic: str = "B", properties: str = "UNIQ_KEY\x01u1\x02"
) -> RemotingCommand:
    body = b"".join(item(text, b"TAGS\x01%b\x02" % text) for text in texts)
    ext = send_ext(topic, i=properties) | {"m": "true"}
    return connection.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body)


def send_with(connection: ClientSocket, body: bytes, properties: str) -> RemotingCommand:
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext("B", i=properties), body)


def offset(connection: ClientSocket, code: int, **more: str) -> int:
    return int(connection.ask(code, {"topic": "B", "queueId": "0", **more}).ext["offset"])


def read_all(connection: ClientSocket) -> list[Record]:
    found: list[Record] = []
    answer = pull(connection, "B")
    while answer.code == 0:
        found += split(answer.body)
        answer = pull(connection, "B", int(answer.ext["nextBeginOffset"]))
    return found


def test_a_batch_is_one_message_with_several_offsets(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        assert send(client, "B", b"alone").ext["queueOffset"] == "0"
        answer = send_batch(
            client, b"x", b"y", b"z", properties="UNIQ_KEY\x01u1\x02TAGS\x01t\x02WAIT\x01true\x02"
        )
        assert answer.code == 0
        assert (answer.ext["queueOffset"], answer.ext["batchUniqId"], answer.ext["transactionId"]) == (
            "1",
            "u1",
            "u1",
        )
        assert "," not in answer.ext["msgId"]
        plain = send_batch(client, b"p", b"q", properties="KEYS\x01k\x02")
        assert (plain.code, plain.ext["queueOffset"]) == (0, "4")
        assert plain.ext["msgId"].count(",") == 1
        assert "batchUniqId" not in plain.ext
        alone, several, *rest = read_all(client)
        assert [record.body for record in (alone, *rest)] == [b"alone", b"p", b"q"]
        assert (several.queue_offset, several.sys_flag & INNER_BATCH) == (1, INNER_BATCH)
        assert several.body == b"".join(item(text, b"TAGS\x01%b\x02" % text) for text in (b"x", b"y", b"z"))
        assert several.properties.items() >= {
            "INNER_NUM": "3", "INNER_BASE": "1", "UNIQ_KEY": "u1", "TAGS": "t", "CLUSTER": "DefaultCluster",
        }.items()  # fmt: skip
        assert [record.queue_offset for record in rest] == [4, 5]


def test_offsets_count_messages(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        for _ in range(20):
            send_batch(client, b"a", b"b", b"c")
            send(client, "B", b"d")
        eventually(lambda: offset(client, RequestCode.GET_MAX_OFFSET) == 80, 10)
        assert offset(client, RequestCode.GET_MIN_OFFSET) == 0
        assert offset(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp="0") == 0
        for at, next_offset in ((0, 3), (1, 3), (2, 3), (3, 4), (38, 39), (79, 80)):
            got = client.ask(RequestCode.PULL_MESSAGE, pull_ext("B", at, maxMsgNums="1"))
            assert (got.code, got.ext["nextBeginOffset"], got.ext["maxOffset"]) == (0, str(next_offset), "80")
        assert pull(client, "B", offset=80).code == ResponseCode.PULL_NOT_FOUND
        # of what groups have taken
        commit = {"consumerGroup": "CG", "topic": "B", "queueId": "0", "commitOffset": "77"}
        client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        stats = client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG", "topic": "B"})
        assert b'"brokerOffset":80,"consumerOffset":77' in stats.body.replace(b" ", b"")
        told = client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "B"})
        assert b'"maxOffset":80' in told.body
        listed = json.loads(client.ask(RequestCode.LIST_GROUPS, {}).body)["groups"]
        assert [group["lag"] for group in listed if group["group"] == "CG"] == [3]
        topics = json.loads(client.ask(RequestCode.LIST_TOPICS, {"sizes": "true"}).body)["topics"]
        stored = sum(record.size + 20 for record in read_all(client))
        (about,) = (topic["bytes"] for topic in topics if topic["topic"] == "B")
        assert 0.5 * stored < about < 1.5 * stored  # from a sample
        # one row for each batch
        asked = {"topic": "B", "queueId": "0", "index": "1", "count": "8"}
        rows = json.loads(client.ask(RequestCode.QUERY_CONSUME_QUEUE, asked).body)["queueData"]
        assert len(rows) == len({row["physicOffset"] for row in rows}) == 5


def test_a_held_pull_gets_the_batch(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as waiting:
        create(client)
        send_batch(client, b"a", b"b")
        for expression, arrives in (("*", "x"), ("t", "t")):
            at = offset(client, RequestCode.GET_MAX_OFFSET)
            ext = pull_ext(
                "B",
                at,
                sysFlag=str(SUSPEND | SUBSCRIPTION),
                subscription=expression,
                suspendTimeoutMillis="15000",
            )
            waiting.send_request(RequestCode.PULL_MESSAGE, ext)
            if expression == "t":
                send_batch(client, b"other", b"other")
                at += 2
            send_batch(client, b"1", b"2", properties=f"UNIQ_KEY\x01u\x02TAGS\x01{arrives}\x02")
            answer = waiting.receive()
            assert (answer.code, answer.ext["nextBeginOffset"]) == (0, str(at + 2))


def test_delayed_messages_arrive_alone(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        send_batch(client, b"a", b"b")
        assert send_with(client, b"late", "DELAY\x011\x02").code == 0
        eventually(lambda: offset(client, RequestCode.GET_MAX_OFFSET) == 3, 20)
        assert read_all(client)[-1].body == b"late"


def test_what_does_not_fit_is_refused(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        illegal = ResponseCode.MESSAGE_ILLEGAL
        assert send_with(client, b"x", "INNER_NUM\x017\x02INNER_BASE\x010\x02").code == illegal
        inner = b"INNER_NUM\x013\x02INNER_BASE\x010\x02"
        forged = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext("B") | {"m": "true"}, item(b"x", inner))
        assert forged.code == illegal
        assert send_batch(client, b"x", properties="UNIQ_KEY\x01u\x02DELAY\x011\x02").code == illegal
        torn = client.ask(
            RequestCode.SEND_BATCH_MESSAGE,
            send_ext("B", i="UNIQ_KEY\x01u\x02") | {"m": "true"},
            item(b"x")[:-1],
        )
        assert torn.code == illegal
        many = item(b"") * 32768
        ext = send_ext("B", i="UNIQ_KEY\x01u\x02") | {"m": "true"}
        assert client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, many).code == illegal
        assert client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, many[: 32767 * 22]).code == 0
        assert offset(client, RequestCode.GET_MAX_OFFSET) == 32767
        # what the batch itself claims has no effect
        assert (
            send_batch(client, b"x", properties="UNIQ_KEY\x01u\x02INNER_NUM\x019\x02INNER_BASE\x010\x02").code
            == 0
        )
        assert offset(client, RequestCode.GET_MAX_OFFSET) == 32768
        refused = pop(client, "B")
        assert (refused.code, "can be pulled, not popped" in str(refused.remark)) == (16, True)
        change = topic_ext("B", 2) | {"attributes": "-queue.type"}
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, change).code != 0


def test_no_message_alone_states_how_many_it_is(broker: BrokerProcess) -> None:
    """Apache's broker reads INNER_NUM and INNER_BASE of every record as numbers, and stops where they are none."""
    number, illegal = "INNER_NUM\x01many\x02INNER_BASE\x01x\x02", ResponseCode.MESSAGE_ILLEGAL
    with broker.connect() as client:
        create(client)
        assert [send(client, "Plain", b"x").code for _ in range(2)] == [0, 0]
        later = ("DELAY\x011\x02", "TIMER_DELAY_SEC\x0160\x02", "TRAN_MSG\x01true\x02PGROUP\x01PG\x02")
        for topic, more in (("Plain", ""), *(("B", each) for each in later)):
            ext = send_ext(topic, i=number + more)
            assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x").code == illegal
        for topic in ("Plain", "B"):
            ext, whole = send_ext(topic) | {"m": "true"}, item(b"x") * 2
            forged = item(b"x") + item(b"x", number.encode())
            assert client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, forged).code == illegal
            assert client.ask(RequestCode.SEND_BATCH_MESSAGE, ext, whole).code == 0


@pytest.mark.parametrize("lost", ["", "topics", "folder", "both"])
def test_after_a_kill(tmp_path: Path, lost: str) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store, *OPTIONS) as broker, broker.connect() as client:
        create(client)
        for _ in range(30):
            assert send_batch(client, b"a", b"b").code == 0
            assert send(client, "B", b"c").code == 0
        broker.kill()
    if lost in ("topics", "both"):
        for name in ("topics.json", "topics.json.bak"):
            (store / "config" / name).unlink(missing_ok=True)
    if lost in ("folder", "both"):
        (store / "batchconsumequeue").rename(tmp_path / "moved")
    with BrokerProcess(store, *OPTIONS) as broker, broker.connect() as client:
        assert offset(client, RequestCode.GET_MAX_OFFSET) == 90
        records = read_all(client)
        assert [record.queue_offset for record in records] == [n for n in range(90) if n % 3 != 1]
        assert send_batch(client, b"a", b"b").ext["queueOffset"] == "90"
        broker.stop()
    topics = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["B"]["attributes"] == {"queue.type": "BatchCQ"}
    assert not (store / "consumequeue" / "B").exists()


def test_a_deleted_topic_comes_again_with_another_kind(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        send_batch(client, b"a", b"b")
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "B"}).code == 0
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("B", 1)).code == 0
        for n in range(3):
            assert send(client, "B", b"plain").ext["queueOffset"] == str(n)
        plain = send_batch(client, b"p", b"q")
        assert (plain.ext["queueOffset"], plain.ext["msgId"].count(",")) == ("3", 1)
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "B"}).code == 0
        create(client, queues=1)
        assert send_batch(client, b"a", b"b").ext["queueOffset"] == "0"
        assert offset(client, RequestCode.GET_MAX_OFFSET) == 2


def test_a_batch_is_not_sent_back_as_a_whole(broker: BrokerProcess) -> None:
    """Clients then send the one message that failed to the retry topic."""
    with broker.connect() as client:
        create(client)
        send_batch(client, b"a", b"b")
        group = b'{"groupName":"CG"}'
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group).code == 0
        (batch,) = read_all(client)
        ext = {"offset": str(batch.physical_offset), "group": "CG", "delayLevel": "0", "originTopic": "B"}
        refused = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"unitMode": "false"})
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "MESSAGE_ILLEGAL")
