"""PULL on the wire: fields and flags, its destination, and the result of an answer."""

from collections.abc import Mapping

import pytest

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.base.errors import BrokerError, ClientError, NoRoute
from firearrow.client.base.hooks import FilterHook
from firearrow.client.base.message import MessageQueue
from firearrow.client.pull.pull_request import PullClient, PullQuery, PullStatus, pull_command
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.routes import BrokerAddress
from tests.client.records import record

QUEUE = MessageQueue("orders", "broker-a", 3)
COMMIT, SUSPEND, EXPRESSION, LITE = 1, 2, 4, 16


def pull(**changes: object) -> PullQuery:
    plain: dict[str, object] = {
        "queue": QUEUE,
        "subscription": Subscription.of("orders", "a || b"),
        "offset": 17,
        "batch": 32,
        "batch_bytes": 262144,
        "timeout_s": 30,
    }
    return PullQuery(**(plain | changes))  # type: ignore[arg-type]


class Broker:
    """An instance with one group of brokers, whose answers are scripted."""

    def __init__(self, answer: RemotingCommand | None = None) -> None:
        self.routes = self
        self.answer = answer or answered()
        self.calls: list[tuple[str, RemotingCommand]] = []
        self.known = {0: "master:1", 1: "slave:1"}
        self.refreshed: list[str] = []
        self.version = 400

    def address(self, broker_name: str, broker_id: int) -> BrokerAddress | None:
        if broker_id in self.known:
            return BrokerAddress(self.known[broker_id], broker_id)
        return None

    def broker_name_of(self, queue: MessageQueue) -> str:
        return queue.broker_name

    async def refresh(self, topic: str) -> bool:
        self.refreshed.append(topic)
        return False

    def broker_version(self, address: str) -> int:
        return self.version

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.calls.append((address, command))
        return self.answer

    def puller(self, *filters: FilterHook, broker_id: int | None = None) -> PullClient:
        return PullClient(self, "group", filters, broker_id=broker_id)  # type: ignore[arg-type]


def answered(code: int = 19, body: bytes = b"", **changes: str) -> RemotingCommand:
    fields = {
        "nextBeginOffset": "20",
        "minOffset": "0",
        "maxOffset": "90",
        "suggestWhichBrokerId": "0",
    } | changes
    return RemotingCommand(code, {name: value for name, value in fields.items() if value}, body)


# ---- the request ----


def test_a_pull_carries_javas_fields() -> None:
    wanted = pull(suspend_s=15.0, commit=16)
    command = pull_command(wanted, "group", to_master=True)
    assert command.code == RequestCode.PULL_MESSAGE
    assert command.ext == {
        "consumerGroup": "group",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "17",
        "maxMsgNums": "32",
        "maxMsgBytes": "262144",
        "sysFlag": str(COMMIT | SUSPEND),
        "commitOffset": "16",
        "suspendTimeoutMillis": "15000",
        "subVersion": str(wanted.subscription.version),
        "expressionType": "TAG",
        "bname": "broker-a",
    }


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, 0),
        ({"suspend_s": 20.0}, SUSPEND),
        ({"suspend_s": 0.0}, SUSPEND),
        ({"commit": 5}, COMMIT),
        ({"post_expression": True}, EXPRESSION),
        ({"lite": True, "post_expression": True, "suspend_s": 1.0}, LITE | EXPRESSION | SUSPEND),
    ],
)
def test_flags_say_what_is_in_it(changes: Mapping[str, object], flags: int) -> None:
    command = pull_command(pull(**changes), "group", to_master=True)
    assert command.ext["sysFlag"] == str(flags)
    assert ("subscription" in command.ext) == bool(flags & EXPRESSION)
    assert (command.code == RequestCode.LITE_PULL_MESSAGE) == bool(flags & LITE)


def test_slaves_get_no_offset() -> None:
    command = pull_command(pull(commit=5), "group", to_master=False)
    assert (command.ext["sysFlag"], command.ext["commitOffset"]) == ("0", "0")


# ---- where it goes ----


@pytest.mark.parametrize("code", [0, 19, 20, 21])
async def test_every_answer_has_the_next_offset(code: int) -> None:
    broker = Broker(answered(code, suggestWhichBrokerId="1"))
    puller = broker.puller()
    for _ in range(2):
        await puller.pull(pull(commit=5))
    assert [address for address, _ in broker.calls] == ["master:1", "slave:1"]
    assert [command.ext["sysFlag"] for _, command in broker.calls] == ["1", "0"]


