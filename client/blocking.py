"""The client without `await`: Producer, PushConsumer, PullConsumer, PopConsumer and Admin for threads.

These classes are façades of the asyncio classes in firearrow.client, which run in one loop thread per
process. Call them from any thread, also from another event loop, which then blocks. Calls from the client's
own loop raise NotRunning: coroutine handlers and listeners run there.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, overload

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api import admin, extensions
from firearrow.client.base.call_hooks import call_hooks
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.message import Message, MessageQueue, SendResult
from firearrow.client.base.reports import AnyListener, Health
from firearrow.client.base.service_state import ServiceState, Uncopied
from firearrow.client.consume.listeners import Handler
from firearrow.client.consume.signals import stopped_by_signals
from firearrow.client.consumers import pop_consumer, pull_consumer, push_consumer
from firearrow.client.send import producer, transactions
from firearrow.client.send.queue_selection import Selector
from firearrow.client.threads.facade import Facade, LoopObject, LoopVerb, Verb, makes
from firearrow.client.threads.handover import ThreadBridge

__all__ = ["Admin", "Extensions", "PopConsumer", "Producer", "PullConsumer", "PushConsumer", "Transaction"]


def __dir__() -> list[str]:
    return sorted(__all__)


AnyHandler = TypeVar("AnyHandler", bound=Handler)


AnyService = TypeVar(
    "AnyService",
    bound=producer.Producer
    | push_consumer.PushConsumer
    | pull_consumer.PullConsumer
    | pop_consumer.PopConsumer,
)


class Member(Facade[AnyService]):
    """What producers and consumers have in common."""

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def state(self) -> ServiceState:
        return self._inner.state

    @property
    def health(self) -> Health:
        """State, connections, queues and the last error, as they are now. Any thread; nothing is requested."""
        return self._inner.health

    def on_event(self, listener: AnyListener) -> AnyListener:
        """See firearrow.client.Producer.on_event. A plain function may use blocking objects."""
        return self._thread.call(partial(self._inner.on_event, listener))


class Producer(Member[producer.Producer]):
    """See firearrow.client.Producer. A plain `checker` is called in a thread."""

    @makes(producer.Producer)
    def __init__(self, make: Callable[[], producer.Producer]) -> None:
        super().__init__(make)
        self._bridge = ThreadBridge(self._thread, self._inner.options, self._inner.unsent)

    send = Verb(producer.Producer.send)
    send_oneway = Verb(producer.Producer.send_oneway)
    send_batch = Verb(producer.Producer.send_batch)
    queues = Verb(producer.Producer.queues)
    recall = Verb(producer.Producer.recall)
    send_in_transaction = Verb(producer.Producer.send_in_transaction)
    request = Verb(producer.Producer.request)
    reply = Verb(producer.Producer.reply)

    def submit(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> Future[SendResult]:
        """The future of the result; it also carries errors. Blocks while too many messages are in flight."""
        submit = partial(self._inner.submit, message, timeout_s=timeout_s, queue=queue, selector=selector)
        if call_hooks:  # they see the caller's context variables; one wake-up of the loop serves many callers
            submit = partial(contextvars.copy_context().run, submit)
        return self._bridge.submit(submit)

    def transaction(self, message: Message, *, timeout_s: float | None = None) -> "Transaction":
        """`with producer.transaction(message):` commits at the end, rolls back on an exception."""
        make = partial(self._inner.transaction, message, timeout_s=timeout_s)
        return Transaction(self, self._thread.call(make))


class Transaction(Uncopied):
    """See firearrow.client.send.transactions.Transaction."""

    def __init__(self, producer: Producer, inner: transactions.Transaction) -> None:
        self._producer = producer  # not dropped before
        self._thread = producer._thread
        self._inner = inner

    @property
    def sent(self) -> SendResult:
        return self._inner.sent

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def state(self) -> transactions.TransactionState | None:
        return self._inner.state

    def leave_unknown(self) -> None:
        """Leave the transaction open: the broker will ask the checker."""
        self._inner.leave_unknown()

    def commit(self) -> None:
        """Commit at the end of the block, after a `leave_unknown` or `roll_back`."""
        self._inner.commit()

    def roll_back(self) -> None:
        """Roll back at the end of the block although no exception was raised."""
        self._inner.roll_back()

    def __enter__(self) -> Self:
        self._thread.run(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(partial(self._inner.__aexit__, kind, error, trace))


class PushConsumer(Member[push_consumer.PushConsumer]):
    """See firearrow.client.PushConsumer. Plain handlers run in threads and may use blocking objects.

    It consumes until it is closed, also when no variable refers to it.
    """

    _closes_when_dropped = False

    @makes(push_consumer.PushConsumer)
    def __init__(self, make: Callable[[], push_consumer.PushConsumer]) -> None:
        super().__init__(make)

    @overload
    def subscribe(
        self, topic: str, handler: None = None, *, tags: str | None = None, sql: str | None = None
    ) -> push_consumer.SubscribeDecorator: ...
    @overload
    def subscribe(
        self, topic: str, handler: AnyHandler, *, tags: str | None = None, sql: str | None = None
    ) -> AnyHandler: ...
    def subscribe(
        self, topic: str, handler: Handler | None = None, *, tags: str | None = None, sql: str | None = None
    ) -> push_consumer.SubscribeDecorator | Handler:
        """Pass the topic's messages to `handler`; without a handler, return a decorator. ConfigError."""
        if handler is None:
            return push_consumer.SubscribeDecorator(partial(self.subscribe, topic, tags=tags, sql=sql))
        return self._thread.call(partial(self._inner.subscribe, topic, handler, tags=tags, sql=sql))

    unsubscribe = LoopVerb(push_consumer.PushConsumer.unsubscribe)
    pause = LoopVerb(push_consumer.PushConsumer.pause)
    resume = LoopVerb(push_consumer.PushConsumer.resume)
    stop = LoopVerb(push_consumer.PushConsumer.stop)
    stats = LoopVerb(push_consumer.PushConsumer.stats)

    def run(self) -> None:
        """Start if necessary, wait for `stop`, `close` or a signal, then drain and close.

        SIGTERM and SIGINT are handled in the main thread only; a second SIGINT has its usual effect.
        """
        with stopped_by_signals(partial(self._thread.post, self._inner.stop)):
            self._thread.run(self._inner.run)

    def close(self, drain_s: float | None = None) -> None:
        """Leave the group.

        Running handlers have `drain_s` to finish (default: the option); their results count.
        """
        self._thread.run(partial(self._inner.close, drain_s))

    @property
    def client_id(self) -> str | None:
        return self._inner.client_id

    @property
    def paused(self) -> bool:
        return self._inner.paused

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that this consumer owns now."""
        return self._thread.call(lambda: self._inner.queues)


class PullConsumer(Member[pull_consumer.PullConsumer]):
    """See firearrow.client.PullConsumer."""

    @makes(pull_consumer.PullConsumer)
    def __init__(self, make: Callable[[], pull_consumer.PullConsumer]) -> None:
        super().__init__(make)

    subscribe = LoopVerb(pull_consumer.PullConsumer.subscribe)
    unsubscribe = LoopVerb(pull_consumer.PullConsumer.unsubscribe)
    assign = LoopVerb(pull_consumer.PullConsumer.assign)
    assignment = LoopVerb(pull_consumer.PullConsumer.assignment)
    poll = Verb(pull_consumer.PullConsumer.poll)
    commit = Verb(pull_consumer.PullConsumer.commit)
    committed = Verb(pull_consumer.PullConsumer.committed)
    position = LoopVerb(pull_consumer.PullConsumer.position)
    seek = Verb(pull_consumer.PullConsumer.seek)
    seek_to_begin = Verb(pull_consumer.PullConsumer.seek_to_begin)
    seek_to_end = Verb(pull_consumer.PullConsumer.seek_to_end)
    pause = LoopVerb(pull_consumer.PullConsumer.pause)
    resume = LoopVerb(pull_consumer.PullConsumer.resume)
    fetch_queues = Verb(pull_consumer.PullConsumer.fetch_queues)
    offset_for_time = Verb(pull_consumer.PullConsumer.offset_for_time)
    first_offset = Verb(pull_consumer.PullConsumer.first_offset)
    last_offset = Verb(pull_consumer.PullConsumer.last_offset)
    on_queues_changed = Verb(pull_consumer.PullConsumer.on_queues_changed)

    def close(self, *, commit: bool | None = None) -> None:
        """Leave the group. `commit`: the last polled batch is done (default: the option `auto_commit`)."""
        self._thread.run(partial(self._inner.close, commit=commit))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages until the consumer is closed; each is done when the next one is requested."""
        while self.state is ServiceState.RUNNING:
            yield from self.poll(max_messages=1)


