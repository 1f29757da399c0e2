"""Hooks that users can install: their Protocols and the contexts they get. Imports none of the callers.

An error in a hook is logged and changes nothing; an error of RpcHook or ForbiddenCheck is raised to the
caller.
"""

import functools
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.message import Message, MessageQueue, SendResult

if TYPE_CHECKING:
    from firearrow._native.store.log.received_message import ReceivedMessage

log = logging.getLogger("firearrow.client")
Context = TypeVar("Context")


@dataclass(slots=True)
class SendContext:
    """One message or batch being sent.

    `after` finds `result` or `error` set; `extra` is for the hooks' own data.
    """

    group: str
    message: Message
    messages: Sequence[Message]
    queue: MessageQueue | None
    broker_address: str
    mode: str
    """`sync`, `async` or `oneway`."""
    kind: str = "normal"
    """`normal`, `half`, `delay` or `order`, as Java's MessageType."""
    body_bytes: int = 0
    result: SendResult | None = None
    error: BaseException | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumeContext:
    """One call of a handler. `after` finds `status` and `success` set."""

    group: str
    queue: MessageQueue
    messages: Sequence["ReceivedMessage"]
    success: bool = False
    status: str = ""
    return_type: str = ""
    """SUCCESS, TIME_OUT, EXCEPTION, RETURNNULL or FAILED."""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class EndTransactionContext:
    """A transaction that a producer ends."""

    group: str
    message: "Message | ReceivedMessage"
    broker_address: str
    message_id: str
    transaction_id: str
    state: str
    from_check: bool


class SendHook(Protocol):
    def before(self, context: SendContext, /) -> None: ...
    def after(self, context: SendContext, /) -> None: ...


class ConsumeHook(Protocol):
    def before(self, context: ConsumeContext, /) -> None: ...
    def after(self, context: ConsumeContext, /) -> None: ...


class FilterHook(Protocol):
    """Returns the pulled messages to deliver."""

    def filter(
        self, group: str, queue: MessageQueue, messages: list["ReceivedMessage"], /
    ) -> list["ReceivedMessage"]: ...


class EndTransactionHook(Protocol):
    def ended(self, context: EndTransactionContext, /) -> None: ...


class ForbiddenCheck(Protocol):
    """Raises to forbid a message."""

    def check(self, context: SendContext, /) -> None: ...


class RpcHook(Protocol):
    """Sees every request before it is signed and encoded, and its answer."""

    def before(self, address: str, request: RemotingCommand, /) -> None: ...
    def after(self, address: str, request: RemotingCommand, answer: RemotingCommand, /) -> None: ...


class ProducerHooks(TypedDict, total=False):
    """Keyword arguments of Producer. `forbidden` checks run before each message is sent."""

    send_hooks: Sequence[SendHook]
    forbidden: Sequence[ForbiddenCheck]
    end_transaction_hooks: Sequence[EndTransactionHook]
    rpc_hooks: Sequence[RpcHook]


class ConsumerHooks(TypedDict, total=False):
    """Keyword arguments of PushConsumer and PullConsumer."""

    consume_hooks: Sequence[ConsumeHook]
    filter_hooks: Sequence[FilterHook]
    rpc_hooks: Sequence[RpcHook]


def check_known(arguments: Mapping[str, object], known: type) -> None:
    """TypeError, like Python's own, for a keyword argument that the TypedDict `known` does not have."""
    unknown = arguments.keys() - known.__annotations__.keys()
    if unknown:
        raise TypeError(f"unexpected keyword argument {', '.join(map(repr, sorted(unknown)))}")


def run_hook(hook: Callable[[Context], None], context: Context) -> None:
    """Call a hook and log what it raises."""
    try:
        hook(context)
    except Exception:
        log.exception("a hook failed: %r", hook)


def is_coroutine_function(handler: Callable[..., Any]) -> bool:
    """True also for partials, bound methods and objects with an async `__call__`."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
