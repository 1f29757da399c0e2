"""TaskProducer: creates the topics of queues and sends tasks to them, at once or at a time. Event loop only."""

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Self

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NoRoute, TransportError
from firearrow.client.base.message import Message, message_copy
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.base.service_state import Startable, now_ms
from firearrow.client.send.producer import Producer

DUE_MS = "TASK_DUE_MS"
"""The property with the time of a delayed task (ms since 1970)."""
DUE_MS_MAX = 10**15 - 1
"""The year 33658: what is later is a mistake."""
AGAIN_S = 0.5
"""Pause after a send that no broker answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """How queues become topics, and how long tasks belong to a worker."""

    create_topics: bool = True
    """Create the topic of a queue that no broker has; False: that is an error."""
    topic_queues: int = 8
    """Queues of a topic that is created."""
    max_priority: int | None = None
    """Priorities are 0, the default, to this one: topics are created with a queue for each and the type PRIORITY.
    None: priorities are ignored."""
    invisible_s: float = 60
    """How soon another worker gets the tasks of one that died. While a worker lives, it renews this time."""
    max_attempts: int = 16
    """A task that was delivered so often without being acknowledged becomes a dead letter."""
    send_timeout_s: float = 10
    """How long sending is tried while brokers do not answer."""
    timer_max_s: float = 2 * 86400
    """Longest timer. A task that is due later is sent again on the way; brokers allow three days by default."""

    RANGES: ClassVar[dict[str, tuple[float, float]]] = {
        "topic_queues": (1, 65535),
        "max_priority": (1, 255),
        "invisible_s": (1, 3 * 86400),
        "max_attempts": (1, 1 << 31),
        "send_timeout_s": (0.001, 86400),
        "timer_max_s": (1, 365 * 86400),
    }

    def __post_init__(self) -> None:
        for name, (least, most) in self.RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ConfigError(f"{name} must be {least} to {most}, not {value}")


class TaskProducer(Startable):
    """`group`: of producers, which brokers show to operators."""

    def __init__(self, group: str, options: TaskOptions, client: ClientOptions) -> None:
        self._options = options
        self._client = client
        self._producer = Producer(group, options=ProducerOptions(), client=client)
        self._declared: set[str] = set()
        self._declaring = asyncio.Lock()

    async def start(self) -> Self:
        self._bind()
        await self._producer.start()
        return self

    async def close(self) -> None:
        """Tasks that are being sent have ten seconds more."""
        await self._producer.close()

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        task_id: str,
        task_name: str,
        due_ms: int | None = None,
        priority: int | None = None,
    ) -> None:
        """Store a task, which workers get at `due_ms`. Brokers find it by the key `task_id` and the tag `task_name`.

        ConfigError: it is due too late. ClientError: it was not stored, or no broker confirmed it.
        """
        if due_ms is not None and due_ms > DUE_MS_MAX:
            raise ConfigError("a task must be due before the year 33658")
        message = Message(topic, body, tags=task_name or None, keys=task_id.split())
        if due_ms is not None and due_ms > now_ms():
            message.properties[DUE_MS] = str(due_ms)
            self._set_timer(message, due_ms)
        elif self._options.max_priority is not None:
            message.priority = min(max(priority or 0, 0), self._options.max_priority)
        await self._send(message)

    async def send_again(self, task: ReceivedMessage, due_ms: int) -> None:
        """A task whose last timer is over, but which is due later."""
        message = message_copy(task, task.topic)
        self._set_timer(message, due_ms)
        await self._send(message)

    def _set_timer(self, message: Message, due_ms: int) -> None:
        message.deliver_at_ms = min(due_ms, now_ms() + int(self._options.timer_max_s * 1000))

    async def _send(self, message: Message) -> None:
        until_s = self.loop.time() + self._options.send_timeout_s
        while True:
            try:
                await self.declare(message.topic)
                await self._producer.send(message)
            except (TransportError, NoRoute) as error:
                if isinstance(error, NoRoute):
                    self._declared.discard(message.topic)
                if self.loop.time() + AGAIN_S > until_s:
                    raise
                await asyncio.sleep(AGAIN_S)
            else:
                return

    # ---- topics ----

    async def declare(self, topic: str) -> None:
        """Create the topic unless it exists. NoRoute, TransportError: no broker answers; ClientError."""
        if topic in self._declared:
            return
        async with self._declaring:
            if topic not in self._declared:
                async with Admin(client=self._client) as admin:
                    await self._declare(admin, topic)
                self._declared.add(topic)

    async def _declare(self, admin: Admin, topic: str) -> None:
        if await topic_exists(admin, topic):
            return
        if not self._options.create_topics:
            raise ClientError(
                f"topic {topic} does not exist: create it (`firearrow topic create {topic}`) or set create_topics=True"
            )
        most = self._options.max_priority
        try:
            await create_topic(admin, topic, self._options.topic_queues, 0 if most is None else most + 1)
        except TopicNotCreated:
            if not await topic_exists(admin, ProducerOptions().template_topic):  # else a send creates it
                raise


class TopicNotCreated(ClientError):
    """A broker refused to create the topic of a queue."""


async def create_topic(admin: Admin, topic: str, queues: int, priorities: int = 0) -> None:
    """With a queue for each of the `priorities`, if there are any. TopicNotCreated; ClientError."""
    try:
        await admin.create_topic(topic, priorities or queues, message_type="PRIORITY" if priorities else None)
    except BrokerError as error:
        raise TopicNotCreated(f"topic {topic} does not exist, and cannot be created: {error}") from error


async def topic_exists(admin: Admin, topic: str) -> bool:
    try:
        await admin.queues(topic)
    except NoRoute:
        return False
    return True
