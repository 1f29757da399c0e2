"""Consuming end to end, against a real broker: retries, dead letters, order under failure, time-outs, and what a close
leaves. Messages are fed by plain frames."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.received import ReceivedMessage
from firearrow._native.store.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.consuming import Accepted, Answer, ConsumeResult, DeadLetter, Retry, Suspend
from firearrow.client.names import dlq_topic, retry_topic
from firearrow.client.options import ClientOptions, ConsumeFromWhere, MessageModel, PushConsumerOptions
from firearrow.client.push_consumer import PushConsumer
from tests.client.conftest import unique
from tests.client.feeding import Feeder
from tests.client.waiting import wait_until
from tests.interop.peers import Peer, address
from tests.process import Connection
from tests.process.requests import pull
from tests.process.stored import whole

Topics = Callable[..., str]


@pytest.fixture
def feeder(peer: Peer) -> Feeder:
    return Feeder(peer)


def consumer(name_server: str, group: str | None = None, **options: object) -> PushConsumer:
    first: dict[str, object] = {"from_where": ConsumeFromWhere.FIRST_OFFSET}
    wanted = PushConsumerOptions(**(first | options))  # type: ignore[arg-type]
    return PushConsumer(group or unique("group"), name_server=name_server, options=wanted)


def numbers(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


def dead_letters(peer: Peer, group: str) -> list[Record]:
    """None while there is no such topic."""
    with Connection(address(peer.address)) as connection:
        if pull(connection, dlq_topic(group)).code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        return whole(connection, dlq_topic(group))


class Journal:
    """What handlers were given, in order: (body, topic, how often it came back before)."""

    def __init__(self, answer: Callable[[ReceivedMessage], Answer] = lambda message: None) -> None:
        self.seen: list[tuple[bytes, str, int]] = []
        self.batches: list[int] = []
        self._answer = answer

    async def __call__(self, messages: list[ReceivedMessage]) -> Answer:
        self.batches.append(len(messages))
        answer: Answer = None
        for message in messages:
            self.seen.append((message.body, message.topic, message.reconsume_times))
            answer = self._answer(message)
        return answer

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _, _ in self.seen]


# ---- retries and dead letters ----


@pytest.mark.parametrize("answer", [False, ConsumeResult.RETRY_LATER, Retry(1), ValueError("not now")])
async def test_a_message_that_failed_comes_again_as_itself_and_the_others_once(
    answer: Answer | Exception, name_server: str, topics: Topics, feeder: Feeder
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
        await wait_until(lambda: len(journal.seen) == 4, 20)
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
        await wait_until(lambda: again.seen)
    assert again.bodies == [b"last"]


async def test_a_message_that_fails_too_often_ends_as_a_dead_letter(
    peer: Peer, name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, journal = topics(), Journal(lambda message: False)
    feeder.feed(topic, [b"poison"])
    consuming = consumer(name_server, max_reconsume_times=1)
    consuming.subscribe(topic, journal)
    async with consuming:
        await wait_until(lambda: dead_letters(peer, consuming.group), 20)
    (letter,) = dead_letters(peer, consuming.group)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"poison", topic)
    assert [times for _, _, times in journal.seen] == [0, 1]


async def test_a_handler_may_send_to_the_dead_letters_at_once(
    peer: Peer, name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, journal = topics(), Journal(lambda message: DeadLetter())
    feeder.feed(topic, [b"poison"])
    consuming = consumer(name_server)
    consuming.subscribe(topic, journal)
    async with consuming:
        await wait_until(lambda: dead_letters(peer, consuming.group), 20)
    assert [letter.body for letter in dead_letters(peer, consuming.group)] == [b"poison"]
    assert len(journal.seen) == 1


async def test_batches_keep_their_size_and_what_was_not_accepted_comes_again(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, journal = topics(queues=1), Journal()
    feeder.feed(topic, numbers(16))

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        await journal(messages)
        return Accepted(3) if len(messages) == 8 and not messages[0].reconsume_times else None

    consuming = consumer(name_server, batch_size=8)
    consuming.subscribe(topic, handler)
    async with consuming:
        await wait_until(lambda: len(journal.seen) == 26, 20)
    assert max(journal.batches) == 8
    again = Counter(body for body, _, times in journal.seen if times)
    assert again == Counter(numbers(8)[3:] + numbers(16)[11:])


async def test_if_the_broker_cannot_take_it_back_the_message_is_published_to_the_retry_topic(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, journal = topics(), Journal(lambda message: None if message.reconsume_times else False)
    feeder.feed(topic, [b"\x00any\xff"], TAGS="a", KEYS="k1 k2", mine="x")
    found: list[ReceivedMessage] = []

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        if messages[0].reconsume_times:
            found.extend(messages)
        else:  # as if it had lain at a place of the log that the broker has deleted
            messages[0].broker_name = "broker-that-is-gone"
        return await journal(messages)

    consuming = consumer(name_server)
    consuming.subscribe(topic, handler)
    async with consuming:
        await wait_until(lambda: found, 20)
    assert journal.seen == [(b"\x00any\xff", topic, 0), (b"\x00any\xff", topic, 1)]
    assert (found[0].tags, found[0].keys, found[0].get_property("mine")) == ("a", ("k1", "k2"), "x")


async def test_a_namespace_is_seen_by_nobody_but_the_broker(
    peer: Peer, name_server: str, feeder: Feeder
) -> None:
    topic, journal = unique("topic"), Journal(lambda message: message.reconsume_times > 0)
    feeder.feed(f"tenant%{topic}", [b"a"])
    with Connection(address(peer.name_server)) as connection:
        asked = {"topic": f"tenant%{topic}"}
        await wait_until(lambda: connection.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, asked).code == 0)
    consuming = PushConsumer(
        unique("group"),
        options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
        client=ClientOptions(name_server=name_server, namespace="tenant"),
    )
    consuming.subscribe(topic, journal)
    async with consuming:
        await wait_until(lambda: len(journal.seen) == 2, 20)
    assert journal.seen == [(b"a", topic, 0), (b"a", topic, 1)]
    assert consuming.group.startswith("tenant%")


# ---- handlers that misbehave ----


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_that_raises_what_ends_programs_does_not_end_the_consumer(
    error: BaseException, plain: bool, name_server: str, topics: Topics, feeder: Feeder
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
        await wait_until(lambda: len(seen) == 2, 20)
    assert seen == [(b"a", 0), (b"a", 1)]


async def test_a_handler_that_blocks_keeps_its_thread_only(
    name_server: str, topics: Topics, feeder: Feeder
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
        await wait_until(lambda: len(seen) == 19)
        assert sorted(seen) == numbers(20)[1:]
        ends.set()
        await wait_until(lambda: len(seen) == 20)


async def test_a_message_that_a_handler_keeps_too_long_comes_to_another_one(
    name_server: str, topics: Topics, feeder: Feeder
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
        await wait_until(lambda: len(journal.seen) == 2, 20)
        ends.set()
        feeder.feed(topic, [b"next"])
        await wait_until(lambda: len(journal.seen) == 3, 20)
    assert journal.seen == [(b"slow", topic, 0), (b"slow", topic, 1), (b"next", topic, 0)]


# ---- in order ----


@pytest.mark.parametrize("answer", [False, Suspend(0.05), RuntimeError("no")])
async def test_order_is_kept_under_failure_while_other_queues_go_on(
    answer: Answer | Exception, name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, seen, failed = topics(queues=2), dict[int, list[bytes]]({0: [], 1: []}), list[bytes]()

    async def handler(messages: list[ReceivedMessage]) -> Answer:
        message = messages[0]
        if message.queue_id == 0 and message.body in (b"003", b"007") and failed.count(message.body) < 2:
            failed.append(message.body)
            assert message.reconsume_times == failed.count(message.body) - 1
            if isinstance(answer, Exception):
                raise answer
            return answer
        seen[message.queue_id].append(message.body)
        return None

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(10), queue_id=queue_id)
    consuming = consumer(name_server, orderly=True, suspend_s=0.05)
    consuming.subscribe(topic, handler)
    async with consuming:
        await wait_until(lambda: len(seen[0]) == len(seen[1]) == 10, 20)
    assert seen == {0: numbers(10), 1: numbers(10)}
    assert failed == [b"003", b"003", b"007", b"007"]


async def test_in_order_plain_handlers_never_meet_in_one_queue(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, seen, running = topics(queues=2), list[tuple[int, bytes]](), Counter[int]()
    together: list[int] = []

    def handler(messages: list[ReceivedMessage]) -> None:
        queue_id = messages[0].queue_id
        running[queue_id] += 1
        together.append(running[queue_id])
        seen.extend((queue_id, message.body) for message in messages)
        running[queue_id] -= 1

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(50), queue_id=queue_id)
    consuming = consumer(name_server, orderly=True, batch_size=4)
    consuming.subscribe(topic, handler)
    async with consuming:
        await wait_until(lambda: len(seen) == 100, 20)
    assert set(together) == {1}
    assert [body for queue_id, body in seen if queue_id == 0] == numbers(50)


async def test_in_order_too_many_failures_end_as_a_dead_letter_and_the_queue_goes_on(
    peer: Peer, name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic = topics(queues=1)
    journal = Journal(lambda message: message.body != b"001")
    feeder.feed(topic, numbers(3))
    consuming = consumer(name_server, orderly=True, suspend_s=0.05, max_reconsume_times=2)
    consuming.subscribe(topic, journal)
    async with consuming:
        await wait_until(lambda: b"002" in journal.bodies, 20)
        await wait_until(lambda: dead_letters(peer, consuming.group), 20)
    assert journal.bodies == [b"000", b"001", b"001", b"001", b"002"]
    (letter,) = dead_letters(peer, consuming.group)
    assert (letter.body, letter.properties["RETRY_TOPIC"]) == (b"001", topic)


async def test_without_auto_commit_only_what_was_committed_stays_done(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic = topics(queues=1)
    first = Journal(lambda message: ConsumeResult.COMMIT if message.body == b"002" else None)
    feeder.feed(topic, numbers(6))
    consuming = consumer(name_server, orderly=True, auto_commit=False)
    consuming.subscribe(topic, first)
    async with consuming:
        await wait_until(lambda: len(first.seen) == 6)
    second = Journal()
    successor = consumer(name_server, consuming.group, orderly=True)
    successor.subscribe(topic, second)
    async with successor:
        await wait_until(lambda: len(second.seen) == 3, 20)
    assert second.bodies == numbers(6)[3:]


async def test_the_next_member_goes_on_in_order_where_the_last_one_stopped(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    """No pause for a lock's 60 s, nothing twice, nothing left out."""
    topic, seen = topics(queues=2), dict[int, list[bytes]]({0: [], 1: []})

    async def handler(messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0.005)
        seen[messages[0].queue_id] += [message.body for message in messages]

    for queue_id in (0, 1):
        feeder.feed(topic, numbers(60), queue_id=queue_id)
    group = unique("group")
    for stop_at in (20, 60, 120):
        consuming = consumer(name_server, group, orderly=True)
        consuming.subscribe(topic, handler)
        async with consuming:
            await wait_until(lambda: len(seen[0]) + len(seen[1]) >= stop_at, 20)  # noqa: B023
    assert seen == {0: numbers(60), 1: numbers(60)}


