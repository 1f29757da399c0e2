"""Transactional messages: a half message is stored first and becomes visible once its producer commits.

Order: store the half message, do the local work, send the broker the decision. Without a decision the broker
asks later: TransactionChecks calls the producer's checker and answers. The broker repeats checks that stay
unanswered, so excess ones are dropped; if the checker fails, the answer is UNKNOWN. Loop thread; plain
functions, and plain checkers, run in threads.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.message_queries import decode_offset_id
from firearrow.client.base.call_hooks import Call, CallKind, call_hooks
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import (
    ClientError,
    ConfigError,
    MessageRefused,
    NotRunning,
    RocketMQError,
    error_text,
)
from firearrow.client.base.hooks import (
    EndTransactionContext,
    EndTransactionHook,
    is_coroutine_function,
    run_hook,
)
from firearrow.client.base.message import Message, Property, SendResult, SendStatus, message_copy
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ProducerOptions
from firearrow.client.base.service_state import Uncopied
from firearrow.client.consume.listeners import HandlerThreads
from firearrow.client.remoting.client_instance import ClientInstance, FirstHeartbeat
from firearrow.client.remoting.service import caller_of

log = logging.getLogger("firearrow.client")


class TransactionState(Enum):
    """The decision about a half message. The values are those of the protocol, without KEEP."""

    KEEP = -1
    """Of a checker: not decided yet, and never to be given up. After UNKNOWN brokers do so at `transactionCheckMax`
    checks; before that, the half message is sent again, with the same id, and the old one is rolled back."""
    UNKNOWN = 0
    """Not decided yet: the broker will ask the checker."""
    COMMIT = 8
    ROLLBACK = 12


JAVA_NAMES = {
    TransactionState.UNKNOWN: "UNKNOW",
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
}

KEPT_CHECKS = 4
"""After this number of checks a half message that is kept is sent again. Brokers give up after 15 by default."""
FIRST_BORN_MS = "FIRST_BORN_MS"
"""Property of a half message that was sent again: the time of the first one."""
DELAYS = {Property.DELAY, Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS}

Local = Callable[[Message, Any], Any]
"""The local work: (message, argument) → a TransactionState or None (UNKNOWN); may be async."""


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The send and the decision.

    `error` was raised by the local work; then the broker will ask the checker.
    """

    sent: SendResult
    state: TransactionState
    error: BaseException | None = None


class HalfSender(Protocol):
    """What transactions need of a producer."""

    @property
    def group(self) -> str: ...
    @property
    def instance(self) -> ClientInstance: ...
    @property
    def options(self) -> ProducerOptions: ...
    @property
    def end_transaction_hooks(self) -> Sequence[EndTransactionHook]: ...
    async def send(self, message: Message, *, timeout_s: float | None = None) -> SendResult: ...


