"""Lite topics, as clients of gRPC use them: subscribe, receive in order, quotas, exclusive groups, restarts."""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.promoted_pair import PromotedPair, is_master, promoted
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, records

LITE = ("--set", "enableLmq=true", "--set", "enableMultiDispatch=true", "--set", "brokerName=broker-a")
FEW = ("--set", "maxLmqConsumeQueueNum=50", "--set", "maxLiteSubscriptionCount=30")
MIN, MAX = 1, 2
"""Values of a policy: the first message, the end."""
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("lite") / "store", *LITE, *FEW) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return prepared(broker, f"L{next(_numbers)}")


def prepared(broker: BrokerProcess, topic: str, **attributes: str) -> str:
    """A topic of type LITE and its group."""
    more = {f"+{name.replace('_', '.')}": value for name, value in attributes.items()}
    with broker.connect() as connection:
        create_topic(connection, topic, "LITE")
        create_group(
            connection,
            f"{topic}-g",
            consumeMessageOrderly=True,
            attributes={"+lite.bind.topic": topic} | more,
        )
    return topic


def send(caller: GrpcCaller, topic: str, lite_topic: str, *bodies: bytes) -> None:
    for body in bodies:
        answer = caller.send(topic, body, kind="LITE", lite_topic=lite_topic)
        assert answer.status.message == "OK"


def sync(
    caller: GrpcCaller, topic: str, *names: str, action: str = "PARTIAL_ADD", **more: object
) -> tuple[str, str]:
    return caller.code(
        "SyncLiteSubscription",
        action=action,
        topic={"name": topic},
        group={"name": f"{topic}-g"},
        lite_topic_set=names,
        **more,
    )


def ack(caller: GrpcCaller, topic: str, *received: Any) -> None:  # noqa: ANN401
    entries = [
        {
            "message_id": each.system_properties.message_id,
            "receipt_handle": each.system_properties.receipt_handle,
            "lite_topic": each.system_properties.lite_topic,
        }
        for each in received
    ]
    answer = caller.call("AckMessage", group={"name": f"{topic}-g"}, topic={"name": topic}, entries=entries)
    assert answer.status.message == "OK", answer


def take(caller: GrpcCaller, topic: str, count: int) -> list[tuple[str, bytes]]:
    """Lite topic and body of `count` messages, which are acknowledged."""
    found: list[tuple[str, bytes]] = []
    while len(found) < count:
        received = caller.receive(f"{topic}-g", topic)
        assert received, found
        ack(caller, topic, *received)
        found += [(each.system_properties.lite_topic, each.body) for each in received]
    return found


@contextmanager
def consumer(broker: BrokerProcess, topic: str, *names: str) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address) as opened:
        opened.consume(f"{topic}-g", topic, kind="LITE_PUSH_CONSUMER")
        if names:
            assert sync(opened, topic, *names) == ("OK", "OK")
        yield opened


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[GrpcCaller]:
    with GrpcCaller(broker.address) as opened:
        yield opened


def test_messages_of_subscribed_lite_topics_come_in_order(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "one", "two") as caller:
        for name in ("one", "two", "three"):
            send(producer, topic, name, b"0", b"1", b"2")
        found = take(caller, topic, 6)
        for name in ("one", "two"):
            assert [body for lite_topic, body in found if lite_topic == name] == [b"0", b"1", b"2"]
        assert caller.code("ReceiveMessage", **asked(topic)) == ("MESSAGE_NOT_FOUND", "no new message")
        sync(caller, topic, "three")
        assert take(caller, topic, 3) == [("three", b"0"), ("three", b"1"), ("three", b"2")]


def test_a_waiting_receive_gets_a_message_that_arrives(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "late") as caller:
        stream = caller.channel.unary_stream(
            "/apache.rocketmq.v2.MessagingService/ReceiveMessage",
            request_serializer=lambda fields: request_of("ReceiveMessage", fields),
            response_deserializer=response_of("ReceiveMessage"),
        )(asked(topic), metadata=caller.metadata, timeout=30)
        send(producer, topic, "late", b"x")
        received = [each.message for each in stream if each.HasField("message")]
        assert [each.body for each in received] == [b"x"]
        own = received[0].system_properties
        assert (own.queue_id, own.queue_offset, own.delivery_attempt) == (0, 0, 1)
        words = own.receipt_handle.split(" ")
        assert (words[0], words[3:8]) == ("0", ["999", "0", "broker-a", "0", "0"])


