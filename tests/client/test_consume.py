"""Consuming end to end, against a real broker: retries, dead letters, timeouts, misbehaving handlers, operators."""

import asyncio
import threading
from collections import Counter

import pytest

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, PushConsumerOptions
from firearrow.client.consume.consume_results import Accepted, Answer, ConsumeResult, DeadLetter, Retry
from firearrow.client.consumers.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.consumers import Journal, Topics, consumer, dead_letters, numbers
from tests.client.raw_producer import RawProducer
from tests.interop.peers import Peer, address
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually_async

# ---- retries and dead letters ----


@pytest.mark.parametrize("answer", [False, ConsumeResult.RETRY_LATER, Retry(1), ValueError("not now")])
async def test_a_message_that_failed_comes_again_as_itself_and_the_others_once(
    answer: Answer | Exception, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    ids: dict[bytes, set[str]] = {}

    def judge(message: ReceivedMessage) -> Answer:
        ids.setdefault(message.body, set()).add(message.get_property("UNIQ_KEY", "") or "")
        if message.body != b"001" or message.reconsume_times:
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    topic, journal = topics(), Journal(judge)
    feeder.feed(topic, numbers(3), UNIQ_KEY="THE-ID-OF-ALL")
    consuming = consumer(name_server)
    consuming.subscribe(topic, journal)
    async with consuming:
        await eventually_async(lambda: len(journal.seen) == 4, 20)
        assert sorted(journal.seen) == [
            (b"000", topic, 0),
            (b"001", topic, 0),
            (b"001", topic, 1),
            (b"002", topic, 0),
        ]
        assert ids[b"001"] == {"THE-ID-OF-ALL"}
    again = Journal()
    successor = consumer(name_server, consuming.group)
    successor.subscribe(topic, again)
    async with successor:
        feeder.feed(topic, [b"last"])
        await eventually_async(lambda: again.seen)
    assert again.bodies == [b"last"]


async def test_a_message_that_fails_too_often_ends_as_a_dead_letter(
    peer: Peer, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal = topics(), Journal(lambda message: False)
    feeder.feed(topic, [b"poison"])
    consuming = consumer(name_server, max_reconsume_times=1)
    consuming.subscribe(topic, journal)
    async with consuming:
        await eventually_async(lambda: dead_letters(peer, consuming.group), 20)
    (letter,) = dead_letters(peer, consuming.group)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"poison", topic)
    assert [times for _, _, times in journal.seen] == [0, 1]


async def test_a_handler_may_send_to_the_dead_letters_at_once(
    peer: Peer, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal = topics(), Journal(lambda message: DeadLetter())
    feeder.feed(topic, [b"poison"])
    consuming = consumer(name_server)
    consuming.subscribe(topic, journal)
    async with consuming:
        await eventually_async(lambda: dead_letters(peer, consuming.group), 20)
    assert [letter.body for letter in dead_letters(peer, consuming.group)] == [b"poison"]
    assert len(journal.seen) == 1


async def test_batches_keep_their_size_and_what_was_not_accepted_comes_again(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal = topics(queues=1), Journal()
    feeder.feed(topic, numbers(16))

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        await journal(messages)
        return Accepted(3) if len(messages) == 8 and not messages[0].reconsume_times else None

    consuming = consumer(name_server, batch_size=8)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: len(journal.seen) == 26, 20)
    assert max(journal.batches) == 8
    again = Counter(body for body, _, times in journal.seen if times)
    assert again == Counter(numbers(8)[3:] + numbers(16)[11:])


async def test_if_the_broker_cannot_take_it_back_the_message_is_published_to_the_retry_topic(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal = topics(), Journal(lambda message: None if message.reconsume_times else False)
    feeder.feed(topic, [b"\x00any\xff"], TAGS="a", KEYS="k1 k2", mine="x")
    found: list[ReceivedMessage] = []

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        if messages[0].reconsume_times:
            found.extend(messages)
        else:  # as if it had been in a part of the log that the broker has deleted
            messages[0].broker_name = "broker-that-is-gone"
        return await journal(messages)

    consuming = consumer(name_server)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: found, 20)
    assert journal.seen == [(b"\x00any\xff", topic, 0), (b"\x00any\xff", topic, 1)]
    assert (found[0].tags, found[0].keys, found[0].get_property("mine")) == ("a", ("k1", "k2"), "x")


async def test_only_the_broker_sees_a_namespace(peer: Peer, name_server: str, feeder: RawProducer) -> None:
    topic, journal = unique("topic"), Journal(lambda message: message.reconsume_times > 0)
    feeder.feed(f"tenant%{topic}", [b"a"])
    with ClientSocket(address(peer.name_server)) as connection:
        asked = {"topic": f"tenant%{topic}"}
        await eventually_async(lambda: connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, asked).code == 0)
    consuming = PushConsumer(
        unique("group"),
        options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
        client=ClientOptions(name_server=name_server, namespace="tenant"),
    )
    consuming.subscribe(topic, journal)
    async with consuming:
        await eventually_async(lambda: len(journal.seen) == 2, 20)
    assert journal.seen == [(b"a", topic, 0), (b"a", topic, 1)]
    assert consuming.group.startswith("tenant%")


# ---- handlers that misbehave ----


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_raises_what_ends_programs_does_not_end_the_consumer(
    error: BaseException, plain: bool, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen = topics(), list[tuple[bytes, int]]()

    def plain_handler(messages: list[ReceivedMessage]) -> None:
        seen.append((messages[0].body, messages[0].reconsume_times))
        if not messages[0].reconsume_times:
            raise error

    async def handler(messages: list[ReceivedMessage]) -> None:
        plain_handler(messages)

    feeder.feed(topic, [b"a"])
    consuming = consumer(name_server)
    consuming.subscribe(topic, plain_handler if plain else handler)
    async with consuming:
        await eventually_async(lambda: len(seen) == 2, 20)
    assert seen == [(b"a", 0), (b"a", 1)]


async def test_a_handler_that_blocks_keeps_its_thread_only(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, seen, ends = topics(queues=1), list[bytes](), threading.Event()

    def handler(messages: list[ReceivedMessage]) -> None:
        if messages[0].body == b"000":
            ends.wait(30)
        seen.append(messages[0].body)

    feeder.feed(topic, numbers(20))
    consuming = consumer(name_server, threads=2)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: len(seen) == 19)
        assert sorted(seen) == numbers(20)[1:]
        ends.set()
        await eventually_async(lambda: len(seen) == 20)


async def test_a_message_that_a_handler_keeps_too_long_comes_to_another_one(
    name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal, ends = topics(queues=1), Journal(), asyncio.Event()

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        await journal(messages)
        if not messages[0].reconsume_times:
            await ends.wait()
            return False  # too late: it must not be sent back twice
        return None

    feeder.feed(topic, [b"slow"])
    consuming = consumer(name_server, consume_timeout_s=0.3)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: len(journal.seen) == 2, 20)
        ends.set()
        feeder.feed(topic, [b"next"])
        await eventually_async(lambda: len(journal.seen) == 3, 20)
    assert journal.seen == [(b"slow", topic, 0), (b"slow", topic, 1), (b"next", topic, 0)]


# ---- an operator asks ----


@pytest.mark.parametrize(
    ("answer", "result"),
    [(None, "CR_SUCCESS"), (False, "CR_LATER"), (ValueError("no stock"), "CR_THROW_EXCEPTION")],
)
async def test_an_operator_has_a_message_handled_directly(
    answer: Answer | Exception, result: str, peer: Peer, name_server: str, topics: Topics, feeder: RawProducer
) -> None:
    topic, journal = topics(queues=1), Journal()
    ids: list[str] = []

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        await journal(messages)
        if not ids:
            ids.append(messages[0].offset_message_id)
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    feeder.feed(topic, [b"once more"])
    consuming = consumer(name_server)
    consuming.subscribe(topic, handler)
    async with consuming:
        await eventually_async(lambda: ids, 20)
        asked = {
            "consumerGroup": consuming.group,
            "clientId": str(consuming.client_id),
            "msgId": ids[0],
            "brokerName": "broker-a",
            "topic": topic,
        }

        def ask() -> bytes:
            with ClientSocket(address(peer.address)) as connection:
                response = connection.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked)
            assert response.code == 0, response.remark
            return response.body

        body = await asyncio.to_thread(ask)
    assert f'"consumeResult":"{result}"'.encode() in body
    assert journal.seen == [(b"once more", topic, 0)] * 2
    assert retry_topic(consuming.group) == f"%RETRY%{consuming.group}"