class Transactions:
    """The transactions of one producer that has a checker."""

    def __init__(self, sender: HalfSender) -> None:
        self._sender = sender
        self._first_heartbeat = FirstHeartbeat(sender.instance, sender.options)
        self._namespace = Namespace(sender.instance.options.namespace)

    def transaction(self, message: Message, timeout_s: float | None = None) -> "Transaction":
        return Transaction(self, message, timeout_s)

    async def run(
        self, message: Message, local: Local, argument: object = None, timeout_s: float | None = None
    ) -> TransactionResult:
        """Send the half message, do the work, send the decision. The result carries errors of the work.

        A half message that is stored less safely than requested is rolled back at once.
        """
        half, sent = await self.begin(message, timeout_s)
        state, error = TransactionState.ROLLBACK, None
        if sent.status is SendStatus.SEND_OK:
            try:
                state = _decision(state_of(await _run_local(local, half, argument)))
            except Exception as failure:
                log.info("the local work of transaction %s failed", sent.message_id, exc_info=failure)
                state, error = TransactionState.UNKNOWN, failure
        await self.end(half, sent, state, error)
        return TransactionResult(sent, state, error)

    async def begin(self, message: Message, timeout_s: float | None) -> tuple[Message, SendResult]:
        """Send the half message after brokers know this producer; the copy that was sent, and its result."""
        delayed = message.delay_level or message.delay_s is not None or message.deliver_at_ms is not None
        if delayed or not DELAYS.isdisjoint(message.properties):
            raise MessageRefused("a transactional message cannot be delayed")
        timeout_s = self._sender.options.send_timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        await self._first_heartbeat.ensure_known(self._namespace.wrap(message.topic), timeout_s)
        prepared = {Property.TRANSACTION_PREPARED: "true", Property.PRODUCER_GROUP: self._sender.group}
        half = replace(message, properties=message.properties | prepared)
        try:
            sent = await self._sender.send(half, timeout_s=max(deadline_s - loop.time(), 0.001))
        finally:
            message.unique_id = half.unique_id
        if sent.transaction_id:
            half.properties[Property.TRANSACTION_ID] = sent.transaction_id
        return half, sent

    async def end(
        self, half: Message, sent: SendResult, state: TransactionState, error: BaseException | None = None
    ) -> None:
        """Send the decision to the broker. A failure is only logged: the broker will ask."""
        queue = replace(sent.queue, topic=self._namespace.wrap(half.topic))
        try:
            instance = self._sender.instance
            _, physical_offset = decode_offset_id(sent.offset_message_id)
            address = await instance.master_of(queue)
            self._run_hooks(half, sent.message_id, sent.transaction_id or "", address, state)
            request = end_request(
                self._sender.group,
                queue.topic,
                instance.routes.broker_name_of(queue),
                (sent.queue_offset, physical_offset),
                (sent.message_id, sent.transaction_id or ""),
                state,
            )
            if error is not None:
                request.remark = (
                    f"executeLocalTransactionBranch exception: {type(error).__name__}: {error_text(error)}"
                )
            if call_hooks and state is not TransactionState.UNKNOWN:
                caller = caller_of(instance, self._namespace, self._sender.group)
                with Call(CallKind.SETTLE, state.name.lower(), caller, [half], queue=sent.queue):
                    await instance.channels.oneway(address, request)
            else:
                await instance.channels.oneway(address, request)
        except RocketMQError as failure:
            log.info(
                "transaction %s: the decision was not sent, the broker will ask: %s", sent.message_id, failure
            )

    def _run_hooks(
        self, half: Message, message_id: str, transaction_id: str, address: str, state: TransactionState
    ) -> None:
        for hook in self._sender.end_transaction_hooks:
            context = EndTransactionContext(
                self._sender.group, half, address, message_id, transaction_id, JAVA_NAMES[state], False
            )
            run_hook(hook.ended, context)


class Transaction(Uncopied):
    """`async with`: commits at the end of the block, rolls back on an exception (which propagates).

    Cancelling the block, and `leave_unknown`, leave the transaction open: the broker asks the checker.
    Entering raises the errors of a send, and BrokerError if the half message was stored less safely than
    requested (and so rolled back).
    """

    def __init__(self, transactions: Transactions, message: Message, timeout_s: float | None) -> None:
        self.message = message
        self.state: TransactionState | None = None
        """None until the block has ended."""
        self._transactions = transactions
        self._timeout_s = timeout_s
        self._decision = TransactionState.COMMIT
        self._half = message
        self._sent: SendResult | None = None

    @property
    def sent(self) -> SendResult:
        if self._sent is None:
            raise NotRunning("the transaction has not begun: enter it with `async with`")
        return self._sent

    @property
    def id(self) -> str:
        """The unique id of the message; the checker sees it as `message.transaction_id`."""
        return self.sent.message_id

    def leave_unknown(self) -> None:
        """Leave the transaction open: the broker will ask the checker."""
        self._decision = TransactionState.UNKNOWN

    def commit(self) -> None:
        """Commit at the end of the block, after a `leave_unknown` or `roll_back`."""
        self._decision = TransactionState.COMMIT

    def roll_back(self) -> None:
        """Roll back at the end of the block although no exception was raised."""
        self._decision = TransactionState.ROLLBACK

    async def __aenter__(self) -> Self:
        if self._sent is not None:
            raise ConfigError("a transaction can be entered only once")
        self._half, self._sent = await self._transactions.begin(self.message, self._timeout_s)
        if self._sent.status is not SendStatus.SEND_OK:
            await self._end(TransactionState.ROLLBACK, None)
            self._sent.raise_for_status()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        decision = self._decision
        if error is not None and decision is TransactionState.COMMIT:
            failed = isinstance(error, Exception)
            decision = TransactionState.ROLLBACK if failed else TransactionState.UNKNOWN
        await self._end(decision, error)

    async def _end(self, state: TransactionState, error: BaseException | None) -> None:
        self.state = state
        await self._transactions.end(self._half, self.sent, state, error)