def test_a_lite_topic_is_blocked_until_its_messages_are_acknowledged(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "a") as caller, consumer(broker, topic, "a") as other:
        send(producer, topic, "a", b"0")
        first = caller.receive(f"{topic}-g", topic)
        send(producer, topic, "a", b"1")
        assert other.receive(f"{topic}-g", topic, long_polling_timeout={"seconds": 5}) == []
        ack(caller, topic, *first)
        assert [each.body for each in other.receive(f"{topic}-g", topic)] == [b"1"]


def test_a_message_that_becomes_visible_again_counts_its_deliveries(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "a") as caller:
        send(producer, topic, "a", b"0")
        [message] = caller.receive(f"{topic}-g", topic)
        own = message.system_properties
        answer = caller.call(
            "ChangeInvisibleDuration",
            group={"name": f"{topic}-g"},
            topic={"name": topic},
            receipt_handle=own.receipt_handle,
            message_id=own.message_id,
            invisible_duration={"seconds": 0},
            lite_topic="a",
        )
        assert answer.status.message == "OK"
        [again] = caller.receive(f"{topic}-g", topic)
        assert (again.body, again.system_properties.delivery_attempt) == (b"0", 2)
        ack(caller, topic, again)


@pytest.mark.parametrize("by", ["client", "broker"])
def test_a_message_that_fails_too_often_goes_to_the_dead_letters(
    broker: BrokerProcess, producer: GrpcCaller, topic: str, by: str
) -> None:
    """Its offset in the lite topic is not that in the topic's queue."""
    names = {"group": {"name": f"{topic}-g"}, "topic": {"name": topic}}
    with broker.connect() as connection:
        create_topic(connection, topic, "LITE", queues=1)
        bound = {"+lite.bind.topic": topic}
        create_group(connection, f"{topic}-g", consumeMessageOrderly=True, retryMaxTimes=0, attributes=bound)
    with consumer(broker, topic, "a") as caller:
        send(producer, topic, "b", b"0", b"1")
        send(producer, topic, "a", b"bad")
        [bad] = caller.receive(f"{topic}-g", topic)
        failed = {"receipt_handle": bad.system_properties.receipt_handle, "lite_topic": "a"}
        if by == "client":
            of_message = {"message_id": bad.system_properties.message_id}
            code = caller.code("ForwardMessageToDeadLetterQueue", **names, **failed, **of_message)
            assert code == ("OK", "0")
        else:
            changed = names | failed | {"invisible_duration": {"nanos": 1}}
            missing = caller.code("ChangeInvisibleDuration", **(changed | {"lite_topic": ""}))
            assert missing[0] == "ILLEGAL_LITE_TOPIC", "not about the topic's own queue"
            assert caller.code("ChangeInvisibleDuration", **changed) == ("OK", "OK")
        send(producer, topic, "a", b"next")
        assert take(caller, topic, 1) == [("a", b"next")]
    with broker.connect() as connection:
        ext = {"topic": f"%DLQ%{topic}-g", "queueId": "0"}
        eventually(lambda: connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext.get("offset") == "1")
        pulled = connection.ask(RequestCode.PULL_MESSAGE, pull_ext(ext["topic"], 0, 0))
        assert [record.body for record in records(pulled.body)] == [b"bad"]


def test_unsubscribed_and_completely_synced_lite_topics(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "a", "b") as caller:
        assert sync(caller, topic, "a", action="PARTIAL_REMOVE") == ("OK", "OK")
        send(producer, topic, "a", b"0")
        send(producer, topic, "b", b"0")
        assert take(caller, topic, 1) == [("b", b"0")]
        assert sync(caller, topic, "a", "c", action="COMPLETE_ADD") == ("OK", "OK")
        send(producer, topic, "b", b"1")
        send(producer, topic, "c", b"0")
        assert sorted(take(caller, topic, 2)) == [("a", b"0"), ("c", b"0")]
        assert lite_topics_of(broker, topic, str(caller.client_id)) == {"a", "c"}
        assert sync(caller, topic, action="COMPLETE_REMOVE") == ("OK", "OK")
        assert lite_topics_of(broker, topic, str(caller.client_id)) == set()


