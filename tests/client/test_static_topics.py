"""Static topics: logical queues, which broker holds them, and that all requests for one go to its holder."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import Message, MessageQueue
from firearrow.client.base.options import (
    ClientOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consume.consume_results import ConsumeResult
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.pull.pull_request import PullClient, PullQuery
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.remote_offset_store import RemoteOffsetStore
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets
from firearrow.client.remoting.routes import (
    NO_HOLDER,
    QUEUES_MAX,
    PublishInfo,
    StaticTopic,
    TopicRoute,
    logical_broker,
)
from firearrow.client.send.producer import Producer
from firearrow.client.send.transactions import TransactionState
from tests.client.conftest import unique
from tests.client.consumers import Journal
from tests.client.pushing import FIRST, Seen, again, consumer
from tests.client.scripted import Scripted
from tests.client.two_brokers import NAME, SecondBroker
from tests.interop.driver import Driver
from tests.interop.peers import Peer
from tests.interop.toolchain import java_class_path, need
from tests.support.eventually import eventually_async

LOGICAL = "__syslo__global__"


def mapping(broker: str, *numbers: int, total: int = 4, epoch: int = 1, **more: object) -> dict[str, Any]:
    """The mapping of the logical queues that a broker holds."""
    held = {str(number): position for position, number in enumerate(numbers)}
    plain = {
        "topic": "t",
        "scope": "__global__",
        "totalQueues": total,
        "bname": broker,
        "epoch": epoch,
        "dirty": False,
        "currIdMap": held,
    }
    return plain | more


def mapped(*mappings: dict[str, Any]) -> StaticTopic:
    static = StaticTopic.decode({str(n): each for n, each in enumerate(mappings)}, QUEUES_MAX)
    assert static is not None
    return static


def logical(*numbers: int, broker: str = LOGICAL) -> list[MessageQueue]:
    return [MessageQueue("t", broker, number) for number in numbers]


# ---- the mapping ----


def test_logical_queues_are_those_of_all_brokers_in_the_order_of_their_numbers() -> None:
    static = mapped(mapping("b", 1, 3), mapping("a", 2, 0))
    assert static.queues("t") == logical(0, 1, 2, 3)
    assert [static.holder(queue) for queue in logical(0, 1, 2, 3)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_brokers_with_one_queue_the_newer_has_it(turned: bool) -> None:
    recorders = [mapping("b", 0, 1, epoch=1), mapping("a", 1, epoch=2)]
    static = mapped(*(reversed(recorders) if turned else recorders))
    assert [static.holder(queue) for queue in logical(0, 1)] == ["b", "a"]


def test_an_unmapped_queue_has_no_holder_and_one_beyond_the_total_does_not_exist() -> None:
    static = mapped(mapping("a", 0, 7, total=2))
    assert static.queues("t") == logical(0, 1)
    assert static.holder(logical(1)[0]) == NO_HOLDER
    assert static.holder(logical(7)[0]) == LOGICAL


def test_each_scope_has_separate_queues() -> None:
    static = mapped(mapping("a", 0, total=1), mapping("b", 0, total=2, scope="north"))
    north = "__syslo__north"
    assert logical_broker("north") == north
    assert static.queues("t") == [*logical(0), *logical(0, 1, broker=north)]
    assert static.holder(logical(0, broker=north)[0]) == "b"
    assert mapped(mapping("a", 0, scope=None)).queues("t") == []


def test_an_ordinary_queue_is_held_by_the_broker_that_it_names() -> None:
    assert mapped(mapping("a", 0)).holder(MessageQueue("t", "b", 0)) == "b"
    assert StaticTopic.decode(None, QUEUES_MAX) is None
    assert StaticTopic.decode({}, QUEUES_MAX) is None


def route(**more: object) -> bytes:
    plain = {
        "brokerDatas": [{"brokerName": "a", "brokerAddrs": {"0": "h:1"}, "cluster": "c"}],
        "queueDatas": [{"brokerName": "a", "readQueueNums": 9, "writeQueueNums": 9, "perm": 6}],
    }
    return orjson.dumps(plain | more)


def test_a_route_gives_logical_queues_unless_an_order_is_configured() -> None:
    mappings = {"a": mapping("a", 0, 1, total=2)}
    info = PublishInfo.of("t", TopicRoute.decode(route(topicQueueMappingByBroker=mappings)))
    assert (list(info.queues), info.static) == (logical(0, 1), True)
    ordered = TopicRoute.decode(route(topicQueueMappingByBroker=mappings, orderTopicConf="a:1"))
    assert PublishInfo.of("t", ordered).queues == (MessageQueue("t", "a", 0),)
    assert not PublishInfo.of("t", TopicRoute.decode(route(topicQueueMappingByBroker=None))).static


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (mapping("a", total=QUEUES_MAX + 1), "totalQueues"),
        (mapping("a", total=-1), "totalQueues"),
        (mapping("a", totalQueues="4"), "totalQueues"),
        (mapping("a", totalQueues=True), "totalQueues"),
        (mapping("a", epoch=-1), "epoch"),
        (mapping("a") | {"epoch": None}, "epoch"),
        (mapping("", 0), "bname"),
        (mapping("a", bname=7), "bname"),
        (mapping("a", currIdMap={"x": 0}), "invalid literal"),
        (mapping("a", currIdMap=dict.fromkeys(map(str, range(QUEUES_MAX + 1)), 0)), "currIdMap"),
        (mapping("a", scope=5), "TypeError"),
        ("text", "AttributeError"),
    ],
)
def test_a_mapping_that_cannot_be_true_is_refused(bad: object, named: str) -> None:
    with pytest.raises(ClientError, match=named):
        TopicRoute.decode(route(topicQueueMappingByBroker={"a": bad}))


def test_scopes_together_are_bounded() -> None:
    half = {f"s{n}": mapping("a", scope=f"s{n}", total=QUEUES_MAX // 2 + 1) for n in range(2)}
    with pytest.raises(ClientError, match="totalQueues: over"):
        TopicRoute.decode(route(topicQueueMappingByBroker=half))


# ---- where requests go ----


@asynccontextmanager
async def two() -> AsyncIterator[Scripted]:
    """Brokers a and b; a holds the logical queue 0, b queue 1."""
    async with Scripted("a", "b") as cluster:
        cluster.mappings = {"a": mapping("a", 0, total=2), "b": mapping("b", 1, total=2)}
        yield cluster


@asynccontextmanager
async def instance_of(cluster: Scripted) -> AsyncIterator[ClientInstance]:
    instance = await ClientInstance.of(
        ClientOptions(name_server=cluster.name_server, instance_name=unique("one"))
    )
    try:
        yield instance
    finally:
        await instance.leave()


class RequestRecorder:
    """Replaces a broker: `requests` by code, answered by `says`."""

    def __init__(self, cluster: Scripted, name: str, **says: str) -> None:
        self.requests: list[RemotingCommand] = []
        self._says = says
        cluster.brokers[name].answer = self._answer  # type: ignore[method-assign]

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        self.requests.append(request)
        return request.answer(19 if request.code == RequestCode.PULL_MESSAGE else 0, ext=self._says)

    def of(self, code: RequestCode) -> list[RemotingCommand]:
        return [request for request in self.requests if request.code == code]


async def test_messages_go_to_the_holders_of_their_queues_and_follow_a_queue_that_moves() -> None:
    options = ProducerOptions(retries=0)
    async with (
        two() as cluster,
        Producer(unique("p"), name_server=cluster.name_server, options=options) as producer,
    ):
        a, b = cluster.brokers["a"], cluster.brokers["b"]
        assert list(await producer.queues("t")) == logical(0, 1)
        results = [await producer.send(Message("t", b"x")) for _ in range(8)]
        assert {result.queue for result in results} == set(logical(0, 1))
        sent = [[(request.ext["e"], request.ext["n"]) for request in each.sent] for each in (a, b)]
        assert sent == [[("0", "a")] * 4, [("1", "b")] * 4]

        cluster.mappings["b"] = mapping("b", 0, 1, total=2, epoch=2)
        assert await producer.instance.routes.refresh("t")
        await producer.send(Message("t", b"y"), queue=logical(0)[0])
        await producer.send_oneway(Message("t", b"z"), queue=logical(0)[0])
        await eventually_async(lambda: len(b.sent) == 6)
        assert (b.sent[-1].ext["e"], len(a.sent)) == ("0", 4)


async def test_offsets_positions_and_pulls_go_to_the_holder_with_the_logical_name() -> None:
    queue = logical(1)[0]
    async with two() as cluster, instance_of(cluster) as instance:
        b = RequestRecorder(
            cluster,
            "b",
            offset="7",
            nextBeginOffset="7",
            minOffset="0",
            maxOffset="7",
            suggestWhichBrokerId="0",
        )
        assert await QueueOffsets(instance).max_offset(queue) == 7
        offsets = RemoteOffsetStore(instance, "g")
        await offsets.commit(queue, 5)
        assert (await PullClient(instance, "g").pull(pull_of(queue))).next_offset == 7
        for code in (
            RequestCode.GET_MAX_OFFSET,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.PULL_MESSAGE,
        ):
            (request,) = b.of(code)
            assert (request.ext["queueId"], request.ext["bname"]) == ("1", LOGICAL)


def pull_of(queue: MessageQueue) -> PullQuery:
    return PullQuery(
        queue=queue, subscription=Subscription.of("t"), offset=7, batch=1, batch_bytes=1 << 20, timeout_s=5
    )


async def test_a_pull_asks_for_the_route_once_and_gives_up_on_a_queue_without_holder() -> None:
    async with two() as cluster, instance_of(cluster) as instance:
        del cluster.mappings["b"]
        with pytest.raises(ClientError, match="broker __syslo__none__ is not known"):
            await PullClient(instance, "g").pull(pull_of(logical(1)[0]))
        assert cluster.asked == ["t"]


async def test_locks_are_asked_for_at_each_holder() -> None:
    async with two() as cluster, instance_of(cluster) as instance:
        await instance.routes.refresh("t")
        recorders = [RequestRecorder(cluster, name) for name in "ab"]
        await QueueLocks(instance, "g", {}).lock_queues(logical(0, 1))
        bodies = [orjson.loads(each.of(RequestCode.LOCK_BATCH_MQ)[0].body)["mqSet"] for each in recorders]
        assert bodies == [[{"brokerName": LOGICAL, "queueId": n, "topic": "t"}] for n in (0, 1)]


# ---- Apache's broker ----


Admin = Callable[[str], str]


@pytest.fixture(scope="module")
def mqadmin(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """Apache's mqadmin; returns the output of a command."""
    if peer.kind != "apache":
        pytest.skip("FireArrow refuses static topics: one broker has nowhere to move queues to")
    need(partial(java_class_path, "client5"))
    driver = Driver("java5", peer.name_server, tmp_path_factory.mktemp("static"))
    yield lambda line: str(driver.ask("mqadmin", argument=line.split())[0]["text"])
    driver.stop()