# ---- broadcasting ----


async def test_broadcasting_brings_everything_to_everybody_and_failures_to_nobody_again(
    name_server: str, topics: Topics, feeder: Feeder, tmp_path: Path
) -> None:
    topic, group = topics(), unique("group")
    feeder.spread(topic, 20)
    journals = [Journal(lambda message: message.body != b"7"), Journal()]
    members = []
    for number, journal in enumerate(journals):
        member = PushConsumer(
            group,
            options=PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                model=MessageModel.BROADCASTING,
                local_offsets=tmp_path,
            ),
            client=ClientOptions(name_server=name_server, instance_name=f"member{number}"),
        )
        member.subscribe(topic, journal)
        members.append(member)
    async with members[0], members[1]:
        await wait_until(lambda: all(len(journal.seen) >= 20 for journal in journals), 20)
    assert [Counter(journal.bodies) for journal in journals] == [Counter(b"%d" % n for n in range(20))] * 2


async def test_broadcasting_goes_on_where_its_file_says(
    name_server: str, topics: Topics, feeder: Feeder, tmp_path: Path
) -> None:
    topic, group, seen = topics(), unique("group"), list[bytes]()
    for bodies in (numbers(5), [b"new"]):
        feeder.feed(topic, bodies)
        journal = Journal()
        member = PushConsumer(
            group,
            options=PushConsumerOptions(
                from_where=ConsumeFromWhere.FIRST_OFFSET,
                model=MessageModel.BROADCASTING,
                local_offsets=tmp_path,
            ),
            client=ClientOptions(name_server=name_server, instance_name="steady"),
        )
        member.subscribe(topic, journal)
        async with member:
            await wait_until(lambda: len(journal.seen) >= len(bodies), 20)  # noqa: B023
        seen += journal.bodies
    assert seen == [*numbers(5), b"new"]