def state_of(answer: object) -> TransactionState:
    """TypeError: neither a TransactionState nor None."""
    if answer is None:
        return TransactionState.UNKNOWN
    if not isinstance(answer, TransactionState):
        raise TypeError(f"{answer!r} is neither a TransactionState nor None")
    return answer


def _decision(state: TransactionState) -> TransactionState:
    """Of local work: KEEP is what a checker may answer."""
    return TransactionState.UNKNOWN if state is TransactionState.KEEP else state


def first_born_ms(message: ReceivedMessage) -> int:
    """When the transaction began (ms since 1970), by the clock of its producer."""
    first = message.get_property(FIRST_BORN_MS) or ""
    is_time = first.isascii() and first.isdecimal() and len(first) < 16
    return min(int(first), message.born_timestamp) if is_time else message.born_timestamp


def end_request(
    group: str,
    topic: str,
    broker_name: str,
    offsets: tuple[int, int],
    ids: tuple[str, str],
    state: TransactionState,
    from_check: bool = False,
) -> RemotingCommand:
    """END_TRANSACTION.

    `offsets`: in the queue of half messages, in the commit log. `ids`: message, transaction.
    """
    ext = {
        "topic": topic,
        "producerGroup": group,
        "tranStateTableOffset": str(offsets[0]),
        "commitLogOffset": str(offsets[1]),
        "commitOrRollback": str(state.value),
        "fromTransactionCheck": str(from_check).lower(),
        "msgId": ids[0],
        "transactionId": ids[1],
        "bname": broker_name,
    }
    return RemotingCommand.request(RequestCode.END_TRANSACTION, ext, oneway=True)


async def _run_local(local: Local, message: Message, argument: object) -> object:
    if is_coroutine_function(local):
        return await local(message, argument)
    answer = await asyncio.to_thread(local, message, argument)
    return await answer if inspect.isawaitable(answer) else answer


Checker = Callable[[ReceivedMessage], Any]
"""The outcome of a half message's local work: a TransactionState or None (UNKNOWN); may be async."""


@runtime_checkable
class CheckedProducer(Protocol):
    """A producer that may have a checker."""

    @property
    def transaction_checks(self) -> "TransactionChecks | None": ...