async def test_a_broker_may_be_chosen_for_all_pulls() -> None:
    broker = Broker(answered(suggestWhichBrokerId="0"))
    puller = broker.puller(broker_id=1)
    for _ in range(2):
        await puller.pull(pull())
    assert [address for address, _ in broker.calls] == ["slave:1", "slave:1"]


async def test_a_broker_that_is_not_known_is_looked_for_once() -> None:
    broker = Broker()
    broker.known = {}
    with pytest.raises(ClientError, match="broker broker-a is not known") as unknown:
        await broker.puller().pull(pull())
    assert not isinstance(unknown.value, NoRoute), "the topic has a route"
    assert broker.refreshed == ["orders"]


@pytest.mark.parametrize(("version", "taken"), [(231, False), (232, True)])
async def test_old_brokers_are_not_asked_to_filter_by_sql(version: int, taken: bool) -> None:
    broker = Broker()
    broker.version = version
    wanted = pull(subscription=Subscription.of("orders", sql="a > 1"))
    if taken:
        await broker.puller().pull(wanted)
        assert broker.calls[0][1].ext["expressionType"] == "SQL92"
    else:
        with pytest.raises(ClientError, match="too old"):
            await broker.puller().pull(wanted)
        assert broker.calls == []


# ---- the answer ----


@pytest.mark.parametrize("code", [0, 19, 20, 21])
async def test_four_codes_are_answers(code: int) -> None:
    result = await Broker(answered(code)).puller().pull(pull())
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (
        PullStatus(code),
        20,
        0,
        90,
    )
    assert result.messages == []


@pytest.mark.parametrize("code", [1, 2, 16, 17, 24, 25, 26, 215])
async def test_all_other_codes_are_errors(code: int) -> None:
    with pytest.raises(BrokerError) as refused:
        await Broker(RemotingCommand(code, remark="no")).puller().pull(pull())
    assert (refused.value.code, refused.value.remark, refused.value.broker) == (code, "no", "broker-a")


@pytest.mark.parametrize("name", ["nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"])
@pytest.mark.parametrize("value", ["", "x", "9999999999999999999999"])
async def test_a_field_that_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(FieldError, match=name):
        await Broker(answered(0, **{name: value})).puller().pull(pull())


async def test_an_offset_below_nought_is_refused() -> None:
    with pytest.raises(ClientError, match="nextBeginOffset"):
        await Broker(answered(0, nextBeginOffset="-1")).puller().pull(pull())


async def test_messages_are_filtered_by_the_text_of_their_tag() -> None:
    """`Aa` and `BB` have one hash, by which brokers filter."""
    records = b"".join(
        record(b"%d" % offset, queue_offset=offset, **({"TAGS": tag} if tag else {}))
        for offset, tag in enumerate(["Aa", "BB", "", "Aa"])
    )
    wanted = pull(subscription=Subscription.of("orders", "Aa"))
    result = await Broker(answered(0, records)).puller().pull(wanted)
    assert [message.body for message in result.messages] == [b"0", b"3"]
    assert result.next_offset == 20


async def test_messages_know_their_queue_and_its_ends() -> None:
    broker = Broker(answered(0, record(b"x", queue_offset=17), offsetDelta="100"))
    (message,) = (await broker.puller().pull(pull(subscription=Subscription.of("orders")))).messages
    assert (message.queue, message.queue_offset, message.broker_name) == (QUEUE, 117, "broker-a")
    assert (message.properties["MIN_OFFSET"], message.properties["MAX_OFFSET"]) == ("0", "90")


async def test_a_body_that_is_cut_is_an_error() -> None:
    with pytest.raises(RecordError):
        await Broker(answered(0, record(b"x")[:-1])).puller().pull(pull())


async def test_filter_hooks_see_group_and_queue_and_their_errors_change_nothing() -> None:
    class Half:
        def filter(
            self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
        ) -> list[ReceivedMessage]:
            assert (group, queue) == ("group", QUEUE)
            return messages[:1]

    class Broken:
        def filter(
            self, group: str, queue: MessageQueue, messages: list[ReceivedMessage]
        ) -> list[ReceivedMessage]:
            raise ValueError("broken")

    records = record(b"x", queue_offset=17) + record(b"x", queue_offset=18)
    wanted = pull(subscription=Subscription.of("orders"))
    result = await Broker(answered(0, records)).puller(Half(), Broken()).pull(wanted)
    assert [message.queue_offset for message in result.messages] == [17]
