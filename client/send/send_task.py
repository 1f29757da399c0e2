"""SendTask: one send with all its attempts, until it has a result. Loop thread.

A chain of callbacks: while route and connection are available, no asyncio task is created. Cancelling the
future ends the attempts.
"""

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.pending_calls import SILENT_S
from firearrow._native.wire.send_request import post
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    MessageRefused,
    NoRoute,
    NotRunning,
    RequestTimeout,
    RocketMQError,
    TransportError,
)
from firearrow.client.base.hooks import ForbiddenCheck, SendContext, SendHook, run_hook
from firearrow.client.base.message import MessageQueue, SendResult, SendStatus
from firearrow.client.base.names import Namespace
from firearrow.client.base.options import ProducerOptions
from firearrow.client.base.reports import LastError
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.unsent import Unsent
from firearrow.client.remoting.channel import Channel
from firearrow.client.remoting.channels import HOLD_UP_S
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import PublishInfo
from firearrow.client.send.back_pressure import OnewayWrites
from firearrow.client.send.fault_strategy import LatencyFaultTolerance
from firearrow.client.send.prepare import BATCH, PreparedMessage
from firearrow.client.send.queue_selection import (
    QueueSelector,
    Selector,
    is_not_master,
    means_old_route,
    no_such_queue,
)

log = logging.getLogger("firearrow.client")

Result = TypeVar("Result")


class Answer(Protocol):
    """A broker's answer to a send: `_native.wire.send_request.SendAnswer` or CommandAnswer."""

    @property
    def code(self) -> int: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def offset_message_id(self) -> str | None: ...
    @property
    def transaction_id(self) -> str | None: ...
    @property
    def batch_unique_id(self) -> str | None: ...
    @property
    def recall_handle(self) -> str | None: ...
    @property
    def region(self) -> str: ...
    @property
    def trace_on(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The Answer that a RemotingCommand contains. `of` raises FieldError."""

    code: int
    remark: str | None
    queue_id: int
    queue_offset: int
    offset_message_id: str | None
    transaction_id: str | None
    batch_unique_id: str | None
    recall_handle: str | None
    region: str
    trace_on: bool

    @staticmethod
    def of(answer: RemotingCommand) -> "CommandAnswer":
        ext = answer.ext
        return CommandAnswer(
            answer.code,
            answer.remark,
            answer.integer_or("queueId", -1),
            answer.integer_or("queueOffset", -1),
            ext.get("msgId"),
            ext.get("transactionId"),
            ext.get("batchUniqId"),
            ext.get("recallHandle"),
            ext.get("MSG_REGION", "DefaultRegion"),
            ext.get("TRACE_ON") != "false",
        )


STATUSES = {status.value: status for status in SendStatus}
VIP_PORT_BELOW = 2
FIRST_SHARE = 0.5
"""Of the time that is left, for one attempt if other brokers can be tried after it."""
SUSPECT_S = 0.5
"""A broker that let a connection wait for this time is silent until it answers a heartbeat."""
RENEWALS_MAX = 5
"""Attempts of one send that do not count because name servers have a new route, or must get one soon."""
RENEW_PAUSE_S = 0.1
"""Pause before another attempt at the same broker, after which name servers are asked again."""
DRAIN_RETRY_S = 0.2
"""Pause before a submitted message is tried again while the producer closes."""
WRITE_PAUSED_POLL_S = 0.005
"""How often a one-way send checks whether a full socket accepts more bytes."""


@dataclass(slots=True)
class SendEnvironment:
    """What all sends of a producer share."""

    group: str
    instance: ClientInstance
    options: ProducerOptions
    namespace: Namespace
    choice: QueueSelector
    faults: LatencyFaultTolerance | None
    hooks: Sequence[SendHook]
    forbidden: Sequence[ForbiddenCheck]
    unsent: Unsent
    oneway: OnewayWrites
    last_error: LastError
    drain_until_s: float | None = None
    """Set by a close: submitted messages are tried again until then, at the loop's clock."""

    def address(self, queue: MessageQueue) -> str | None:
        """The address of the queue's master, if it is known."""
        routes = self.instance.routes
        address = routes.master(routes.broker_name_of(queue))
        return address if address is None else self.vip(address)

    def vip(self, address: str) -> str:
        if not self.instance.options.vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - VIP_PORT_BELOW}"


