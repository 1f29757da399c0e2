"""Reads of messages and offsets: single pulls, the pull consumer, look-up by id and by key."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, PullConsumerOptions
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.pull.pull_request import PullClient, PullQuery
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from tests.interop.python.events import emit, of_message, of_queue
from tests.interop.python.parameters import Parameters

GROUP = "interop-puller"


class Readers:
    def __init__(self, name_server: str) -> None:
        self._options = ClientOptions(name_server=name_server, instance_name=GROUP)
        self._admin: Admin | None = None
        self._instance: ClientInstance | None = None

    def operations(self) -> dict[str, Callable[[Parameters], Awaitable[None]]]:
        return {
            "queues": self.queues,
            "pull": self.pull,
            "commit": self.commit,
            "committed": self.committed,
            "search": self.search,
            "view": self.view,
            "query": self.query,
            "readLite": self.read_lite,
        }

    async def admin(self) -> Admin:
        if self._admin is None:
            self._admin = await Admin(client=self._options).start()
        return self._admin

    async def queue(self, parameters: Parameters) -> MessageQueue:
        wanted = parameters.number("queue", 0)
        queues = await (await self.admin()).queues(parameters.text("topic"))
        return next(queue for queue in queues if queue.queue_id == wanted)

    async def queues(self, parameters: Parameters) -> None:
        admin = await self.admin()
        for queue in await admin.queues(parameters.text("topic")):
            emit(
                "queue",
                **of_queue(queue),
                min=await admin.min_offset(queue),
                max=await admin.max_offset(queue),
                earliest=await admin.earliest_ms(queue),
            )

    async def pull(self, parameters: Parameters) -> None:
        """One pull that carries its filter, as a group that is not registered."""
        if self._instance is None:
            self._instance = await ClientInstance.of(self._options)
        queue = await self.queue(parameters)
        sql, tags = parameters.text("sql", "") or None, parameters.text("tags", "") or None
        await self._instance.routes.refresh(queue.topic)
        if sql is not None:
            await self._instance.heartbeats.beat(await self._instance.master(queue.broker_name))
        result = await PullClient(self._instance, GROUP).pull(
            PullQuery(
                queue=queue,
                subscription=Subscription.of(queue.topic, tags, sql),
                post_expression=True,
                offset=parameters.number("offset", 0),
                batch=parameters.number("count", 32),
                batch_bytes=256 * 1024,
                timeout_s=10,
            )
        )
        for message in result.messages:
            emit("message", **of_message(message))
        emit(
            "pulled",
            status=result.status.name,
            next=result.next_offset,
            min=result.min_offset,
            max=result.max_offset,
        )

    async def commit(self, parameters: Parameters) -> None:
        queue = await self.queue(parameters)
        await (await self.admin()).update_offset(GROUP, queue, parameters.number("offset", 0))

    async def committed(self, parameters: Parameters) -> None:
        offset = await (await self.admin()).offset(GROUP, await self.queue(parameters))
        emit("offset", offset=-1 if offset is None else offset)

    async def search(self, parameters: Parameters) -> None:
        when = datetime.fromtimestamp(parameters.number("timestamp", 0) / 1000)
        emit("offset", offset=await (await self.admin()).offset_at(await self.queue(parameters), when))

    async def view(self, parameters: Parameters) -> None:
        admin = await self.admin()
        message = await admin.view_message(parameters.text("topic"), parameters.text("id"))
        emit("message", **of_message(message))

    async def query(self, parameters: Parameters) -> None:
        admin = await self.admin()
        for message in await admin.messages_by_key(parameters.text("topic"), parameters.text("key")):
            emit("message", **of_message(message))

    async def read_lite(self, parameters: Parameters) -> None:
        """Assign all queues by hand, go to the beginning, and poll until `count` messages have arrived."""
        consumer = PullConsumer(
            parameters.text("group"),
            client=ClientOptions(
                name_server=self._options.name_server, instance_name=parameters.text("group")
            ),
            options=PullConsumerOptions(auto_commit=False),
        )
        async with consumer:
            queues = await consumer.fetch_queues(parameters.text("topic"))
            consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            wanted, seen = parameters.number("count", 1), 0
            deadline = time.monotonic() + 30
            while seen < wanted and time.monotonic() < deadline:
                for message in await consumer.poll(timeout_s=1):
                    emit("message", **of_message(message))
                    seen += 1
            await consumer.commit()
