"""Held pulls: whatever happens while they wait, all paths answer the same pulls with the same bytes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.fastpath.test_same_answers import general
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import COMMIT, SUBSCRIPTION, SUSPEND, pull_ext, records, send_ext, topic_ext
from tests.support.stores import item

GROUP = "waiting"
EXPRESSIONS = ("*", "red", "red || blue", "green")
PULLS = 16
JSON, ROCKETMQ = 0, 1
Deed = Callable[[ClientSocket, str], object]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    folder = tmp_path_factory.mktemp("held")
    running = [BrokerProcess(folder / name, way=way) for name, way in WAYS.items()]
    yield running
    for broker in running:
        assert broker.stop(verified=False) == 0  # a test commits offsets past the end
        assert "Traceback" not in broker.log.read_text()


def settle(client: ClientSocket, topic: str, *, perm: str = "6") -> None:
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2) | {"perm": perm}).code == 0


def configure(client: ClientSocket, *, enabled: bool) -> None:
    body = b'{"groupName":"%s","consumeEnable":%s}' % (GROUP.encode(), str(enabled).lower().encode())
    assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0


def sent(tag: str, count: int = 1) -> Deed:
    """All in one request: readers get all of them or none."""
    text = f"TAGS\x01{tag}\x02".encode() if tag else b""
    items = b"".join(item(b"%d" % number, text) for number in range(count))

    def deed(client: ClientSocket, topic: str) -> None:
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext(topic, m="true"), items)
        assert answer.code == 0, answer.remark

    return deed


def reset(client: ClientSocket, topic: str) -> None:
    ext = {"topic": topic, "group": GROUP, "queueId": "0", "offset": "0", "timestamp": "0", "isForce": "true"}
    client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    sent("red")(client, topic)


def closed_and_sent(client: ClientSocket, topic: str) -> None:
    settle(client, topic, perm="2")
    sent("red")(client, topic)


def deleted(client: ClientSocket, topic: str) -> None:
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0


def recreated(client: ClientSocket, topic: str) -> None:
    deleted(client, topic)
    settle(client, topic)
    sent("red", 4)(client, topic)


def disabled(client: ClientSocket, topic: str) -> None:
    configure(client, enabled=False)
    sent("red")(client, topic)


DEEDS: dict[str, Deed] = {
    "one": sent("red"),
    "one of another tag": sent("yellow"),
    "no tag": sent(""),
    "a few": sent("blue", 5),
    "enough others to move its offset": sent("yellow", 801),
    "a reset": reset,
    "a topic that may not be read": closed_and_sent,
    "a deleted topic": deleted,
    "a topic that is recreated": recreated,
    "a group that may not consume": disabled,
}


def asked(topic: str, offset: int, wait_ms: int) -> list[bytes]:
    """Pulls of all kinds that are held."""
    frames = []
    for number, expression in enumerate(EXPRESSIONS * (PULLS // len(EXPRESSIONS))):
        queue_id, commits = "0" if number < 12 else "1", COMMIT if number % 3 == 0 else 0
        ext = pull_ext(
            topic,
            offset if queue_id == "0" else 0,
            consumerGroup=GROUP,
            queueId=queue_id,
            subscription=expression,
            sysFlag=str(SUBSCRIPTION | SUSPEND | commits),
            suspendTimeoutMillis=str(wait_ms),
            maxMsgNums=str(1 + number % 5),
            commitOffset=str(number),
        )
        serializer = ROCKETMQ if number % 2 else JSON
        command = RemotingCommand(RequestCode.PULL_MESSAGE, ext, opaque=1000 + number, serializer=serializer)
        frames.append(command.encode())
    return frames


def comparable(answer: RemotingCommand, port: int) -> bytes:
    """Everything, except offset and identity of its records."""
    answer.body = repr([(record.queue_offset, record.body) for record in records(answer.body)]).encode()
    return general(answer.encode(), port)


def waiting(client: ClientSocket, consumer: ClientSocket, topic: str, wait_ms: int) -> None:
    """Topic, group and pulls are registered."""
    configure(client, enabled=True)
    settle(client, topic)
    sent("red", 3)(client, topic)
    consumer.send_raw(b"".join(asked(topic, 3, wait_ms)))


def answers(broker: BrokerProcess, consumer: ClientSocket) -> dict[int, bytes]:
    """Responses received so far, by opaque."""
    found: dict[int, bytes] = {}
    barrier = consumer.send_request(RequestCode.GET_BROKER_CONFIG)
    while (answer := consumer.receive()).opaque != barrier:
        found[answer.opaque] = comparable(answer, broker.address[1])
    return found


@pytest.mark.parametrize("name", DEEDS)
def test_events_while_pulls_are_held(brokers: list[BrokerProcess], name: str) -> None:
    """A woken pull is answered before any later request of the same client."""
    topic = "T-" + name.replace(" ", "-")
    with ExitStack() as open_ones:
        responses = []
        for broker in brokers:
            client, consumer = (open_ones.enter_context(broker.connect()) for _ in range(2))
            waiting(client, consumer, topic, wait_ms=20_000)
            assert answers(broker, consumer) == {}
            DEEDS[name](client, topic)
            responses.append(answers(broker, consumer))
    complete, *others = responses
    assert len(complete) < PULLS
    assert bool(complete) is (name != "a deleted topic")  # which causes no arrival
    for other in others:
        assert other == complete


def test_held_pulls_are_answered_at_their_deadline(brokers: list[BrokerProcess]) -> None:
    responses = []
    for broker in brokers:
        with broker.connect() as client:
            waiting(client, client, "Late", wait_ms=200)
            found = [client.receive() for _ in range(PULLS)]
            responses.append({answer.opaque: comparable(answer, broker.address[1]) for answer in found})
    complete, *others = responses
    assert len(complete) == PULLS
    for other in others:
        assert other == complete


def test_the_limit_of_held_pulls_changes_at_run_time(brokers: list[BrokerProcess]) -> None:
    """A pull beyond the limit is answered at once."""
    for broker in brokers:
        with broker.connect() as client, broker.connect() as consumer:
            for most, more in ((3, 3), (5, 2)):
                limit = b"maxHeldPulls=%d\n" % most
                assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=limit).code == 0
                waiting(client, consumer, f"Full-{most}", wait_ms=20_000)
                assert len(answers(broker, consumer)) == PULLS - more
            assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"maxHeldPulls=100000\n").code == 0
