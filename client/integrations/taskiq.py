"""RocketMQBroker for taskiq: tasks in topics, delays as timers of the broker, single acknowledgement by POP.

It belongs to the event loop in which `startup` is awaited; each process of `taskiq worker` starts its own.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NotRunning
from firearrow.client.base.options import ClientOptions, client_options
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.integrations.task_consumer import TaskConsumer
from firearrow.client.integrations.task_producer import DUE_MS_MAX, TaskOptions, TaskProducer
from firearrow.client.integrations.topic_names import topic_of

try:
    from pydantic import PrivateAttr
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "taskiq is missing: pip install 'firearrow[taskiq]'", name=error.name
    ) from error

__all__ = ["RocketMQBroker", "TaskOptions"]


def __dir__() -> list[str]:
    return sorted(__all__)


log = logging.getLogger("firearrow.client")

AGAIN_S = 1.0
"""Pause after tasks could not be received."""
PERMANENT = (16, 26)
"""Response codes NO_PERMISSION and SUBSCRIPTION_GROUP_NOT_EXIST: waiting does not help."""


class Delivery(AckableMessage):
    """taskiq asks for `ack` in the asyncio task that handles the message, and once that has ended without a call, for
    example since a middleware raised, it never calls it: then the message comes again, as with taskiq's other brokers.
    """

    _forget: Callable[[object], None] = PrivateAttr()

    def __init__(self, consumer: TaskConsumer, task: ReceivedMessage) -> None:
        super().__init__(data=task.body, ack=partial(consumer.ack, task))
        self._forget = lambda _: consumer.forget(task)

    def __getattribute__(self, name: str) -> Any:
        if name == "ack" and (handling := asyncio.current_task()) is not None:
            handling.add_done_callback(self._forget)
        return super().__getattribute__(name)


class RocketMQBroker(AsyncBroker):
    """`RocketMQBroker("host:9876")`. Labels of a task: `delay` in seconds, `queue_name`, `priority`.

    `queue_name` is where tasks without that label go. Workers listen to it and to `additional_queues`, as members of
    the group `consumer_group_name`. `prefetch`: most tasks that a worker takes at a time; those that it has no slot
    for wait in it.
    """

    def __init__(
        self,
        name_server: str | None = None,
        *,
        queue_name: str = "taskiq",
        additional_queues: Sequence[str] = (),
        consumer_group_name: str = "taskiq",
        prefetch: int = 10,
        options: TaskOptions | None = None,
        client: ClientOptions | None = None,
    ) -> None:
        """ConfigError."""
        super().__init__()
        if not 1 <= prefetch <= 32:
            raise ConfigError(f"prefetch must be 1 to 32, not {prefetch}")
        self.queue_name = queue_name
        self._queue_names = (queue_name, *additional_queues)
        self._topics = tuple(dict.fromkeys(map(topic_of, self._queue_names)))
        self._group = topic_of(consumer_group_name)
        self._prefetch = prefetch
        self._options = options or TaskOptions()
        self._client = client_options(client, name_server)
        self._producer: TaskProducer | None = None
        self._consumer: TaskConsumer | None = None

    async def startup(self) -> None:
        """Connect; then handlers of the startup may send tasks. A worker needs its topics."""
        if self._producer is not None:
            raise NotRunning("the broker was started already: await shutdown first")
        self._producer = TaskProducer(self._group, self._options, self._client)
        try:
            await self._producer.start()
            if self.is_worker_process:
                await self._started_consumer()
            await super().startup()
        except BaseException:
            await self._close()
            raise

    async def shutdown(self) -> None:
        """Tasks that wait in this worker, or still run, go to other workers."""
        try:
            await super().shutdown()
        finally:
            await self._close()

    async def kick(self, message: BrokerMessage) -> None:
        """NotRunning; ConfigError: a label has no valid value; ClientError: the task was not stored."""
        labels = message.labels
        delay_s, priority = _number(labels, "delay"), _number(labels, "priority")
        await self._running_producer().send(
            topic_of(_text(labels, "queue_name") or self.queue_name),
            message.message,
            task_id=message.task_id,
            task_name=message.task_name,
            due_ms=None if delay_s is None else now_ms() + math.ceil(min(delay_s, DUE_MS_MAX) * 1000),
            priority=None if priority is None else int(priority),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks as they come. A broker that does not answer is asked again; ClientError: it refuses this user."""
        consumer = await self._started_consumer()
        failing = StateLog(
            log, "tasks of %s are received again, after %d failures", consumer.loop.time, quiet_s=FAILING_S
        )
        tasks: list[ReceivedMessage] = []
        try:
            while True:
                try:
                    tasks = await consumer.receive(self._prefetch)
                    failing.is_absent(self.queue_name)
                except ClientError as error:
                    if isinstance(error, BrokerError) and error.code in PERMANENT:
                        raise
                    failing.is_there(
                        self.queue_name, "tasks of %s cannot be received: %s", self.queue_name, error
                    )
                    await asyncio.sleep(AGAIN_S)
                    continue
                while tasks:
                    task = tasks.pop(0)
                    yield Delivery(consumer, task)
        finally:
            await consumer.release(tasks)
            await consumer.release_waiting()

    async def _started_consumer(self) -> TaskConsumer:
        if self._consumer is None:
            producer = self._running_producer()
            consumer = TaskConsumer(self._group, self._topics, producer, self._options, self._client)
            self._consumer = await consumer.start()
        return self._consumer

    def _running_producer(self) -> TaskProducer:
        if self._producer is None:
            raise NotRunning("the broker is not started: `await broker.startup()` first")
        return self._producer

    async def _close(self) -> None:
        consumer, self._consumer = self._consumer, None
        producer, self._producer = self._producer, None
        if consumer is not None:
            await consumer.close()
        if producer is not None:
            await producer.close()


def _text(labels: dict[str, Any], name: str) -> str | None:
    """None: there is no such label, or it was set to None, which taskiq sends as a text."""
    value = labels.get(name)
    return None if value is None or str(value) == "None" else str(value)


def _number(labels: dict[str, Any], name: str) -> float | None:
    """ConfigError: it is not a number."""
    text = _text(labels, name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"the label {name} must be a number, not {text!r:.40}")
    return number
