"""ListenerInvoker: calls a handler with hooks, clock and statistics, and judges the result.

Offsets and sending back are the caller's business. Event loop only.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from firearrow._native.protocol.name_rules import retry_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.call_hooks import Call, Caller, CallKind, call_hooks
from firearrow.client.base.hooks import ConsumeContext, ConsumeHook, run_hook
from firearrow.client.base.message import MessageQueue, Property
from firearrow.client.base.names import Namespace
from firearrow.client.consume.consume_results import (
    FAILED,
    SUSPENDED,
    ConsumeResult,
    ConsumeStats,
    Later,
    Verdict,
)
from firearrow.client.consume.listeners import HandlerThreads, Listeners

log = logging.getLogger("firearrow.client")

SHOWN_MAX = 3
"""Messages that are described when a handler fails."""


class ListenerInvoker:
    """`judge(answer)` returns the verdict; after `timeout_s` hooks get TIME_OUT, with no other effect."""

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
        self.failed: Callable[[BaseException], None] = lambda error: None
        """Called with what a handler raised."""
        self._listeners = listeners
        self._hooks = hooks
        self._namespace = namespace or Namespace(None)
        self._retry_topic = retry_topic(group)
        self._timeout_s = timeout_s
        self.caller: Caller | None = None
        """Set where hooks may see the calls."""
        self.clock = clock

    def restore_topics(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> None:
        """Give messages of the retry topic their original topic, and remove namespaces."""
        if queue.topic == self._retry_topic:
            for message in messages:
                original = message.get_property(Property.RETRY_TOPIC)
                if original is not None and message.topic == self._retry_topic:
                    message.topic = original
        if self._namespace.name:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)

    def same_topic(self, messages: Sequence[ReceivedMessage], queue: MessageQueue) -> int:
        """How many of the first messages (at least one) have the same topic, and so the same handler.

        Topics must have been restored.
        """
        if queue.topic != self._retry_topic:
            return len(messages)
        topic = messages[0].topic
        return next((at for at, message in enumerate(messages) if message.topic != topic), len(messages))

    async def call(self, messages: list[ReceivedMessage], queue: MessageQueue) -> Verdict:
        """Call the handler of the messages, which must have the same topic."""
        context = self._run_before_hooks(messages, queue) if self._hooks else None
        began = self.clock()
        if call_hooks and self.caller is not None:
            verdict = await self._observed(self.caller, messages, queue)
        else:
            verdict = await self.judge_call(messages)
        elapsed = self.clock() - began
        if verdict.error is not None:
            self.failed(verdict.error)
            log.warning(
                "a handler of group %s failed for %s: %s",
                self.group,
                queue,
                _described(messages),
                exc_info=verdict.error,
            )
        if context is not None:
            self._run_after_hooks(context, verdict, elapsed)
        self.stats.consumed(queue.topic, elapsed)
        return verdict

    async def _observed(
        self, caller: Caller, messages: list[ReceivedMessage], queue: MessageQueue
    ) -> Verdict:
        is_batch = len(messages) > 1
        with Call(CallKind.PROCESS, "process", caller, [*messages], is_batch, queue) as call:
            verdict = await self.judge_call(messages)
            call.error = verdict.error
            call.failure = "" if _is_success(verdict) else verdict.result.value
        return verdict

    async def judge_call(self, messages: list[ReceivedMessage]) -> Verdict:
        """Call the handler without hooks and statistics. If it raises anything, the messages are repeated."""
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
        verdict = self.judge(False)
        return Verdict(verdict.result, verdict.accepted, error=error)

    def _run_before_hooks(self, messages: list[ReceivedMessage], queue: MessageQueue) -> ConsumeContext:
        context = ConsumeContext(self.group, queue, messages)
        for hook in self._hooks:
            run_hook(hook.before, context)
        return context

    def _run_after_hooks(self, context: ConsumeContext, verdict: Verdict, elapsed: float) -> None:
        context.return_type = self._return_type(verdict, elapsed)
        context.status = verdict.result.value
        context.success = _is_success(verdict)
        for hook in self._hooks:
            run_hook(hook.after, context)

    def _return_type(self, verdict: Verdict, elapsed: float) -> str:
        if verdict.error is not None:
            return "EXCEPTION"
        if elapsed >= self._timeout_s:
            return "TIME_OUT"
        return "FAILED" if verdict.result in (FAILED.result, SUSPENDED.result) else "SUCCESS"


def _is_success(verdict: Verdict) -> bool:
    return verdict.result in (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)


def _described(messages: Sequence[ReceivedMessage]) -> str:
    """Message id, offset and try of the first messages."""
    shown = ", ".join(
        f"message {message.message_id} at offset {message.queue_offset}, try {message.reconsume_times + 1}"
        for message in messages[:SHOWN_MAX]
    )
    more = len(messages) - SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """How a service calls handlers: in which threads, how many at a time, with how many messages each.

    `turn`: awaited before each call; False: there will be none any more, the messages stay unfinished. `later`: None is
    the event loop's `call_later`.
    """

    calls: ListenerInvoker
    threads: HandlerThreads
    at_a_time: int
    batch_size: int
    turn: Callable[[], Awaitable[bool]] | None = None
    later: Later | None = None
