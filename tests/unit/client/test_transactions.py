"""Transactions: how the block or the local work decides about a half message. No broker."""

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import (
    BrokerError,
    ConfigError,
    ConnectionLost,
    MessageRefused,
    NotRunning,
)
from firearrow.client.base.hooks import EndTransactionContext
from firearrow.client.base.message import Message, MessageQueue, SendResult, SendStatus
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.send.transactions import (
    Transaction,
    Transactions,
    TransactionState,
    end_request,
    state_of,
)
from tests.support.eventually import eventually_async

UNKNOWN, COMMIT, ROLLBACK = TransactionState.UNKNOWN, TransactionState.COMMIT, TransactionState.ROLLBACK


@dataclass
class Routes:
    async def publish_info(self, topic: str, template: str, queues: int) -> "Routes":
        return self

    queues: tuple[MessageQueue, ...] = (MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))

    def broker_name_of(self, queue: MessageQueue) -> str:
        return queue.broker_name

    def master(self, broker_name: str) -> str:
        return "h:1"


@dataclass
class Heartbeats:
    beats: list[str] = field(default_factory=list)

    async def beat_to(self, addresses: Iterable[str]) -> set[str]:
        answered = set(addresses)
        self.beats += answered
        return answered


@dataclass
class Channels:
    sent: list[RemotingCommand] = field(default_factory=list)
    failure: Exception | None = None

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(command)


@dataclass
class Instance:
    options: ClientOptions = field(default_factory=lambda: ClientOptions(name_server="h:1"))
    routes: Routes = field(default_factory=Routes)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)
    channels: Channels = field(default_factory=Channels)

    async def master_of(self, queue: MessageQueue) -> str:
        return "h:1"


SENT = SendResult(
    SendStatus.SEND_OK, "UNIQUE", "7F00000100002A9F00000000000004D2", MessageQueue("t", "b", 3), 7, "TX"
)


@dataclass
class Sender:
    """A fake of the producer."""

    group: str = "PG"
    instance: Instance = field(default_factory=Instance)
    options: ProducerOptions = field(default_factory=ProducerOptions)
    end_transaction_hooks: list[object] = field(default_factory=list)
    result: SendResult = SENT
    messages: list[Message] = field(default_factory=list)

    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendResult:
        message.unique_id = "UNIQUE"
        self.messages.append(replace(message, properties=dict(message.properties)))
        return self.result

    def decisions(self) -> list[str]:
        return [command.ext["commitOrRollback"] for command in self.instance.channels.sent]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def transactions(sender: Sender) -> Transactions:
    return Transactions(sender)  # type: ignore[arg-type]


def begun(transactions: Transactions, message: Message | None = None) -> Transaction:
    return Transaction(transactions, message or Message("t", b"x"), None)


async def test_the_end_of_the_block_commits(sender: Sender, transactions: Transactions) -> None:
    message = Message("t", b"x", properties={"mine": "1"})
    async with begun(transactions, message) as transaction:
        assert transaction.id == "UNIQUE"
        assert sender.decisions() == []
    assert transaction.state is COMMIT
    assert message.properties == {"mine": "1"}, "the user's message is left alone"
    assert message.unique_id == "UNIQUE"
    assert sender.messages[0].properties == {"mine": "1", "TRAN_MSG": "true", "PGROUP": "PG"}
    (command,) = sender.instance.channels.sent
    assert command.code == RequestCode.END_TRANSACTION
    assert command.is_oneway
    assert command.ext == {
        "topic": "t",
        "producerGroup": "PG",
        "tranStateTableOffset": "7",
        "commitLogOffset": "1234",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "UNIQUE",
        "transactionId": "TX",
        "bname": "b",
    }


async def test_an_exception_rolls_back_and_goes_on(sender: Sender, transactions: Transactions) -> None:
    with pytest.raises(ZeroDivisionError):
        async with begun(transactions):
            raise ZeroDivisionError("no")
    assert sender.decisions() == ["12"]
    assert sender.instance.channels.sent[0].remark == (
        "executeLocalTransactionBranch exception: ZeroDivisionError: no"
    )


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def test_an_exception_without_a_text_rolls_back(sender: Sender, transactions: Transactions) -> None:
    with pytest.raises(Unprintable):
        async with begun(transactions):
            raise Unprintable
    [sent] = sender.instance.channels.sent
    assert "Unprintable" in (sent.remark or "")


async def test_a_block_that_is_cancelled_leaves_it_open(sender: Sender, transactions: Transactions) -> None:
    async def block() -> None:
        async with begun(transactions):
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await eventually_async(lambda: sender.messages)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sender.decisions() == ["0"]


async def test_the_block_decides(sender: Sender, transactions: Transactions) -> None:
    async with begun(transactions) as transaction:
        transaction.leave_unknown()
    async with begun(transactions) as transaction:
        transaction.roll_back()
    with contextlib.suppress(ZeroDivisionError):
        async with begun(transactions) as transaction:
            transaction.leave_unknown()
            raise ZeroDivisionError
    assert sender.decisions() == ["0", "12", "0"]


