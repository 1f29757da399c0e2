"""TransactionChecks: a broker asks what became of a half message, and the checker of its producer answers.

A question that is not answered is asked again: one too many is dropped, one at which the checker fails stays unknown.
Loop thread; a plain checker runs in threads of its own.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import ClientError
from firearrow.client.base.hooks import EndTransactionContext, run_hook
from firearrow.client.base.message import Property
from firearrow.client.base.names import Namespace
from firearrow.client.consume.listeners import HandlerThreads, is_coroutine_function
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.sending.transactions import (
    JAVA_NAMES,
    HalfSender,
    TransactionState,
    end_request,
    state_of,
)

log = logging.getLogger("firearrow.client")

Checker = Callable[[ReceivedMessage], Any]
"""What became of the work that this message tells of? A TransactionState, or None (UNKNOWN); may be async."""


@runtime_checkable
class CheckedProducer(Protocol):
    """A producer that can be asked."""

    @property
    def transaction_checks(self) -> "TransactionChecks | None": ...


class TransactionChecks:
    """Of one producer. At most `check_threads` checks at a time, and `checks_max` that wait."""

    def __init__(self, sender: HalfSender, checker: Checker) -> None:
        instance = sender.instance
        self._sender = sender
        self._checker = checker
        self._namespace = Namespace(instance.options.namespace)
        self._threads = HandlerThreads(f"CheckThread_{sender.group}", sender.options.check_threads)
        self._turns = asyncio.Semaphore(sender.options.check_threads)
        self._waiting = 0
        instance.register_handler(
            RequestCode.CHECK_TRANSACTION_STATE,
            lambda request, address: check_transaction_state(instance, request, address),
        )

    def close(self) -> None:
        self._threads.close()

    async def answer(self, question: RemotingCommand, message: ReceivedMessage, address: str) -> None:
        """Ask the checker and tell the broker that asked. FieldError: the question names no place."""
        place = question.integer("tranStateTableOffset"), question.integer("commitLogOffset")
        if self._waiting >= self._sender.options.checks_max:
            log.warning("check of %s dropped: %d wait already", message.message_id, self._waiting)
            return
        self._waiting += 1
        try:
            async with self._turns:
                state, failure = await self._ask(message)
        finally:
            self._waiting -= 1
        self._tell_hooks(message, address, question.text_or("transactionId", ""), state)
        ids = message.message_id, question.text_or("transactionId", "")
        request = end_request(
            self._sender.group, question.text_or("topic", ""), message.broker_name, place, ids, state, from_check=True
        )  # fmt: skip
        if failure is not None:
            request.remark = f"checkLocalTransactionState Exception: {type(failure).__name__}: {failure}"
        await self._sender.instance.channels.oneway(address, request)

    async def _ask(self, message: ReceivedMessage) -> tuple[TransactionState, Exception | None]:
        message.topic = self._namespace.unwrap(message.topic)
        try:
            if is_coroutine_function(self._checker):
                return state_of(await self._checker(message)), None
            answer = await self._threads.run(lambda messages: self._checker(messages[0]), [message])
            return state_of(await answer if inspect.isawaitable(answer) else answer), None
        except Exception as error:
            log.exception("the checker of %s failed at %s", self._sender.group, message.message_id)
            return TransactionState.UNKNOWN, error

    def _tell_hooks(
        self, message: ReceivedMessage, address: str, transaction_id: str, state: TransactionState
    ) -> None:
        for hook in self._sender.end_transaction_hooks:
            context = EndTransactionContext(
                self._sender.group, message, address, message.message_id, transaction_id, JAVA_NAMES[state], True
            )  # fmt: skip
            run_hook(hook.ended, context)


async def check_transaction_state(instance: ClientInstance, request: RemotingCommand, address: str) -> None:
    """CHECK_TRANSACTION_STATE: the producer is named by the message in the body. RecordError, ClientError."""
    broker_name = request.text_or("bname", "")
    messages = decode_messages(request.body, broker_name, open_body)
    if len(messages) != 1:
        raise ClientError(f"{address}: a check of {len(messages)} messages instead of one")
    group = messages[0].get_property(Property.PRODUCER_GROUP)
    producer = instance.producers.get(group) if group is not None else None
    if not isinstance(producer, CheckedProducer) or producer.transaction_checks is None:
        log.warning("%s asks about transactions of %s: no such producer with a checker", address, group)
        return
    await producer.transaction_checks.answer(request, messages[0], address)
