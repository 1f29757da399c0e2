"""Producer: the public API and lifecycle; SendTask and FastSends do the sending.

Belongs to the event loop in which it was started.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.call_hooks import Call, CallKind, call_hooks
from firearrow.client.base.errors import ConfigError, MessageRefused, check
from firearrow.client.base.hooks import EndTransactionHook, ProducerHooks, check_known
from firearrow.client.base.message import Message, MessageQueue, SendResult
from firearrow.client.base.names import check_group
from firearrow.client.base.options import ClientOptions, ProducerOptions, client_options
from firearrow.client.base.service_state import ServiceState
from firearrow.client.base.unsent import Unsent
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.service import Service
from firearrow.client.send.back_pressure import BackPressure, OnewayWrites
from firearrow.client.send.batch import Accumulator
from firearrow.client.send.fast_send import FastSends, SlowPath
from firearrow.client.send.fault_strategy import PROBE_EACH_S, latency_faults
from firearrow.client.send.prepare import MessagePreparer, PreparedMessage, unique_ids
from firearrow.client.send.queue_selection import (
    QueueSelector,
    Selector,
    is_transport_error,
    never_retry,
    retry_on_other_broker,
    target,
)
from firearrow.client.send.recall import RecallHandle, recall
from firearrow.client.send.request_reply import Requests, reply_message
from firearrow.client.send.send_task import WRITE_PAUSED_POLL_S, SendEnvironment, SendTask
from firearrow.client.send.transactions import (
    Checker,
    Local,
    Transaction,
    TransactionChecks,
    TransactionResult,
    Transactions,
)
from firearrow.client.trace.attach_producer import ProduceTracing
from firearrow.client.trace.dispatcher import TraceSide, trace_dispatcher

INTERNAL_GROUPS = ("_INNER_TRACE_PRODUCER-", "CLIENT_INNER_PRODUCER")
"""Java's names of the groups in which clients send traces and failed messages: no calls of the program."""
LAST_ATTEMPT_S = 0.2
"""How long a close waits for answers after `drain_s`."""


class FastPath(NamedTuple):
    """Of a producer that runs: plain sends, and where those go that it leaves to others, of `send` and of `submit`."""

    sends: FastSends
    slow_send: SlowPath
    slow_submit: SlowPath