def test_a_subscription_begins_where_it_wants(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    send(producer, topic, "a", b"0", b"1", b"2")
    with consumer(broker, topic) as caller:
        sync(caller, topic, "a", offset_option={"offset": 2})
        assert take(caller, topic, 1) == [("a", b"2")]
        for option, bodies in (
            ({"policy": MIN}, [b"0", b"1", b"2"]),
            ({"tail_n": 2}, [b"1", b"2"]),
            ({"offset": 1}, [b"1", b"2"]),
            ({"timestamp": 0}, [b"0", b"1", b"2"]),
        ):
            sync(caller, topic, action="COMPLETE_REMOVE")
            assert sync(caller, topic, "a", offset_option=option) == ("OK", "OK")
            assert take(caller, topic, len(bodies)) == [("a", body) for body in bodies], option
        sync(caller, topic, action="COMPLETE_REMOVE")
        send(producer, topic, "a", b"3")
        sync(caller, topic, "a", offset_option={"policy": MAX})
        send(producer, topic, "a", b"4")
        assert take(caller, topic, 1) == [("a", b"4")]


def test_an_exclusive_lite_topic_has_the_client_that_came_last(
    broker: BrokerProcess, producer: GrpcCaller
) -> None:
    topic = prepared(broker, f"X{next(_numbers)}", lite_sub_model="Exclusive")
    with GrpcCaller(broker.address) as first, consumer(broker, topic) as second:
        stream = first.consume(f"{topic}-g", topic, kind="LITE_PUSH_CONSUMER")
        sync(first, topic, "a")
        sync(second, topic, "a")
        assert stream.receive().notify_unsubscribe_lite_command.lite_topic == "a"
        send(producer, topic, "a", b"0")
        assert take(second, topic, 1) == [("a", b"0")]
        assert lite_topics_of(broker, topic, str(first.client_id)) == set()


def test_a_client_with_many_unacknowledged_messages_gets_no_others(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with consumer(broker, topic, "a") as caller:
        received = []
        for name, count in (("a", 32), ("b", 32), ("c", 32), ("d", 4), ("e", 1)):
            send(producer, topic, name, *(b"%d" % n for n in range(count)))
            sync(caller, topic, name)
            received += caller.receive(f"{topic}-g", topic, auto_renew=True)
        assert len(received) == 101
        text = f"The client [{caller.client_id}] has too many unacked messages. Unacked count: 101"
        assert caller.code("ReceiveMessage", **asked(topic)) == ("FORBIDDEN", text)
        ack(caller, topic, received[0])
        send(producer, topic, "e", b"next")
        ack(caller, topic, received[-1])
        assert [each.body for each in caller.receive(f"{topic}-g", topic)] == [b"next"]


def test_a_lite_topic_is_pulled_and_searched_by_its_name(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    """PULL_MESSAGE and SEARCH_OFFSET_BY_TIMESTAMP have a `liteTopic`."""
    began_ms = time.time_ns() // 1_000_000
    send(producer, topic, "b", b"other")
    send(producer, topic, "a", b"0", b"1")
    with broker.connect() as connection:
        for offset, found in ((0, [b"0", b"1"]), (1, [b"1"])):
            ext = pull_ext(topic, offset, consumerGroup=f"{topic}-g", liteTopic="a")
            for _ in range(2):  # the second one could take the fast path
                answer = connection.ask(RequestCode.PULL_MESSAGE, ext)
                assert [record.body for record in records(answer.body)] == found
                assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == ("0", "2")
        opaque = connection.send_request(
            RequestCode.PULL_MESSAGE,
            pull_ext(
                topic,
                2,
                consumerGroup=f"{topic}-g",
                liteTopic="a",
                sysFlag=str(SUSPEND | SUBSCRIPTION),
                suspendTimeoutMillis="20000",
            ),
        )
        send(producer, topic, "a", b"2")
        assert [record.body for record in records(connection.answer_to(opaque).body)] == [b"2"]
        of_lite = {"topic": topic, "queueId": "0", "liteTopic": "a"}
        for at_ms, offset in ((began_ms, "0"), (began_ms + 60_000, "3")):
            ext = of_lite | {"timestamp": str(at_ms)}
            assert connection.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).ext["offset"] == offset
        ext = of_lite | {"timestamp": "0", "liteTopic": "none"}
        assert connection.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).ext["offset"] == "0"
        ext = of_lite | {"timestamp": "0", "liteTopic": "a$b"}
        assert connection.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).code == 29