class TransactionChecks:
    """The checks of one producer: at most `check_threads` run and `checks_max` are open; more are dropped."""

    def __init__(self, sender: HalfSender, checker: Checker) -> None:
        instance = sender.instance
        self._sender = sender
        self._checker = checker
        self._namespace = Namespace(instance.options.namespace)
        self._threads = HandlerThreads(f"CheckThread_{sender.group}", sender.options.check_threads)
        self._running_checks = asyncio.Semaphore(sender.options.check_threads)
        self._open_checks = 0
        instance.register_handler(
            RequestCode.CHECK_TRANSACTION_STATE,
            lambda request, address: check_transaction_state(instance, request, address),
        )

    def close(self) -> None:
        self._threads.close()

    async def answer(self, request: RemotingCommand, message: ReceivedMessage, address: str) -> None:
        """Call the checker and answer the broker. FieldError: the request contains no offsets."""
        offsets = request.integer("tranStateTableOffset"), request.integer("commitLogOffset")
        if self._open_checks >= self._sender.options.checks_max:
            log.info(
                "the check of %s is dropped: %d checks are open already",
                message.message_id,
                self._open_checks,
            )
            return
        self._open_checks += 1
        try:
            async with self._running_checks:
                state, failure = await self._check(message)
                if state is TransactionState.KEEP:
                    state = await self._kept(message)
        finally:
            self._open_checks -= 1
        self._run_hooks(message, address, request.text_or("transactionId", ""), state)
        ids = message.message_id, request.text_or("transactionId", "")
        decision = end_request(
            self._sender.group,
            request.text_or("topic", ""),
            message.broker_name,
            offsets,
            ids,
            state,
            from_check=True,
        )
        if failure is not None:
            decision.remark = (
                f"checkLocalTransactionState Exception: {type(failure).__name__}: {error_text(failure)}"
            )
        await self._sender.instance.channels.oneway(address, decision)

    async def _check(self, message: ReceivedMessage) -> tuple[TransactionState, Exception | None]:
        message.topic = self._namespace.unwrap(message.topic)
        if not call_hooks:
            return await self._call_checker(message)
        caller = caller_of(self._sender.instance, self._namespace, self._sender.group)
        with Call(CallKind.PROCESS, "check", caller, [message]) as call:
            state, failure = await self._call_checker(message)
            call.error = failure
        return state, failure

    async def _call_checker(self, message: ReceivedMessage) -> tuple[TransactionState, Exception | None]:
        try:
            if is_coroutine_function(self._checker):
                return state_of(await self._checker(message)), None
            answer = await self._threads.run(lambda messages: self._checker(messages[0]), [message])
            return state_of(await answer if inspect.isawaitable(answer) else answer), None
        except Exception as error:
            log.exception(
                "the checker of group %s failed for message %s", self._sender.group, message.message_id
            )
            return TransactionState.UNKNOWN, error

    async def _kept(self, message: ReceivedMessage) -> TransactionState:
        """ROLLBACK: another half message, whose checks are counted from the beginning, takes the place of this one."""
        checks = message.get_property(Property.TRANSACTION_CHECKS) or ""
        if not (checks.isascii() and checks.isdecimal() and int(checks[:9]) >= KEPT_CHECKS):
            return TransactionState.UNKNOWN
        half = message_copy(message, message.topic)
        half.properties |= {
            FIRST_BORN_MS: str(first_born_ms(message)),
            Property.TRANSACTION_PREPARED: "true",
            Property.PRODUCER_GROUP: self._sender.group,
        }
        try:
            (await self._sender.send(half)).raise_for_status()
        except RocketMQError as error:  # or closed meanwhile
            log.info("transaction %s was not sent again: %s", message.transaction_id, error)
            return TransactionState.UNKNOWN
        return TransactionState.ROLLBACK

    def _run_hooks(
        self, message: ReceivedMessage, address: str, transaction_id: str, state: TransactionState
    ) -> None:
        for hook in self._sender.end_transaction_hooks:
            context = EndTransactionContext(
                self._sender.group,
                message,
                address,
                message.message_id,
                transaction_id,
                JAVA_NAMES[state],
                True,
            )
            run_hook(hook.ended, context)


async def check_transaction_state(instance: ClientInstance, request: RemotingCommand, address: str) -> None:
    """Handle CHECK_TRANSACTION_STATE: the message in the body names the producer.

    RecordError, ClientError.
    """
    broker_name = request.text_or("bname", "")
    messages = decode_messages(request.body, broker_name, open_body)
    if len(messages) != 1:
        raise ClientError(f"{address}: the check contains {len(messages)} messages instead of one")
    group = messages[0].get_property(Property.PRODUCER_GROUP)
    producer = instance.producers.get(group) if group is not None else None
    if not isinstance(producer, CheckedProducer) or producer.transaction_checks is None:
        log.warning(
            "%s checks a transaction of group %s, which has no producer with a checker here", address, group
        )
        return
    await producer.transaction_checks.answer(request, messages[0], address)