@pytest.fixture
def static_topic(mqadmin: Admin) -> Iterator[str]:
    """A topic with three logical queues at the first broker, gone afterwards."""
    topic = unique("static")
    made = mqadmin(f"updateStaticTopic -t {topic} -qn 3 -b broker-a")
    assert "new mapping data is written" in made, made
    yield topic
    assert "success" in mqadmin(f"deleteTopic -c DefaultCluster -t {topic}")


@pytest.fixture
def second(mqadmin: Admin, peer: Peer, tmp_path: Path) -> Iterator[SecondBroker]:
    second = SecondBroker(peer, tmp_path / "second")
    yield second
    second.kill()


@pytest.mark.interop
@pytest.mark.parametrize("orderly", [False, True])
async def test_what_is_sent_to_a_static_topic_is_consumed_once(
    name_server: str, static_topic: str, orderly: bool
) -> None:
    bodies = [b"%02d" % number for number in range(50)]
    async with Producer(unique("p"), name_server=name_server) as producer:
        await wait_until_mapped(producer, static_topic)
        results = [await producer.send(Message(static_topic, body)) for body in bodies]
    queues = [MessageQueue(static_topic, LOGICAL, number) for number in range(3)]
    assert {result.queue for result in results} == set(queues)

    seen = Seen()
    first = consumer(name_server, static_topic, seen, orderly=orderly)
    async with first:
        await eventually_async(lambda: len(seen.messages) >= 50, 30)
    assert sorted(seen.bodies) == bodies
    assert {message.queue for message in seen.messages} == set(queues)
    for queue in queues:
        offsets = [message.queue_offset for message in seen.messages if message.queue == queue]
        assert offsets == list(range(len(offsets)))

    later = Seen()
    async with again(first, name_server, static_topic, later):
        async with Producer(unique("p"), name_server=name_server) as producer:
            for queue in queues:
                await producer.send(Message(static_topic, b"last"), queue=queue)
        await eventually_async(lambda: len(later.messages) >= 3, 30)
    assert later.bodies == [b"last"] * 3, "what was consumed before does not come again"