def test_quotas(broker: BrokerProcess, producer: GrpcCaller) -> None:
    """Leaves no space for further lite topics."""
    topic = prepared(broker, f"Q{next(_numbers)}", lite_sub_client_quota="3")
    with consumer(broker, topic) as caller:
        too_many = [f"n{n}" for n in range(304)]
        assert sync(caller, topic, *too_many) == (
            "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
            "lite subscription quota exceeded: 3",
        )
        assert sync(caller, topic, *too_many[:31]) == (
            "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
            "lite subscription quota exceeded 30",
        )
        sync(caller, topic, action="COMPLETE_REMOVE")
    codes = []
    for n in range(60):
        answer = producer.send(topic, b"x", kind="LITE", lite_topic=f"t{n}")
        codes.append(answer.status.code)
        if answer.status.message != "OK":
            break
    assert answer.status.message.startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]")
    assert answer.status.code == 42901


def test_wrong_names_types_and_groups_are_refused(
    broker: BrokerProcess, producer: GrpcCaller, topic: str
) -> None:
    with broker.connect() as connection:
        create_topic(connection, f"{topic}-plain")
        create_group(connection, f"{topic}-plain-g")
    answer = producer.send(topic, b"x", kind="NORMAL")
    assert answer.status.message.endswith("the expected type is LITE, but actual type is NORMAL")
    for name in ("", "a b", "ä", "a$b", "a/b", "x" * 65):
        answer = producer.send(topic, b"x", kind="LITE", lite_topic=name)
        assert answer.status.code == 40020, name
        with consumer(broker, topic) as caller:
            assert sync(caller, topic, name)[0] == "ILLEGAL_LITE_TOPIC"
    for group, kind, text in (
        (f"{topic}-g", "PUSH_CONSUMER", f"lite group must use LITE mode: {topic}-g"),
        (f"{topic}-plain-g", "LITE_PUSH_CONSUMER", f"regular group cannot use LITE mode: {topic}-plain-g"),
    ):
        with GrpcCaller(broker.address) as caller:
            stream = caller.telemetry()
            entries = [{"topic": {"name": topic}, "expression": {"type": "TAG", "expression": "*"}}]
            stream.send(
                settings={
                    "client_type": kind,
                    "subscription": {"group": {"name": group}, "subscriptions": entries},
                }
            )
            with pytest.raises(Exception, match=text):
                stream.receive()
    with consumer(broker, topic) as caller:
        code, text = caller.code(
            "SyncLiteSubscription",
            topic={"name": f"{topic}-plain"},
            group={"name": f"{topic}-g"},
            lite_topic_set=["a"],
        )
        assert (code, text) == (
            "ILLEGAL_TOPIC",
            f"lite group {topic}-g is expected to bind topic {topic}, but actual is {topic}-plain",
        )


def test_what_is_not_acknowledged_comes_again_after_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store", *LITE) as running:
        topic = prepared(running, "L")
        with GrpcCaller(running.address) as producer, consumer(running, topic, "a", "b") as caller:
            send(producer, topic, "a", b"0", b"1")
            send(producer, topic, "b", b"0")
            assert len(take(caller, topic, 3)) == 3
            send(producer, topic, "a", b"2", b"3")
            in_progress = caller.receive("L-g", topic)
            assert [each.body for each in in_progress] == [b"2", b"3"]
        running.kill()
    with BrokerProcess(tmp_path / "store", *LITE) as running:
        with GrpcCaller(running.address) as producer, consumer(running, topic, "a", "b") as caller:
            ack(caller, topic, in_progress[1])
            assert take(caller, topic, 2) == [("a", b"2"), ("a", b"3")]
            send(producer, topic, "b", b"1")
            assert take(caller, topic, 1) == [("b", b"1")]
        assert running.stop() == 0