class Producer(Service):
    """Sends messages in the name of a producer group. `checker` answers for transactions that were left open.

    `send` waits for the result and retries at other brokers by Java's rules for synchronous sends; `submit`
    returns a future at once and retries only when no broker answered. Any number of tasks may call both
    concurrently.
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        options: ProducerOptions | None = None,
        client: ClientOptions | None = None,
        checker: Checker | None = None,
        **hooks: Unpack[ProducerHooks],
    ) -> None:
        """ConfigError."""
        check_known(hooks, ProducerHooks)
        super().__init__("producer", client_options(client, name_server), hooks.get("rpc_hooks", ()))
        self.options = options or ProducerOptions()
        self._group = self._namespace.wrap(check_group(group))
        self._is_internal = group.startswith(INTERNAL_GROUPS)
        self._checker = checker
        self._send_hooks = list(hooks.get("send_hooks", ()))
        self._forbidden = tuple(hooks.get("forbidden", ()))
        self._end_transaction_hooks = list(hooks.get("end_transaction_hooks", ()))
        self.requests: Requests | None = None
        self.transaction_checks: TransactionChecks | None = None
        self._environment: SendEnvironment | None = None
        self._fast: FastPath | None = None
        self._transactions: Transactions | None = None
        self._tracing: ProduceTracing | None = None
        self._detector: asyncio.Task[Any] | None = None
        self._back_pressure = BackPressure(
            self.options.in_flight_max, self.options.in_flight_bytes, self.options.wait_when_full
        )
        self._preparer = MessagePreparer(
            self._group, self.options, self._namespace, unique_ids(), self._client.binary_headers
        )
        self.unsent = Unsent(
            f"{{}} messages of producer {self._group} were not sent (no broker has confirmed them)"
        )
        self._closing: asyncio.Task[None] | None = None
        self._accumulator = (
            Accumulator(self.options, self._submit_batch, self._back_pressure.release)
            if self.options.auto_batch
            else None
        )
        self._retry_codes = retry_on_other_broker(self.options.retry_codes)

    # ---- lifecycle ----

    async def _begin(self, instance: ClientInstance) -> None:
        """ClientError: a route of `options.topics` is not found."""
        await instance.join_producer(self)
        self._preparer.ids = unique_ids()  # those of a process that was forked since it was made are others
        faults = latency_faults(instance, self.options) if self.options.latency_faults else None
        self._environment = SendEnvironment(
            self._group,
            instance,
            self.options,
            self._namespace,
            QueueSelector(faults, instance.is_silent),
            faults,
            self._send_hooks,
            self._forbidden,
            self.unsent,
            OnewayWrites(),
            self._reports.last_error,
        )
        sends = FastSends(self._environment, self._preparer, unique_ids(), self._back_pressure)
        instance.heartbeats.silence_listeners.append(sends.forget_queues)
        self._fast = FastPath(
            sends,
            self._slow_path("sync", self.options.retries, self._retry_codes),
            self._slow_path("async", self.options.async_retries, is_transport_error),
        )
        self.requests = Requests(self)
        self._transactions = Transactions(self)
        if self._checker is not None:
            self.transaction_checks = TransactionChecks(self, self._checker)
        if faults is not None and faults.probes:
            self._detector = instance.every(PROBE_EACH_S, faults.detect)
        if self.options.trace:
            dispatcher = trace_dispatcher(
                Producer,
                self._group,
                TraceSide.PRODUCE,
                self._client,
                self.options.trace_topic,
                self.options.trace_batch,
            )
            self._tracing = ProduceTracing(
                dispatcher, self._namespace, self._send_hooks, self._end_transaction_hooks
            )
            await self._tracing.start()
        for topic in self.options.topics:
            await instance.routes.refresh(self._namespace.wrap(topic))
        await instance.heartbeat_all()

    async def close(self) -> None:
        """Wait for the sends in flight, for at most `drain_s`; then leave, and report on stderr what was not sent.

        Cannot be started again. Goes on when its caller is cancelled.
        """
        self._check_open_here()
        if self.state is not ServiceState.RUNNING and self._closing is None:
            await super().close()
            return
        if self._closing is None:
            self.state = ServiceState.SHUTDOWN_ALREADY
            environment = self._environment
            assert environment is not None
            # At once: when the event loop ends, tasks of sends that were cancelled with this one go on.
            environment.drain_until_s = self.loop.time() + self.options.drain_s
            self._closing = self.loop.create_task(self._drain_and_leave(environment))
        await asyncio.shield(self._closing)

    async def _drain_and_leave(self, environment: SendEnvironment) -> None:
        """Cancelled: the event loop ends, stop waiting."""
        if self._accumulator is not None:
            self._accumulator.flush()
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(self.options.drain_s + LAST_ATTEMPT_S):
                await self._back_pressure.idle()
                while environment.oneway.unsent():  # noqa: ASYNC110 (sockets that are written report nothing)
                    await asyncio.sleep(WRITE_PAUSED_POLL_S)
        environment.drain_until_s = self.loop.time()
        if left := environment.oneway.unsent():
            self.unsent.failed("one-way, and the broker does not read", left)
        self.unsent.report()  # before requests that a broker may leave unanswered
        await super().close()
        self.unsent.report()

    @property
    def drain_s(self) -> float:
        return self.options.drain_s

    def report_unsent(self) -> None:
        in_flight = self._back_pressure.count
        if in_flight:
            self.unsent.failed("the process ended before they were answered", in_flight)
        self.unsent.report()

    async def _end(self, instance: ClientInstance) -> None:
        tracing, self._tracing = self._tracing, None
        if tracing is not None:
            await tracing.close()
        if self._detector is not None:
            self._detector.cancel()
        if self._fast is not None:
            with contextlib.suppress(ValueError):
                instance.heartbeats.silence_listeners.remove(self._fast.sends.forget_queues)
        if self.transaction_checks is not None:
            self.transaction_checks.close()
        await instance.leave_producer(self)

    # ---- sending ----

    async def send(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> SendResult:
        """Send a message; its result (stored less safely than requested? see `raise_for_status`).

        MessageRefused, NoRoute, BrokerError, TransportError, TooManyRequests. There is only one attempt if
        the queue is fixed by `queue`, `selector` or the message's sharding key.
        """
        if not call_hooks or self._is_internal:
            return await self._send(message, timeout_s, queue, selector)
        with self._call([message]) as call:
            call.result = result = await self._send(call.messages[0], timeout_s, queue, selector)
        return result

    async def _send(
        self,
        message: Message,
        timeout_s: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> SendResult:
        environment, fast = self._running(), self._fast
        if self._can_batch(message, selector):
            await self._back_pressure.wait_for_capacity(
                len(message.body), self._timeout_or_default(timeout_s)
            )
            return await self._add_to_batch(message, queue)
        if queue is None and selector is None and fast is not None:
            left_s = self._timeout_or_default(timeout_s)
            future = fast.sends.submit(message, left_s, fast.slow_send)
            if future is not None:
                return await future
        prepared = self._preparer.prepare(message)
        chosen, selector = target(message, queue, selector, self._namespace)
        left_s = await self._back_pressure.wait_for_capacity(
            prepared.size, self._timeout_or_default(timeout_s)
        )
        tries = 1 if chosen is not None or selector is not None else 1 + self.options.retries
        send_task = SendTask(
            environment, prepared, "sync", left_s, tries, self._retry_codes, chosen, selector
        )
        return await self._run_task(send_task, prepared.size)

    def submit(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> asyncio.Future[SendResult]:
        """Send without waiting; the future of the result. MessageRefused, TooManyRequests.

        A retry goes to another queue and names that queue in its header; Java's asynchronous send keeps the
        old queue id.
        """
        if not call_hooks or self._is_internal:
            return self._submit(message, timeout_s, queue, selector)
        call = self._call([message]).begin()
        try:
            future = self._submit(call.messages[0], timeout_s, queue, selector)
        except BaseException as error:
            call.end(error)
            raise
        call.sent(future)
        return future

    def _submit(
        self,
        message: Message,
        timeout_s: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> asyncio.Future[SendResult]:
        environment, fast = self._running(), self._fast
        if self._can_batch(message, selector):
            self._back_pressure.claim(len(message.body))
            return self._add_to_batch(message, queue)
        left_s = self._timeout_or_default(timeout_s)
        if queue is None and selector is None and fast is not None:
            future = fast.sends.submit(message, left_s, fast.slow_submit)
            if future is not None:
                return future
        prepared = self._preparer.prepare(message)
        chosen, selector = target(message, queue, selector, self._namespace)
        self._back_pressure.claim(prepared.size)
        return self._run_task(
            self._async_task(environment, prepared, left_s, chosen, selector), prepared.size
        )

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, selector: Selector | None = None
    ) -> None:
        """Send without an answer. Raises only errors on our side; waits while the socket's buffer is full."""
        if not call_hooks or self._is_internal:
            await self._send_oneway(message, queue, selector)
            return
        with self._call([message]) as call:
            await self._send_oneway(call.messages[0], queue, selector)

    async def _send_oneway(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None
    ) -> None:
        environment = self._running()
        prepared = self._preparer.prepare(message)
        chosen, selector = target(message, queue, selector, self._namespace)
        left_s = await self._back_pressure.wait_for_capacity(prepared.size, self.options.send_timeout_s)
        try:
            await SendTask(
                environment, prepared, "oneway", left_s, 1, never_retry, chosen, selector
            ).send_oneway()
        finally:
            environment.instance.loop.call_soon(self._back_pressure.release, prepared.size)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Send messages of one topic as one request, stored together in one queue, with one result.

        Errors as for `send`. A sharding key must be the same for all; it selects the queue.
        """
        if not call_hooks or self._is_internal:
            return await self._send_batch(messages, timeout_s, queue)
        with self._call(list(messages), is_batch=True) as call:
            call.result = result = await self._send_batch(call.messages, timeout_s, queue)
        return result

    async def _send_batch(
        self, messages: Sequence[Message], timeout_s: float | None, queue: MessageQueue | None
    ) -> SendResult:
        environment = self._running()
        prepared = self._preparer.prepare_batch(messages, queue is None)
        chosen, selector = target(prepared.message, queue, None, self._namespace)
        left_s = await self._back_pressure.wait_for_capacity(
            prepared.size, self._timeout_or_default(timeout_s)
        )
        tries = 1 if chosen is not None or selector is not None else 1 + self.options.retries
        send_task = SendTask(
            environment, prepared, "sync", left_s, tries, self._retry_codes, chosen, selector
        )
        return await self._run_task(send_task, prepared.size)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The topic's writable queues, for `send(message, queue=...)`. NoRoute."""
        environment, options = self._running(), self.options
        info = await environment.instance.routes.publish_info(
            self._namespace.wrap(topic), options.template_topic, options.default_queues
        )
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in info.queues]

    async def recall(self, topic: str, handle: str) -> str:
        """Recall a timer message that is not due yet, by its `recall_handle`; its message id. BrokerError."""
        self._running()
        named, wrapped = RecallHandle.decode(handle), self._namespace.wrap(topic)
        answer = await recall(self.instance, self._group, wrapped, named, handle, self.options.send_timeout_s)
        if self._tracing is not None:
            self._tracing.hook.recalled(self._group, wrapped, named.message_id, answer)
        return check(answer, named.broker_name).text_or("msgId", named.message_id)

    # ---- transactions, requests ----

    def transaction(self, message: Message, *, timeout_s: float | None = None) -> Transaction:
        """`async with producer.transaction(message):` commits at the end, rolls back on an exception."""
        self._running()
        return self._transactions_checked().transaction(message, timeout_s)

    async def send_in_transaction(
        self, message: Message, local: Local, argument: object = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """Send a half message, do the local work, commit or roll back, as Java's TransactionMQProducer."""
        self._running()
        return await self._transactions_checked().run(message, local, argument, timeout_s)

    async def request(
        self,
        message: Message,
        *,
        timeout_s: float = 3,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> ReceivedMessage:
        """Send and wait for the reply. RequestReplyTimeout, and the errors of `send`."""
        self._running()
        assert self.requests is not None
        if not call_hooks:
            return await self.requests.request(message, timeout_s, queue=queue, selector=selector)
        with Call(CallKind.RECEIVE, "request", self._caller(self._group)) as call:
            reply = await self.requests.request(message, timeout_s, queue=queue, selector=selector)
            call.messages = [reply]
        return reply

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Reply to a consumed message. NoReplyAddress: it is not a request."""
        return await self.send(reply_message(request, body))

    # ---- properties ----

    @property
    def group(self) -> str:
        """The group by its name at the brokers."""
        return self._group

    @property
    def end_transaction_hooks(self) -> Sequence[EndTransactionHook]:
        return self._end_transaction_hooks

    def topics(self) -> set[str]:
        return {topic.wrapped for topic in self._preparer.topics.values()}

    # ---- internal ----

    def _call(self, messages: list[Message], *, is_batch: bool = False) -> Call:
        """For hooks. NotRunning."""
        self._running()
        return Call(CallKind.SEND, "send", self._caller(self._group), messages, is_batch)

    def _running(self) -> SendEnvironment:
        if self.state is not ServiceState.RUNNING or self._environment is None:
            raise self._not_running()
        self._check_loop()
        return self._environment

    def _slow_path(self, mode: str, retries: int, should_retry: Callable[[BaseException], bool]) -> SlowPath:
        assert self._environment is not None
        return SlowPath(
            self._environment, self._preparer, self._back_pressure, mode, 1 + retries, should_retry
        )

    def _transactions_checked(self) -> Transactions:
        if self._checker is None:
            raise ConfigError("transactions need a checker: use Producer(group, checker=...)")
        assert self._transactions is not None
        return self._transactions

    def _timeout_or_default(self, timeout_s: float | None) -> float:
        return self.options.send_timeout_s if timeout_s is None else timeout_s

    def _async_task(
        self,
        environment: SendEnvironment,
        prepared: PreparedMessage,
        left_s: float,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> SendTask:
        tries = 1 + self.options.async_retries
        return SendTask(environment, prepared, "async", left_s, tries, is_transport_error, queue, selector)

    def _can_batch(self, message: Message, selector: Selector | None) -> bool:
        return self._accumulator is not None and selector is None and self._accumulator.accepts(message)

    def _add_to_batch(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[SendResult]:
        """Add a message, whose capacity was taken already, to a batch, which releases it."""
        assert self._accumulator is not None
        try:
            return self._accumulator.add(message, queue)
        except MessageRefused:
            self._back_pressure.release(len(message.body))
            raise

    def _submit_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None
    ) -> asyncio.Future[SendResult]:
        """Send a batch of the accumulator; the capacity of its messages was taken already."""
        environment = self._environment
        if environment is None:
            raise self._not_running()
        prepared = self._preparer.prepare_batch(messages)
        chosen, _ = target(prepared.message, queue, None, self._namespace)
        send_task = self._async_task(environment, prepared, self.options.send_timeout_s, chosen, None)
        send_task.attempt()
        return send_task.future

    def _run_task(self, send_task: SendTask, size: int) -> asyncio.Future[SendResult]:
        future = send_task.future
        self._back_pressure.hold(size, future)
        send_task.attempt()
        return future
