"""Sender: sends batches and single messages to queues of a cluster. At least once: when `wait` returns, they
are stored.

By default each queue has at most one request in flight, which keeps its order. After a request fails, nothing
more is sent to its queue. Unanswered requests are resent unchanged. One thread.
"""

from collections import deque
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import pack
from firearrow.client.base.errors import ClientError, NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.base.errors import SendFailed, TopicNotFound, Unreachable
from firearrow.spark_tools.live.client_link import SharedAdmin
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.send_pipeline import SendPipeline, SendRequest

GROUP = "FIREARROW_SPARK_TOOLS"
"""Producer group that requests name."""
IN_FLIGHT_BYTES = 64 << 20


class PendingSend:
    """One request in flight."""

    def __init__(self, request: SendRequest, delivery: SendPipeline | None) -> None:
        self._request = request
        self._delivery = delivery

    @property
    def done(self) -> bool:
        """Whether it is answered; does not read the connection."""
        return self._request.done

    def wait(self) -> range:
        """Wait, and return the queue offsets of the messages. SendFailed: the broker refused them or cannot
        be reached."""
        while self._delivery is not None and not self._request.done:
            self._delivery.collect()
        if self._request.offsets is None:
            assert self._request.failure is not None
            raise self._request.failure
        return self._request.offsets