class SendTask:
    """`retries(error)`: whether the error is worth another attempt.

    `tries`: the number of attempts in all.
    """

    __slots__ = (
        "_began_s",
        "_broker",
        "_context",
        "_deadline_s",
        "_environment",
        "_error",
        "_fallback_result",
        "_fixed_queue",
        "_mode",
        "_prepared",
        "_queue",
        "_redirected",
        "_renewals",
        "_retries",
        "_selector",
        "_tries",
        "future",
    )

    def __init__(
        self,
        environment: SendEnvironment,
        prepared: PreparedMessage,
        mode: str,
        timeout_s: float,
        tries: int,
        retries: Callable[[BaseException], bool],
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        self._environment = environment
        self._prepared = prepared
        self._mode = mode
        self._deadline_s = environment.instance.loop.time() + timeout_s
        self._tries = tries
        self._retries = retries
        self._fixed_queue = queue
        self._selector = selector
        self._queue = queue
        self._broker: str | None = None
        self._redirected = False
        self._renewals = 0
        self._began_s = 0.0
        self._error: BaseException | None = None
        self._context: SendContext | None = None
        self._fallback_result: SendResult | None = None
        self.future: Future[SendResult] = environment.instance.loop.create_future()

    def attempt(self) -> None:
        """Make one attempt: at once, or as soon as route and connection are available."""
        if self.future.done():
            return
        if self._error is not None and self._environment.instance.loop.time() >= self._deadline_s:
            self._fail(self._error)
            return
        routes = self._environment.instance.routes
        queue = self._fixed_queue
        if queue is None:
            info = routes.known_publish_info(self._prepared.topic.wrapped)
            if info is None or not info.queues:
                self._spawn(self._fetch_route())
                return
            queue = self._choose(info)
            if queue is None:
                return
        address = self._environment.address(queue)
        channel = None if address is None else self._environment.instance.channels.held(address)
        if address is None or channel is None:
            self._spawn(self._connect(queue))
        else:
            self._send(queue, address, channel)

    def resume(
        self,
        future: Future[SendResult],
        queue: MessageQueue,
        deadline_s: float,
        outcome: Answer | BaseException,
    ) -> None:
        """Continue after an attempt that the fast path made for `future`."""
        self.future = future
        self._deadline_s = deadline_s
        self._queue, self._broker = queue, queue.broker_name
        self._began_s = self._environment.instance.loop.time()
        self._answered(outcome)

    async def send_oneway(self) -> None:
        """One attempt without an answer. NoRoute, ConnectFailed; RequestTimeout: the socket stayed full."""
        environment, prepared = self._environment, self._prepared
        options, routes, topic = environment.options, environment.instance.routes, prepared.topic.wrapped
        queue = self._fixed_queue
        if queue is None:
            info = await self._in_time(
                routes.publish_info(topic, options.template_topic, options.default_queues)
            )
            queue = self._choose(info)
            if queue is None:
                await self.future
                return
        address = environment.vip(await self._in_time(environment.instance.master_of(queue)))
        if (environment.hooks or environment.forbidden) and not self._run_before_hooks(queue, address):
            await self.future
            return
        try:
            await self._write_oneway(queue, address)
        except Exception as error:
            self._run_after_hooks(None, error)
            raise
        self._run_after_hooks(None, None)

    async def _write_oneway(self, queue: MessageQueue, address: str) -> None:
        """Write the request once the socket accepts it."""
        instance = self._environment.instance
        channels, now_s = instance.channels, instance.loop.time
        channel = channels.held(address) or await channels.open(address, self._deadline_s - now_s())
        progress, moved_s = (0, 0), now_s()
        while channel.write_paused:
            if progress != (progress := (channel.unsent_bytes, channel.received_frames)):
                moved_s = now_s()
            if now_s() >= self._deadline_s or channel.closed:
                if now_s() - moved_s >= SILENT_S:
                    channels.drop(channel)
                raise RequestTimeout(
                    f"{address}: the socket's buffer is full, the one-way request was not sent"
                )
            await asyncio.sleep(WRITE_PAUSED_POLL_S)
        opaque, born_ms = channel.next_opaque(), now_ms()
        holder = instance.routes.broker_name_of(queue)
        frame = self._prepared.frame(opaque, queue.queue_id, holder, born_ms, True)
        if channels.plain:
            channel.send(frame)
            self._environment.oneway.written(channel, len(frame))
        else:
            await channels.oneway(address, RemotingCommand.decode(frame))

    def _spawn(self, steps: Coroutine[Any, Any, None]) -> None:
        self._environment.instance.spawn(steps).add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that failed or was cancelled (a close, an RpcHook that refuses) also ends the future."""
        error = NotRunning("the client was closed") if task.cancelled() else task.exception()
        if error is not None:
            self._run_after_hooks(None, error)
            if not self._drains(error):
                self._fail(error)

    # ---- route and connection ----

    async def _fetch_route(self) -> None:
        """Fetch the route, then continue."""
        options, routes = self._environment.options, self._environment.instance.routes
        try:
            topic = self._prepared.topic.wrapped
            info = await self._in_time(
                routes.publish_info(topic, options.template_topic, options.default_queues)
            )
            queue = self._choose(info)
            if queue is not None:
                await self._connect(queue)
        except RocketMQError as error:
            if not self._drains(error):
                self._fail(error)

    async def _connect(self, queue: MessageQueue) -> None:
        """Open the connection, then send."""
        instance = self._environment.instance
        self._began_s = instance.loop.time()
        self._queue, self._broker = queue, queue.broker_name
        try:
            address = self._environment.vip(await self._in_time(instance.master_of(queue)))
            left_s = self._attempt_s(self._deadline_s - instance.loop.time())
            channel = instance.channels.held(address) or await instance.channels.open(address, left_s)
        except NoRoute as error:
            self._fail(error)
        except RocketMQError as error:
            self._attempt_failed(error)
        else:
            if not self.future.done():
                self._send(queue, address, channel)

    async def _in_time(self, asked: Awaitable[Result]) -> Result:
        """What the name servers report. RequestTimeout: not before the deadline."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                return await asked
        except TimeoutError:
            topic = self._prepared.topic.wrapped
            raise RequestTimeout(
                f"topic {topic}: no name server answered within the send's timeout"
            ) from None

    def _attempt_s(self, left_s: float) -> float:
        """The time of one attempt: some is kept for another broker that may answer."""
        environment, options = self._environment, self._environment.options
        if self._tries < 2 or self._fixed_queue is not None or self._broker is None:
            return left_s
        if options.attempt_timeout_s is not None:
            return min(left_s, options.attempt_timeout_s)
        info = environment.instance.routes.known_publish_info(self._prepared.topic.wrapped)
        others = info is not None and environment.choice.has_other(info, self._broker)
        return left_s * FIRST_SHARE if others else left_s

    def _choose(self, info: PublishInfo) -> MessageQueue | None:
        """Select a queue. None: the selector failed, and so did the future."""
        if self._selector is None:
            return self._environment.choice.choose(info, self._broker)
        topic = self._prepared.topic
        shown = [MessageQueue(topic.topic, q.broker_name, q.queue_id) for q in info.queues]
        try:
            chosen = self._selector(shown, self._prepared.message)
            self._fixed_queue = info.queues[shown.index(chosen)]
        except Exception as error:
            failure = ClientError(f"the selector failed: {error!r}")
            failure.__cause__ = error
            self._fail(failure)
            return None
        return self._fixed_queue

    # ---- one attempt ----

    def _send(self, queue: MessageQueue, address: str, channel: Channel) -> None:
        environment = self._environment
        self._queue, self._broker = queue, queue.broker_name
        self._began_s = environment.instance.loop.time()
        timeout_s = self._deadline_s - self._began_s
        if timeout_s <= 0:
            self._fail(
                self._error or RequestTimeout("the timeout is over, no time is left for another attempt")
            )
            return
        if environment.drain_until_s is not None:
            # Long enough for a connection that died to be dropped with what it has: no copy of each attempt arrives.
            timeout_s = min(timeout_s, max(environment.options.send_timeout_s, SILENT_S))
        timeout_s = self._attempt_s(timeout_s)
        if (environment.hooks or environment.forbidden) and not self._run_before_hooks(queue, address):
            return
        opaque = channel.next_opaque()
        born_ms = now_ms()
        try:
            holder = environment.instance.routes.broker_name_of(queue)
            frame = self._prepared.frame(opaque, queue.queue_id, holder, born_ms, False)
            if environment.instance.channels.plain:
                post(channel, opaque, frame, self._answered, timeout_s)
            else:
                self._spawn(self._call(address, frame, timeout_s))
        except RocketMQError as error:
            self._attempt_failed(error)
        except ValueError as error:
            self._run_after_hooks(None, error)
            self._fail(MessageRefused(str(error)))

    async def _call(self, address: str, frame: bytes, timeout_s: float) -> None:
        """Send through the instance, which adds fields to the request: hooks, signature, namespace."""
        try:
            request = RemotingCommand.decode(frame)
            answer = await self._environment.instance.call(address, request, timeout_s)
            self._answered(CommandAnswer.of(answer))
        except (RocketMQError, ValueError) as error:
            self._answered(error)

    def _answered(self, answer: Answer | BaseException) -> None:
        if isinstance(answer, RocketMQError):
            self._attempt_failed(answer)
            return
        if isinstance(answer, BaseException):
            self._attempt_failed(ClientError(f"the answer of broker {self._broker} cannot be read: {answer}"))
            return
        status = STATUSES.get(answer.code)
        queue = self._queue
        assert queue is not None
        if status is None:
            self._attempt_failed(BrokerError(answer.code, answer.remark or "", queue.broker_name))
            return
        result = self._result(status, answer, queue)
        self._run_after_hooks(result, None)
        if self._environment.faults is not None:
            took_s = self._environment.instance.loop.time() - self._began_s
            self._environment.faults.update(queue.broker_name, took_s)
        if (
            status is not SendStatus.SEND_OK
            and self._environment.options.retry_when_not_stored_ok
            and self._mode == "sync"
            and self._tries > 1
        ):
            self._tries -= 1
            self._fallback_result = result
            self.attempt()
        elif not self.future.done():
            self.future.set_result(result)

    def _result(self, status: SendStatus, answer: Answer, queue: MessageQueue) -> SendResult:
        prepared = self._prepared
        if prepared.fields.code == BATCH and answer.batch_unique_id is None:
            message_id = ",".join(message.unique_id or "" for message in prepared.messages)
        else:
            message_id = prepared.message.unique_id or ""
        return SendResult(
            status,
            message_id,
            answer.offset_message_id or "",
            MessageQueue(prepared.topic.topic, queue.broker_name, answer.queue_id),
            answer.queue_offset,
            answer.transaction_id,
            answer.recall_handle,
            answer.region,
            answer.trace_on,
        )

    def _attempt_failed(self, error: BaseException) -> None:
        """Start another attempt, or fail."""
        self._run_after_hooks(None, error)
        self._record_fault(error)
        if self._redirected_by_broker(error):
            self.attempt()
            return
        if self._drains(error):
            return
        self._tries -= 1
        self._error = error
        again = self._tries > 0 and (self._retries(error) or is_not_master(error))
        if self._environment.instance.loop.time() >= self._deadline_s:
            self._fail(error)
        elif means_old_route(error):
            self._spawn(self._after_new_route(error, again))
        elif again and self._retries(error):
            self.attempt()
        else:
            self._fail(error)

    async def _after_new_route(self, error: BaseException, again: bool) -> None:
        """Ask the name servers, then go on. A new route is worth an attempt that does not count: a broker that
        refused has stored nothing.
        """
        environment, queue, topic = self._environment, self._queue, self._prepared.topic.wrapped
        routes, now_s = environment.instance.routes, environment.instance.loop.time
        assert queue is not None
        master = environment.address(queue)
        try:
            async with asyncio.timeout(min(HOLD_UP_S, self._deadline_s - now_s())):
                await routes.renew(topic)
        except (RocketMQError, TimeoutError) as fault:
            log.debug("topic %s: no new route: %s", topic, fault)
        info = routes.known_publish_info(topic)
        left = info is not None and queue not in info.queues
        moved = left or environment.address(queue) != master
        if self._selector is not None:
            self._fixed_queue = None
        elif self._fixed_queue is not None and (left or no_such_queue(error)):
            self._fail(error)  # the caller wants this one
            return
        if (moved or no_such_queue(error)) and self._renewals < RENEWALS_MAX:
            self._renewals, self._tries = self._renewals + 1, self._tries + 1
        elif not again:
            self._fail(error)
            return
        if not moved and (info is None or not environment.choice.has_other(info, queue.broker_name)):
            await asyncio.sleep(RENEW_PAUSE_S)
        self.attempt()

    def _drains(self, error: BaseException) -> bool:
        """The producer closes: a submitted message that no broker has answered is tried again."""
        until_s, loop = self._environment.drain_until_s, self._environment.instance.loop
        if until_s is None or self._mode != "async" or self.future.done() or loop.time() >= until_s:
            return False
        if not isinstance(error, TransportError | NotRunning):
            return False
        self._error, self._deadline_s = error, until_s
        loop.call_later(DRAIN_RETRY_S, self.attempt)
        return True

    def _redirected_by_broker(self, error: BaseException) -> bool:
        """A broker that shuts down (GO_AWAY) stored nothing: reconnect once without counting the attempt."""
        if not isinstance(error, BrokerError) or error.code != ResponseCode.GO_AWAY or self._queue is None:
            return False
        address = self._environment.address(self._queue)
        if address is not None:
            self._environment.instance.channels.retire(address)
        again, self._redirected = not self._redirected, True
        return again

    def _fail(self, error: BaseException) -> None:
        """Complete the future: with an earlier attempt's result if there is one, else with the error."""
        if self.future.done():
            return
        if self._fallback_result is not None:
            self.future.set_result(self._fallback_result)
            return
        self.future.set_exception(error)
        environment = self._environment
        environment.last_error.set(error)
        if (
            environment.drain_until_s is not None
            and self._mode == "async"
            and not environment.unsent.by_future
        ):
            environment.unsent.failed(error, len(self._prepared.messages))
            self.future._log_traceback = False  # reported once for all, not with a traceback for each

    def _record_fault(self, error: BaseException) -> None:
        faults, instance = self._environment.faults, self._environment.instance
        if self._broker is None:
            return
        took_s = instance.loop.time() - self._began_s
        if isinstance(error, RequestTimeout) or (isinstance(error, ConnectFailed) and took_s >= SUSPECT_S):
            master = instance.routes.master(self._broker)
            if master is not None:
                instance.heartbeats.suspect(master)
        if faults is None:
            return
        if isinstance(error, BrokerError):
            faults.update(self._broker, took_s, isolate=True, reachable=False)
        elif isinstance(error, TransportError):
            faults.update(self._broker, took_s, isolate=True, reachable=not faults.probes)
        else:
            faults.update(self._broker, took_s)

    # ---- hooks ----

    def _run_before_hooks(self, queue: MessageQueue, address: str) -> bool:
        prepared = self._prepared
        self._context = context = SendContext(
            self._environment.group,
            prepared.message,
            prepared.messages,
            queue,
            address,
            self._mode,
            prepared.kind,
            len(prepared.body),
        )
        try:
            for check in self._environment.forbidden:
                check.check(context)
        except Exception as error:
            self._context = None
            self._fail(error)
            return False
        for hook in self._environment.hooks:
            run_hook(hook.before, context)
        return True

    def _run_after_hooks(self, result: SendResult | None, error: BaseException | None) -> None:
        """Call the hooks after an attempt that `before` announced to them."""
        context, self._context = self._context, None
        if context is None:
            return
        context.result, context.error = result, error
        for hook in self._environment.hooks:
            run_hook(hook.after, context)