def test_a_promoted_slave_goes_on_with_lite_topics(tmp_path: Path) -> None:
    """Nothing that was acknowledged comes again, nothing that was not is lost; clients subscribe again."""
    settings = {"enableLmq": "true", "enableMultiDispatch": "true", "brokerName": "pair"}
    synced = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20000"}
    with PromotedPair(tmp_path, **settings, **synced) as pair:
        topic = prepared(pair.master, "L")
        pair.caught_up()
        pair.knows(topic)
        with GrpcCaller(pair.master.address) as producer, consumer(pair.master, topic, "a", "b") as caller:
            send(producer, topic, "a", b"0", b"1")
            send(producer, topic, "b", b"0")
            assert len(take(caller, topic, 3)) == 3
            send(producer, topic, "a", b"2")
            send(producer, topic, "c", b"0")
            assert [each.body for each in caller.receive("L-g", topic)] == [b"2"]
            with GrpcCaller(pair.slave.address) as reader:
                reader.consume("L-g", topic, kind="LITE_PUSH_CONSUMER")
                assert sync(reader, topic, "a")[0] != "OK"
        pair.caught_up()
        with pair.slave.connect() as slave:
            of_a = {"consumerGroup": "L-g", "topic": "%LMQ%$L$a", "queueId": "0"}
            eventually(lambda: slave.ask(RequestCode.QUERY_CONSUMER_OFFSET, of_a).ext.get("offset") == "2")
        pair.master.kill()
        promoted(pair.slave, "--role", "ASYNC_MASTER").succeeded()
        with pair.slave.connect() as client:
            eventually(lambda: is_master(client), what="the promotion")
        with (
            GrpcCaller(pair.slave.address) as producer,
            consumer(pair.slave, topic, "a", "b", "c") as caller,
        ):
            assert sorted(take(caller, topic, 2)) == [("a", b"2"), ("c", b"0")]
            send(producer, topic, "b", b"1")
            send(producer, topic, "a", b"3")
            assert sorted(take(caller, topic, 2)) == [("a", b"3"), ("b", b"1")]


def test_without_lmqs_lite_topics_are_refused_with_what_they_need(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as running:
        topic = prepared(running, "L")
        with GrpcCaller(running.address) as caller:
            answer = caller.send(topic, b"x", kind="LITE", lite_topic="a")
            assert "enableLmq=true and enableMultiDispatch=true" in answer.status.message
            caller.consume("L-g", topic, kind="LITE_PUSH_CONSUMER")
            assert "enableLmq=true" in sync(caller, topic, "a")[1]
        assert running.stop() == 0


# ---- helpers ----


def asked(topic: str) -> dict[str, Any]:
    return {
        "group": {"name": f"{topic}-g"},
        "message_queue": {"topic": {"name": topic}, "id": -1},
        "batch_size": 32,
        "invisible_duration": {"seconds": 30},
        "long_polling_timeout": {"seconds": 5},
    }


def request_of(method: str, fields: dict[str, Any]) -> bytes:
    from firearrow.broker.grpc import messages  # noqa: PLC0415

    return bytes(messages.method_classes(method)[0](**fields).SerializeToString())


def response_of(method: str) -> Any:  # noqa: ANN401
    from firearrow.broker.grpc import messages  # noqa: PLC0415

    return messages.method_classes(method)[1].FromString


def lite_topics_of(broker: BrokerProcess, topic: str, client_id: str) -> set[str]:
    ext = {"parentTopic": topic, "group": f"{topic}-g", "clientId": client_id, "maxCount": "100"}
    with broker.connect() as connection:
        answer = connection.ask(RequestCode.GET_LITE_CLIENT_INFO, ext)
    assert answer.code == 0, answer.remark
    return {name.rpartition("$")[2] for name in json.loads(answer.body)["liteTopicSet"]}