# ---- the close ----


@pytest.mark.parametrize("plain", [False, True])
async def test_a_close_under_load_loses_nothing_and_repeats_nothing(
    plain: bool, name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, begun, done = topics(), Counter[bytes](), Counter[bytes]()
    pause = threading.Event()

    def plain_handler(messages: list[ReceivedMessage]) -> None:
        begun.update(message.body for message in messages)
        pause.wait(0.01)
        done.update(message.body for message in messages)

    async def handler(messages: list[ReceivedMessage]) -> None:
        begun.update(message.body for message in messages)
        await asyncio.sleep(0.01)
        done.update(message.body for message in messages)

    sent = feeder.spread(topic, 400)
    group = unique("group")
    for stop_at in (50, 200, 400):
        consuming = consumer(name_server, group, threads=4)
        consuming.subscribe(topic, plain_handler if plain else handler)
        async with consuming:
            await wait_until(lambda: sum(done.values()) >= stop_at, 30)  # noqa: B023
        assert begun == done
    assert done == Counter(sent)


async def test_a_handler_cut_off_by_a_close_leaves_its_message_to_the_next_member(
    name_server: str, topics: Topics, feeder: Feeder
) -> None:
    topic, begun, cancelled = topics(), list[bytes](), list[bytes]()

    async def stuck(messages: list[ReceivedMessage]) -> None:
        begun.append(messages[0].body)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(messages[0].body)
            raise

    feeder.feed(topic, numbers(3))
    consuming = consumer(name_server, threads=2, drain_s=0.2)
    consuming.subscribe(topic, stuck)
    async with consuming:
        await wait_until(lambda: len(begun) == 2)
        closing = asyncio.get_running_loop().time()
    assert sorted(cancelled) == [b"000", b"001"]
    assert asyncio.get_running_loop().time() - closing < 5
    journal = Journal()
    successor = consumer(name_server, consuming.group)
    successor.subscribe(topic, journal)
    async with successor:
        await wait_until(lambda: len(journal.seen) == 3, 20)
    assert sorted(journal.bodies) == numbers(3)


# ---- an operator asks ----


@pytest.mark.parametrize(
    ("answer", "result"),
    [(None, "CR_SUCCESS"), (False, "CR_LATER"), (ValueError("no stock"), "CR_THROW_EXCEPTION")],
)
async def test_an_operator_has_a_message_handled_directly(
    answer: Answer | Exception, result: str, peer: Peer, name_server: str, topics: Topics, feeder: Feeder
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
        await wait_until(lambda: ids, 20)
        asked = {
            "consumerGroup": consuming.group,
            "clientId": str(consuming.client_id),
            "msgId": ids[0],
            "brokerName": "broker-a",
            "topic": topic,
        }

        def ask() -> bytes:
            with Connection(address(peer.address)) as connection:
                told = connection.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, asked)
            assert told.code == 0, told.remark
            return told.body

        body = await asyncio.to_thread(ask)
    assert f'"consumeResult":"{result}"'.encode() in body
    assert journal.seen == [(b"once more", topic, 0)] * 2
    assert retry_topic(consuming.group) == f"%RETRY%{consuming.group}"