@pytest.mark.interop
async def test_a_transaction_and_a_message_that_comes_again(name_server: str, static_topic: str) -> None:
    journal = Journal(lambda message: None if message.reconsume_times else ConsumeResult.RETRY_LATER)
    async with (
        Producer(
            unique("p"), name_server=name_server, checker=lambda _: TransactionState.UNKNOWN
        ) as producer,
        consumer(name_server, static_topic, journal),
    ):
        await wait_until_mapped(producer, static_topic)
        async with producer.transaction(Message(static_topic, b"whole")):
            pass
        await eventually_async(lambda: len(journal.seen) == 2, 30)
        assert [(body, again) for body, _, again in journal.seen] == [(b"whole", 0), (b"whole", 1)]


@pytest.mark.interop
async def test_a_pull_consumer_commits_at_the_holder(name_server: str, static_topic: str) -> None:
    group, options = unique("group"), PullConsumerOptions(from_where=FIRST)
    async with Producer(unique("p"), name_server=name_server) as producer:
        await wait_until_mapped(producer, static_topic)
        queue = (await producer.send(Message(static_topic, b"x"))).queue
    async with PullConsumer(group, name_server=name_server, options=options) as first:
        assert queue in await first.fetch_queues(static_topic)
        assert (await first.first_offset(queue), await first.last_offset(queue)) == (0, 1)
        first.assign([queue])
        (message,) = await first.poll(10)
        assert (message.body, message.queue) == (b"x", queue)
        await first.commit()
    async with PullConsumer(group, name_server=name_server) as second:
        second.assign([queue])
        assert await second.committed(queue) == 1


