"""Operators' requests to a running push consumer through its broker: running info, direct consumption, a reset."""

import asyncio
import json

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.client.pushing import Seen, Topics, consumer
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async


async def ask(peer: Peer, code: int, ext: dict[str, str]) -> RemotingCommand:
    """In a thread: the broker answers when our loop has answered it."""

    def asked() -> RemotingCommand:
        with ClientSocket(address(peer.address)) as connection:
            return connection.ask(code, ext)

    return await asyncio.to_thread(asked)


async def test_the_broker_relays_how_a_consumer_runs(
    name_server: str, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=2), Seen()
    feeder.spread(topic, 10, queues=2)
    async with consumer(name_server, topic, seen) as one:
        await eventually_async(lambda: len(seen.messages) == 10)
        assert one.stats(topic).ok_per_s > 0
        assert one.stats(topic).failed == 0
        assert one.client_id is not None
        ext = {"consumerGroup": one.group, "clientId": one.client_id, "jstackEnable": "true"}
        answer = await ask(peer, RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
    assert answer.code == 0, answer.remark
    info = fastjson.loads(answer.body)
    assert isinstance(info, dict)
    properties = info["properties"]
    assert isinstance(properties, dict)
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert "Task" in str(info["jstack"])
    subscriptions = info["subscriptionSet"]
    assert isinstance(subscriptions, list)
    assert {item["topic"] for item in subscriptions if isinstance(item, dict)} == {
        topic,
        f"%RETRY%{one.group}",
    }
    assert b'"commitOffset":5' in answer.body


async def test_one_message_is_handled_here_and_now_and_offsets_stay(
    name_server: str, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    feeder.feed(topic, [b"look at me"])
    async with consumer(name_server, topic, seen) as one:
        await eventually_async(lambda: seen.messages)
        message = seen.messages[0]
        assert one.client_id is not None
        ext = {
            "consumerGroup": one.group,
            "clientId": one.client_id,
            "msgId": message.offset_message_id,
            "brokerName": message.broker_name,
        }
        answer = await ask(peer, RequestCode.CONSUME_MESSAGE_DIRECTLY, ext)
    assert answer.code == 0, answer.remark
    assert json.loads(answer.body)["consumeResult"] == "CR_SUCCESS"
    assert [message.body for message in seen.messages] == [b"look at me"] * 2


async def test_a_reset_at_the_broker_takes_a_running_group_back_in_time(
    name_server: str, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    feeder.feed(topic, [b"1", b"2"])
    async with consumer(name_server, topic, seen, pull_suspend_s=0.5) as one:
        await eventually_async(lambda: len(seen.messages) == 2)
        ext = {"topic": topic, "group": one.group, "timestamp": "0", "isForce": "true"}
        answer = await ask(peer, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert answer.code == 0, answer.remark
        await eventually_async(lambda: len(seen.messages) == 4, 20)
    assert [message.body for message in seen.messages] == [b"1", b"2"] * 2


async def test_a_reset_that_is_sent_to_us_takes_queues_back_in_time(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=2), Seen()
    feeder.feed(topic, [b"1", b"2"], queue_id=0)
    feeder.feed(topic, [b"other"], queue_id=1)
    async with consumer(name_server, topic, seen) as one:
        await eventually_async(lambda: len(seen.messages) == 3)
        assert one._runtime is not None
        one._runtime._reset.settle_s = 0
        (queue,) = (queue for queue in one.queues if (queue.topic, queue.queue_id) == (topic, 0))
        body = fastjson.dumps({"offsetTable": {queue: 1}})
        request = RemotingCommand.request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, {"topic": topic, "group": one.group}, body
        )
        await one._runtime.instance._handlers[RequestCode.RESET_CONSUMER_CLIENT_OFFSET](request, "broker")  # type: ignore[misc]
        await eventually_async(lambda: len(seen.messages) == 4)
        assert not one.paused
    assert [message.body for message in seen.messages[3:]] == [b"2"]


async def test_the_broker_relays_the_offsets_of_a_running_group(
    name_server: str, peer: Peer, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(queues=1), Seen()
    feeder.feed(topic, [b"1", b"2"])
    async with consumer(name_server, topic, seen) as one:
        await eventually_async(
            lambda: one._runtime is not None and 2 in one._runtime.offsets.snapshot(topic).values()
        )
        client_id = one.client_id
        ext = {"topic": topic, "group": one.group, "clientAddr": ""}
        answer = await ask(peer, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, ext)
    assert answer.code == 0, answer.remark
    assert client_id is not None
    info = fastjson.loads(answer.body)
    assert isinstance(info, dict)
    consumers = info["consumerTable"]
    assert isinstance(consumers, dict)
    assert fastjson.queue_offsets(consumers[client_id]) == {seen.messages[0].queue: 2}


async def test_what_handlers_did_is_traced(name_server: str, topics: Topics, feeder: RawProducer) -> None:
    topic, traces, seen, traced = topics(queues=1), topics(queues=1), Seen(), Seen()
    feeder.feed(topic, [b"1"], UNIQ_KEY="0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A")
    async with consumer(name_server, topic, seen, trace=True, trace_topic=traces) as one:
        await eventually_async(lambda: seen.messages)
        group = one.group
    async with consumer(name_server, traces, traced):
        await eventually_async(lambda: b"SubAfter" in b"".join(message.body for message in traced.messages))
    text = b"".join(message.body for message in traced.messages)
    assert b"SubBefore" in text
    assert group.encode() in text
    assert b"0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A0A" in text