async def test_a_half_that_is_stored_less_safely_is_rolled_back_and_the_block_never_runs(
    sender: Sender, transactions: Transactions
) -> None:
    sender.result = SendResult(
        SendStatus.FLUSH_DISK_TIMEOUT, SENT.message_id, SENT.offset_message_id, SENT.queue, SENT.queue_offset
    )
    with pytest.raises(BrokerError) as refused:
        async with begun(transactions):
            raise AssertionError("the block must not run")
    assert refused.value.code == 10
    assert sender.decisions() == ["12"]
    worked: list[object] = []
    result = await transactions.run(Message("t", b"x"), lambda message, argument: worked.append(argument))
    assert (result.state, worked) == (ROLLBACK, [])


@pytest.mark.parametrize(
    ("answer", "state"), [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (UNKNOWN, UNKNOWN), (None, UNKNOWN)]
)
async def test_the_answer_of_the_local_work_is_sent(
    sender: Sender, transactions: Transactions, answer: TransactionState | None, state: TransactionState
) -> None:
    def work(message: Message, argument: object) -> TransactionState | None:
        assert threading.current_thread() is not threading.main_thread()
        assert (message.unique_id, message.properties["__transactionId__"], argument) == ("UNIQUE", "TX", 42)
        return answer

    async def work_async(message: Message, argument: object) -> TransactionState | None:
        assert threading.current_thread() is threading.main_thread()
        return answer

    assert (await transactions.run(Message("t", b"x"), work, 42)).state is state
    assert (await transactions.run(Message("t", b"x"), work_async)).state is state
    assert sender.decisions() == [str(state.value)] * 2


async def test_local_work_that_fails_leaves_it_open_and_sends_the_error(
    sender: Sender, transactions: Transactions
) -> None:
    async def fails(message: Message, argument: object) -> None:
        raise ZeroDivisionError

    result = await transactions.run(Message("t", b"x"), fails)
    assert result.state is UNKNOWN
    assert isinstance(result.error, ZeroDivisionError)
    wrong = await transactions.run(Message("t", b"x"), lambda message, argument: "COMMIT")
    assert isinstance(wrong.error, TypeError)
    assert sender.decisions() == ["0", "0"]


async def test_an_end_that_cannot_be_sent_is_no_error(sender: Sender, transactions: Transactions) -> None:
    sender.instance.channels.failure = ConnectionLost("gone")
    async with begun(transactions) as transaction:
        pass
    assert transaction.state is COMMIT, "the broker will ask"


async def test_delays_are_refused_before_anything_leaves(sender: Sender, transactions: Transactions) -> None:
    for message in (
        Message("t", b"x", delay_level=1),
        Message("t", b"x", delay_s=1.0),
        Message("t", b"x", deliver_at_ms=1),
        Message("t", b"x", properties={"TIMER_DELAY_SEC": "1"}),
    ):
        with pytest.raises(MessageRefused):
            await transactions.begin(message, None)
    assert not sender.messages


async def test_a_broker_gets_a_heartbeat_before_the_first_half_message_only(
    sender: Sender, transactions: Transactions
) -> None:
    for _ in range(3):
        await transactions.begin(Message("t", b"x"), None)
    assert sender.instance.heartbeats.beats == ["h:1"]


async def test_hooks_hear_how_it_ended(sender: Sender, transactions: Transactions) -> None:
    contexts: list[EndTransactionContext] = []

    class Hook:
        def ended(self, context: EndTransactionContext, /) -> None:
            contexts.append(context)
            raise ZeroDivisionError("logged, and nothing else")

    sender.end_transaction_hooks.append(Hook())
    async with begun(transactions):
        pass
    (context,) = contexts
    assert (context.group, context.message_id, context.transaction_id) == ("PG", "UNIQUE", "TX")
    assert (context.state, context.from_check, context.broker_address) == ("COMMIT_MESSAGE", False, "h:1")
    assert sender.decisions() == ["8"]


async def test_a_transaction_is_entered_once(transactions: Transactions) -> None:
    transaction = begun(transactions)
    with pytest.raises(NotRunning, match="not begun"):
        _ = transaction.id
    async with transaction:
        pass
    with pytest.raises(ConfigError):
        await transaction.__aenter__()


def test_invalid_answers() -> None:
    for answer in (True, False, "COMMIT", 8):
        with pytest.raises(TypeError):
            state_of(answer)


def test_the_end_after_a_check_says_so() -> None:
    request = end_request("PG", "t", "b", (1, 2), ("ID", "TX"), UNKNOWN, from_check=True)
    assert (request.ext["fromTransactionCheck"], request.ext["commitOrRollback"]) == ("true", "0")
