"""CallHook: sees the calls of all producers and consumers of this process, also of those that run already.

For instrumentation. A call is what the program makes (`send`, `poll`, `ack`) or gets (a handler with its messages);
SendHook and ConsumeHook see the attempts of one producer and the handlers of one consumer. While no hook is added, a
call costs one comparison. An error in a hook is logged and changes nothing. Any thread may add and remove hooks.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

from firearrow.client.base.hooks import run_hook
from firearrow.client.base.message import Message, MessageQueue, SendResult

log = logging.getLogger("firearrow.client")


class CallKind(Enum):
    SEND = "send"
    """A producer sends: `send`, `submit`, `send_oneway`, `send_batch`; also half messages, requests and replies."""
    RECEIVE = "receive"
    """The program asked for messages: `poll`, `receive`; or for the reply to a `request`."""
    PROCESS = "process"
    """A handler is called with messages (`process`), or a checker with one (`check`)."""
    SETTLE = "settle"
    """A broker gets a decision: `ack`, `change_invisible`, `commit`, `rollback`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The producer or consumer of a call. `group` is without the namespace; `model` is of push and pull consumers.

    `address_of(broker_name)`: `host:port` of the master, if it is known.
    """

    group: str
    namespace: str
    client_id: str
    address_of: Callable[[str], str | None]
    model: str | None = None


@dataclass(slots=True)
class Call:
    """One call. `before` of a send may replace messages, each by one that is then sent; `after` finds the rest set.

    `extra` is for the hooks' own data.
    """

    kind: CallKind
    name: str
    caller: Caller
    messages: list[Any] = field(default_factory=list)
    """Message of a send, else ReceivedMessage; of `commit` and `rollback` the half message."""
    is_batch: bool = False
    queue: MessageQueue | None = None
    result: SendResult | None = None
    error: BaseException | None = None
    failure: str = ""
    """What a handler returned that did not succeed, by Java's name."""
    began_ns: int = 0
    """ns since 1970."""
    extra: dict[str, Any] = field(default_factory=dict)
    _given: Sequence[Any] = ()
    _hooks: tuple["CallHook", ...] = ()

    def begin(self) -> Self:
        self._hooks, self._given = tuple(call_hooks), tuple(self.messages)
        self.began_ns = time.time_ns()
        for hook in self._hooks:
            run_hook(hook.before, self)
        if self.kind is CallKind.SEND and not self._can_be_sent():
            log.error("a hook may replace the messages of a send by others, as many: the given ones are sent")
            self.messages = list(self._given)
        return self

    def _can_be_sent(self) -> bool:
        return (
            isinstance(self.messages, list)
            and len(self.messages) == len(self._given)
            and all(isinstance(message, Message) for message in self.messages)
        )

    def end(self, error: BaseException | None = None) -> None:
        if error is not None:
            self.error = error
        self.pass_ids()
        for hook in reversed(self._hooks):
            run_hook(hook.after, self)

    def pass_ids(self) -> None:
        """A message that was sent has an id, also if a copy was sent in its place."""
        if self.kind is CallKind.SEND:
            for given, sent in zip(self._given, self.messages, strict=False):
                given.unique_id = sent.unique_id

    def sent(self, future: asyncio.Future[SendResult]) -> None:
        """End the call with its future."""
        self.pass_ids()
        future.add_done_callback(self._answered)

    def _answered(self, future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            self.end(asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self.end(error)
        else:
            self.result = future.result()
            self.end()

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)


class CallHook(Protocol):
    """`before` and `after` run in the task of the call; `after` of a `submit` runs when its future is done."""

    def before(self, call: Call, /) -> None: ...
    def after(self, call: Call, /) -> None: ...


call_hooks: list[CallHook] = []
"""Those that are added now."""


def add_call_hook(hook: CallHook) -> None:
    """For all calls that begin from now on."""
    call_hooks.append(hook)


def remove_call_hook(hook: CallHook) -> None:
    """Calls that run now still get their `after`. ValueError: it was not added."""
    call_hooks.remove(hook)
