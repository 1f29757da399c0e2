"""MessageLoops: the messages of a push consumer for `async for`, one at a time for each loop.

The handler of the subscribed topics is `handle`: a message is in it until the body of the loop has ended, so that
retries, order, offsets and tracing are those of any handler. Event loop only.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from firearrow._native.store.log.received_message import ReceivedMessage


class _Delivery:
    """A message that a loop has, or will get. `done`: whether the body of the loop has ended well."""

    __slots__ = ("done", "message", "task")

    def __init__(self, message: ReceivedMessage) -> None:
        self.message = message
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[object] | None = None

    def settle(self, done: bool) -> None:
        if not self.done.done():
            self.done.set_result(done)


class MessageLoops:
    """No handler is called before a loop asks for a message: what waits does not count as being handled."""

    def __init__(self) -> None:
        self._asking: deque[asyncio.Future[_Delivery | None]] = deque()
        """Loops that wait for a message."""
        self._asked = asyncio.Event()
        self._gate = asyncio.Lock()
        """Held by the handler call that gets the next turn: the others wait in order."""
        self._early: deque[_Delivery] = deque()
        """Messages that no loop waits for: its task was cancelled, or an operator sent them."""
        self._begun: set[_Delivery] = set()
        self._ended = False

    def begin(self) -> None:
        """The consumer starts."""
        self._ended = False

    def end(self) -> None:
        """Loops end when they ask for the next message; no handler is called any more."""
        self._ended = True
        self._asked.set()
        while self._asking:
            waiting = self._asking.popleft()
            if not waiting.done():
                waiting.set_result(None)
        while self._early:
            self._early.popleft().settle(False)

    def leave(self, task: asyncio.Task[object] | None) -> None:
        """This task closes the consumer in the body of its own loop, which does not end before."""
        for delivery in self._begun:
            if delivery.task is task:
                delivery.settle(False)

    async def turn(self) -> bool:
        """Wait until a loop asks for a message. False: the loops have ended."""
        async with self._gate:
            while not self._asking and not self._ended:
                self._asked.clear()
                await self._asked.wait()
        return not self._ended

    async def handle(self, messages: list[ReceivedMessage]) -> bool:
        """Pass on the message, and wait until the body of the loop has ended. False: it is to be redelivered."""
        [message] = messages
        delivery = _Delivery(message)
        self._pass_on(delivery)
        return await delivery.done

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """A message is done when the next one is requested; a loop that is left otherwise has not handled its last."""
        while (delivery := await self._next()) is not None:
            delivery.task = asyncio.current_task()
            self._begun.add(delivery)
            done = False
            try:
                yield delivery.message
                done = True
            finally:
                self._begun.discard(delivery)
                delivery.settle(done)

    async def _next(self) -> _Delivery | None:
        """None: the loops have ended."""
        while self._early:
            early = self._early.popleft()
            if not early.done.done():
                return early
        if self._ended:
            return None
        waiting: asyncio.Future[_Delivery | None] = asyncio.get_running_loop().create_future()
        self._asking.append(waiting)
        self._asked.set()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in self._asking:
                self._asking.remove(waiting)
            elif not waiting.cancelled() and (given := waiting.result()) is not None:
                self._pass_on(given)
            raise

    def _pass_on(self, delivery: _Delivery) -> None:
        while self._asking:
            waiting = self._asking.popleft()
            if not waiting.done():
                waiting.set_result(delivery)
                break
        else:
            self._early.append(delivery)