@pytest.mark.interop
async def test_a_consumer_follows_queues_that_move_to_another_broker(
    name_server: str, second: SecondBroker, static_topic: str, mqadmin: Admin
) -> None:
    soon = ClientOptions(name_server=name_server, poll_name_server_s=0.3, heartbeat_s=0.5, rebalance_s=0.5)
    before, after = ([b"%s%02d" % (when, number) for number in range(30)] for when in (b"a", b"b"))
    queues = [MessageQueue(static_topic, LOGICAL, number) for number in range(3)]
    seen = Seen()
    options = PushConsumerOptions(from_where=FIRST)
    follower = PushConsumer(unique("group"), options=options, client=soon)
    follower.subscribe(static_topic, seen)
    async with Producer(unique("p"), client=soon) as producer, follower:
        await wait_until_mapped(producer, static_topic)
        routes = producer.instance.routes
        for body in before:
            await producer.send(Message(static_topic, body))
        await eventually_async(lambda: len(seen.messages) >= 30, 30)
        assert {routes.broker_name_of(queue) for queue in queues} == {"broker-a"}

        moved = await asyncio.to_thread(mqadmin, f"remappingStaticTopic -t {static_topic} -b {NAME}")
        assert ".after" in moved, moved
        await eventually_async(lambda: {routes.broker_name_of(queue) for queue in queues} == {NAME}, 30)
        results = [await producer.send(Message(static_topic, body)) for body in after]
        await eventually_async(lambda: len(seen.messages) >= 60, 30)
    assert {result.queue for result in results} == set(queues)
    assert sorted(seen.bodies) == [*before, *after]
    bodies = {(message.queue, message.queue_offset): message.body for message in seen.messages}
    for result, body in zip(results, after, strict=True):
        assert bodies[result.queue, result.queue_offset] == body, "logical offsets, as the send returned"


async def wait_until_mapped(producer: Producer, topic: str) -> None:
    """Apache's broker reports the mapping to its name server a moment later."""
    routes = producer.instance.routes

    async def mapped() -> bool:
        with suppress(ClientError):
            await routes.refresh(topic)
            return (await routes.publish_info(topic)).static
        return False

    await eventually_async(mapped, what=f"the mapping of {topic} is in its route")