class Sender:
    """`with Sender(cluster) as sender`; leaving the block waits for all requests, unless an exception leaves
    it."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout_s: float = 60,
        per_queue: int = 1,
        on_the_way_bytes: int = IN_FLIGHT_BYTES,
    ) -> None:
        """`timeout_s`: how long to retry a broker that does not answer. `per_queue`: requests in flight to
        one queue; over 1 their order is not guaranteed. `on_the_way_bytes`: bytes in flight to all queues;
        sends beyond it wait."""
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._per_queue = per_queue
        self._bytes_max = on_the_way_bytes
        self._bytes = 0
        self._queue_sends: dict[MessageQueue, _QueueSend] = {}
        self._deliveries: dict[str, SendPipeline] = {}
        self._failure: SendFailed | None = None
        self._acquired: SharedAdmin | None = None

    def __enter__(self) -> Self:
        self._acquired = SharedAdmin.acquire(self._cluster)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            for delivery in self._deliveries.values():
                delivery.abandon()
            self._admin.release()

    @property
    def _admin(self) -> SharedAdmin:
        assert self._acquired is not None, "use it in a with block"
        return self._acquired

    def check(self) -> None:
        """Unreachable: the name server does not answer."""
        try:
            self._admin.ask(lambda admin: admin.cluster_info(), self._timeout_s)
        except ClientError as error:
            raise SendFailed(f"{self._cluster}: {error}") from error

    def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues of a topic, sorted. TopicNotFound, Unreachable, SendFailed."""
        try:
            return self._admin.ask(lambda admin: admin.queues(topic, write=True), self._timeout_s)
        except NoRoute:
            raise TopicNotFound(
                f"topic {topic}: {self._cluster} has no writable queue of it; create the topic there first"
            ) from None
        except ClientError as error:
            raise SendFailed(f"topic {topic}: {self._cluster}: {error}") from error

    def create_topic(self, topic: str, queues: int) -> list[str]:
        """At every master; returns the names of the brokers. Unreachable; ClientError: no broker accepted it."""
        return self._admin.ask(lambda admin: admin.create_topic(topic, queues), self._timeout_s)

    def send_batch(
        self, queue: MessageQueue, body: bytes, count: int, *, sys_flag: int = 0, born_ms: int = 0
    ) -> PendingSend:
        """Send the items of a batch. Waits while too many bytes are in flight."""
        ext = {"f": str(sys_flag), "g": str(born_ms), "h": "0", "i": "", "j": "0", "m": "true"}
        return self._send(queue, RequestCode.SEND_BATCH_MESSAGE, ext, body, count)

    def send_one(
        self,
        queue: MessageQueue,
        flag: int,
        body: bytes,
        properties: bytes,
        *,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        born_ms: int = 0,
    ) -> PendingSend:
        """Send one message; the broker acts on its properties. An empty body is compressed, since brokers
        refuse it."""
        if not body:
            sys_flag, body = pack(CompressionKind.ZLIB, 1, body)
        ext = {
            "f": str(sys_flag),
            "g": str(born_ms),
            "h": str(flag),
            "i": properties.decode("utf-8", "replace"),
            "j": str(reconsume_times),
            "m": "false",
        }
        return self._send(queue, RequestCode.SEND_MESSAGE_V2, ext, body, 1)

    def finish(self) -> None:
        """Wait until all requests are answered. SendFailed: the first failure."""
        for delivery in self._deliveries.values():
            while delivery.unanswered:
                delivery.collect()
        if self._failure is not None:
            raise self._failure

    # ---- inside ----

    def _send(
        self, queue: MessageQueue, code: RequestCode, ext: dict[str, str], body: bytes, count: int
    ) -> PendingSend:
        queue_send = self._queue_sends.get(queue) or self._queue_send(queue)
        self._wait_for_capacity(queue_send, len(body))
        fields = queue_send.fields | ext
        request = SendRequest(
            queue_send.queue,
            RemotingCommand.request(code, fields),
            body,
            count,
            partial(self._settled, queue_send),
        )
        if queue_send.failure is not None:
            request.failure = SendFailed(f"not sent, because an earlier request failed: {queue_send.failure}")
            return PendingSend(request, None)
        self._bytes += len(body)
        queue_send.unanswered.append(request)
        queue_send.delivery.send(request)
        return PendingSend(request, queue_send.delivery)

    def _wait_for_capacity(self, queue_send: "_QueueSend", size: int) -> None:
        while len(queue_send.unanswered) >= self._per_queue:
            queue_send.delivery.collect()
        while self._bytes and self._bytes + size > self._bytes_max:
            next(delivery for delivery in self._deliveries.values() if delivery.unanswered).collect()

    def _settled(self, queue_send: "_QueueSend", request: SendRequest) -> None:
        self._bytes -= len(request.body)
        request.body = b""  # free the body; later waits need only the offsets
        queue_send.unanswered.remove(request)
        if request.failure is not None:
            queue_send.failure = queue_send.failure or request.failure
            self._failure = self._failure or request.failure

    def _queue_send(self, queue: MessageQueue) -> "_QueueSend":
        """SendFailed: the broker is unknown."""
        wrapped = replace(queue, topic=self._admin.admin.namespace.wrap(queue.topic))
        try:
            name = self._admin.ask(lambda _: self._holder(wrapped), self._timeout_s)
        except (ClientError, Unreachable) as error:
            raise SendFailed(f"{queue.topic}@{queue.broker_name}:{queue.queue_id}: {error}") from error
        delivery = self._deliveries.get(name)
        if delivery is None:
            delivery = self._deliveries[name] = SendPipeline(
                self._admin, name, wrapped.topic, self._timeout_s
            )
        queue_send = self._queue_sends[queue] = _QueueSend(wrapped, delivery)
        return queue_send

    async def _holder(self, queue: MessageQueue) -> str:
        """The broker that has the queue; for a static topic it is not the queue's broker name."""
        routes = self._admin.instance.routes
        await routes.refresh(queue.topic)
        return routes.broker_name_of(queue)


class _QueueSend:
    """Sends to one queue; stops after a failed request."""

    def __init__(self, queue: MessageQueue, delivery: SendPipeline) -> None:
        self.queue = queue
        self.delivery = delivery
        self.unanswered: deque[SendRequest] = deque()
        self.failure: SendFailed | None = None
        # the template topic `c` is the topic itself, so that brokers never auto-create it
        self.fields = {
            "a": GROUP,
            "b": queue.topic,
            "c": queue.topic,
            "d": "4",
            "e": str(queue.queue_id),
            "k": "false",
            "n": queue.broker_name,
        }
