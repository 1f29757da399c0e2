"""ListenerInvoker: the frame around each call of a handler: topics restored, hooks, the clock, statistics, the verdict.

Never touches offsets, and never sends back. Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.hooks import ConsumeContext, ConsumeHook, run_hook
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import Namespace, retry_topic
from firearrow.client.consume.consume_results import (
    AGAIN,
    SUSPENDED,
    ConsumeResult,
    ConsumeStats,
    Later,
    Verdict,
)
from firearrow.client.consume.listeners import HandlerThreads, Listeners

log = logging.getLogger("firearrow.client")


class ListenerInvoker:
    """`judge(answer)` says what an answer comes to; `timeout_s` only names a call TIME_OUT to the hooks."""

    def __init__(
        self,
        *,
        group: str,
        listeners: Listeners,
        judge: Callable[[object], Verdict],
        stats: ConsumeStats,
        hooks: Sequence[ConsumeHook] = (),
        namespace: Namespace | None = None,
        timeout_s: float = 15 * 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = group
        self.judge = judge
        self.stats = stats
        self._listeners = listeners
        self._hooks = hooks
        self._namespace = namespace or Namespace(None)
        self._retry_topic = retry_topic(group)
        self._timeout_s = timeout_s
        self.clock = clock

    def restore_topics(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None:
        """What came back by the group's retry topic shows the topic it was sent to; namespaces are hidden."""
        if queue.topic == self._retry_topic:
            for message in messages:
                original = message.get_property(Property.RETRY_TOPIC)
                if original is not None and message.topic == self._retry_topic:
                    message.topic = original
        if self._namespace.name:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)

    def same_topic(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> int:
        """How many from the front (at least one) have one topic, and so one handler. Topics are restored already."""
        if queue.topic != self._retry_topic:
            return len(messages)
        topic = messages[0].topic
        return next((at for at, message in enumerate(messages) if message.topic != topic), len(messages))

    async def call(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Verdict:
        """Call the handler of the messages' topic, which all have in common."""
        context = self._begun(messages, queue) if self._hooks else None
        began = self.clock()
        verdict = await self.ask(messages)
        elapsed = self.clock() - began
        if verdict.error is not None:
            log.warning("a handler of %s failed; %s", self.group, queue, exc_info=verdict.error)
        if context is not None:
            self._ended(context, verdict, elapsed)
        self.stats.consumed(queue.topic, elapsed)
        return verdict

    async def ask(self, messages: list[ReceivedMessage]) -> Verdict:
        """The handler's verdict alone. A handler that fails, whatever it raises, wants the messages once more."""
        listener = self._listeners.of(messages[0].topic)
        try:
            if listener is None:
                raise LookupError(f"no handler subscribes to {messages[0].topic}")
            return self.judge(await listener(messages.copy()))
        except GeneratorExit:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._failure(error)
        except BaseException as error:
            return self._failure(error)

    def _failure(self, error: BaseException) -> Verdict:
        again = self.judge(False)
        return Verdict(again.result, again.accepted, error=error)

    def _begun(self, messages: list[ReceivedMessage], queue: MessageQueue) -> ConsumeContext:
        context = ConsumeContext(self.group, queue, messages)
        for hook in self._hooks:
            run_hook(hook.before, context)
        return context

    def _ended(self, context: ConsumeContext, verdict: Verdict, elapsed: float) -> None:
        context.return_type = self._return_type(verdict, elapsed)
        context.status = verdict.result.value
        context.success = verdict.result in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
        for hook in self._hooks:
            run_hook(hook.after, context)

    def _return_type(self, verdict: Verdict, elapsed: float) -> str:
        if verdict.error is not None:
            return "EXCEPTION"
        if elapsed >= self._timeout_s:
            return "TIME_OUT"
        return "FAILED" if verdict.result in (AGAIN.result, SUSPENDED.result) else "SUCCESS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """How a service calls handlers: in which threads, how many at a time, with how many messages each.

    `later`: the event loop's `call_later` if None.
    """

    calls: ListenerInvoker
    threads: HandlerThreads
    at_a_time: int
    batch_size: int
    later: Later | None = None