class PopConsumer(Member[pop_consumer.PopConsumer]):
    """See firearrow.client.PopConsumer."""

    @makes(pop_consumer.PopConsumer)
    def __init__(self, make: Callable[[], pop_consumer.PopConsumer]) -> None:
        super().__init__(make)

    subscribe = LoopVerb(pop_consumer.PopConsumer.subscribe)
    unsubscribe = LoopVerb(pop_consumer.PopConsumer.unsubscribe)
    receive = Verb(pop_consumer.PopConsumer.receive)
    ack = Verb(pop_consumer.PopConsumer.ack)
    ack_batch = Verb(pop_consumer.PopConsumer.ack_batch)
    change_invisible = Verb(pop_consumer.PopConsumer.change_invisible)
    dead_letter = Verb(pop_consumer.PopConsumer.dead_letter)
    holds = LoopVerb(pop_consumer.PopConsumer.holds)
    wait = Verb(pop_consumer.PopConsumer.wait)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages until the consumer is closed. Acknowledge each one yourself."""
        while self._inner.running:
            received = iter(self.receive())
            try:
                yield from received
            finally:
                if rest := list(received):
                    with contextlib.suppress(NotRunning):
                        self._thread.post(partial(self._inner.not_given, rest))

    @property
    def held(self) -> int:
        return self._thread.call(lambda: self._inner.held)


class Admin(Facade[admin.Admin]):
    """See firearrow.client.Admin."""

    @makes(admin.Admin)
    def __init__(self, make: Callable[[], admin.Admin]) -> None:
        super().__init__(make)

    cluster_info = Verb(admin.Admin.cluster_info)
    broker_config = Verb(admin.Admin.broker_config)
    update_broker_config = Verb(admin.Admin.update_broker_config)
    broker_runtime = Verb(admin.Admin.broker_runtime)
    create_topic = Verb(admin.Admin.create_topic)
    delete_topic = Verb(admin.Admin.delete_topic)
    topics = Verb(admin.Admin.topics)
    topic_config = Verb(admin.Admin.topic_config)
    update_topic = Verb(admin.Admin.update_topic)
    system_topics = Verb(admin.Admin.system_topics)
    topic_stats = Verb(admin.Admin.topic_stats)
    queues = Verb(admin.Admin.queues)
    max_offset = Verb(admin.Admin.max_offset)
    min_offset = Verb(admin.Admin.min_offset)
    earliest_ms = Verb(admin.Admin.earliest_ms)
    offset_at = Verb(admin.Admin.offset_at)
    view_message = Verb(admin.Admin.view_message)
    message_by_unique_id = Verb(admin.Admin.message_by_unique_id)
    messages_by_key = Verb(admin.Admin.messages_by_key)
    create_group = Verb(admin.Admin.create_group)
    delete_group = Verb(admin.Admin.delete_group)
    groups = Verb(admin.Admin.groups)
    groups_of = Verb(admin.Admin.groups_of)
    consumer_lag = Verb(admin.Admin.consumer_lag)
    offset = Verb(admin.Admin.offset)
    update_offset = Verb(admin.Admin.update_offset)
    reset_offsets = Verb(admin.Admin.reset_offsets)
    consumers = Verb(admin.Admin.consumers)
    producers = Verb(admin.Admin.producers)
    running_info = Verb(admin.Admin.running_info)


class Extensions(LoopObject[extensions.Extensions]):
    """See firearrow.client.Extensions. Uses a started Admin."""

    def __init__(self, admin: Admin) -> None:
        self._thread = admin._thread
        self._inner = extensions.Extensions(admin._inner)

    trim_topic = Verb(extensions.Extensions.trim_topic)
    pending_timers = Verb(extensions.Extensions.pending_timers)
    half_messages = Verb(extensions.Extensions.half_messages)
    queue_locks = Verb(extensions.Extensions.queue_locks)
    pop_in_flight = Verb(extensions.Extensions.pop_in_flight)
    lag = Verb(extensions.Extensions.lag)
    topics = Verb(extensions.Extensions.topics)
    groups = Verb(extensions.Extensions.groups)
    refusals = Verb(extensions.Extensions.refusals)
    connections = Verb(extensions.Extensions.connections)
    close_connection = Verb(extensions.Extensions.close_connection)
    status = Verb(extensions.Extensions.status)
    history = Verb(extensions.Extensions.history)
    log = Verb(extensions.Extensions.log)
    machine = Verb(extensions.Extensions.machine)
    set_quota = Verb(extensions.Extensions.set_quota)
    delete_quotas = Verb(extensions.Extensions.delete_quotas)
    quotas = Verb(extensions.Extensions.quotas)
