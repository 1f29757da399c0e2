"""Channel: kombu's virtual channel over a Session. Called by the threads of kombu and Celery."""

import itertools
import logging
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.uuid import uuid

from firearrow.client.base.errors import NotRunning, TransportError
from firearrow.client.integrations.kombu.envelope import RawMessage
from firearrow.client.integrations.kombu.feeds import QueueFeed
from firearrow.client.integrations.kombu.leases import Lease, Window
from firearrow.client.integrations.kombu.revoked import revoked_tasks
from firearrow.client.integrations.kombu.session import Session
from firearrow.client.integrations.kombu.temporary_queues import TemporaryQueue
from firearrow.client.integrations.topic_names import topic_of

log = logging.getLogger("firearrow.client")

PRIORITIES_MAX = 256


class Delivery:
    """One message that kombu has. `lease` of a durable queue, `raw` and `queue` of a temporary one."""

    __slots__ = ("lease", "queue", "raw")

    def __init__(
        self, raw: RawMessage, lease: Lease | None = None, queue: TemporaryQueue | None = None
    ) -> None:
        self.raw = raw
        self.lease = lease
        self.queue = queue


class Subscriber:
    """A consumer of kombu. `source` fills the transport's inbox with what is for it."""

    __slots__ = ("callback", "no_ack", "source")

    def __init__(self, no_ack: bool, callback: Callable[[Any], Any]) -> None:
        self.no_ack = no_ack
        self.callback = callback
        self.source: QueueFeed | TemporaryQueue | None = None


class QoS(virtual.QoS):
    """The deliveries that wait for an acknowledgement. Any thread acknowledges."""

    def append(self, message: Any, delivery_tag: str) -> None:
        self._delivered[delivery_tag] = message

    def ack(self, delivery_tag: str) -> None:
        if self._delivered.pop(delivery_tag, None) is not None:
            self.channel.settle(delivery_tag, Session.ack)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Without `requeue` the message becomes a dead letter."""
        if self._delivered.pop(delivery_tag, None) is not None:
            self.channel.settle(delivery_tag, Session.give_back if requeue else Session.reject)

    def restore_unacked(self) -> list[Any]:
        for delivery_tag in list(self._delivered):
            self.reject(delivery_tag, requeue=True)
        return []


class Channel(virtual.Channel):
    QoS = QoS

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._session: Session = connection.session
        self._window = Window()
        self._subscribers: dict[str, Subscriber] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._tags = itertools.count(1)
        self._has_settled = False

    @property
    def session(self) -> Session:
        """In a forked child another one: consumers and messages stay with the parent."""
        if not self._session.is_here:
            self._forget_parent()
            self._session = self.connection.session
        return self._session

    def _forget_parent(self) -> None:
        self._subscribers.clear()
        self._consumers.clear()
        self._tag_to_queue.clear()
        self._deliveries.clear()
        self.qos._delivered.clear()
        self._window = Window()

    # ---- queues and exchanges ----

    def prepare_queue_arguments(self, arguments: Any, **kwargs: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments or {}, **kwargs)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """An exclusive queue, and one that is deleted with its consumer, is temporary: see TemporaryQueue."""
        name = queue or f"amq.gen-{uuid()}"
        if passive:
            if not self._has_queue(name):
                raise ChannelError(f"NOT_FOUND - no queue {name!r}", (50, 10), "Channel.queue_declare", "404")
        elif self.session.temporary(name) is None:
            most = int((arguments or {}).get("x-max-priority") or 0)
            priorities = min(most + 1, PRIORITIES_MAX) if most > 0 else 0
            if exclusive or auto_delete:
                self.session.run(partial(self.session.declare_temporary, name, priorities))
            else:
                self.session.run(partial(self.session.declare, name, priorities))
        return queue_declare_ok_t(name, self._size(name) if passive else self._known_size(name), 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **kwargs: Any,
    ) -> None:
        name = exchange or "amq.direct"
        is_new = not self.state.has_binding(queue, name, routing_key)
        super().queue_bind(queue, name, routing_key, arguments, **kwargs)
        temporary = self.session.temporary(queue)
        if temporary is None or not is_new:
            return
        kind = self.typeof(name)
        key = None if kind.type == "fanout" else routing_key
        pattern = kind.prepare_bind(queue, name, routing_key, arguments)[1]
        self.session.run(partial(self.session.bind_temporary, temporary, name, key, pattern))

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any
    ) -> int | None:
        """`if_unused` looks at the consumers of this process only."""
        if not self._has_queue(queue) or (if_unused and self.connection.consumers_of(queue)):
            return 0
        size = self._size(queue)
        if if_empty and size:
            return 0
        temporary = self.session.temporary(queue)
        delete = self.session.delete if temporary is None else self.session.delete_temporary
        self.session.run(partial(delete, queue))
        return size

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        for _, _, queue in self.state.exchanges.pop(exchange, {}).get("table", ()):
            for binding in list(self.state.queue_bindings(queue)):
                if binding.exchange == exchange:
                    self.state.binding_delete(queue, exchange, binding.routing_key)

    def _purge(self, queue: str) -> int:
        temporary = self.session.temporary(queue)
        return (
            self.session.run(partial(self.session.purge, queue)) if temporary is None else temporary.purge()
        )

    def _size(self, queue: str) -> int:
        temporary = self.session.temporary(queue)
        return self.session.run(partial(self.session.size, queue)) if temporary is None else len(temporary)

    def _known_size(self, queue: str) -> int:
        """0 while name servers are away: a queue that is there is declared nevertheless."""
        try:
            return self._size(queue)
        except TransportError as error:
            log.debug("queue %s: its messages cannot be counted: %s", queue, error)
            return 0

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.session.temporary(queue) is not None or self.session.run(
            partial(self.session.exists, topic_of(queue))
        )

    # ---- sending ----

    def encode_body(self, body: Any, encoding: str | None = None) -> Any:
        """Text goes as it is, so that people and other programs can read it."""
        if isinstance(body, str):
            return body, "utf-8"
        return super().encode_body(body, encoding)

    def basic_publish(self, message: RawMessage, exchange: str, routing_key: str, **kwargs: Any) -> None:
        self._inplace_augment_message(message, exchange, routing_key)
        key = routing_key or ""
        queues = self._durable_queues(exchange, key)
        work = partial(self.session.publish, exchange or "", key, message, queues)
        if not self.session.run(work) and (not exchange or self.typeof(exchange).type == "direct"):
            warnings.warn(
                virtual.UndeliverableWarning(
                    f"no queue is bound to exchange {exchange!r} with routing key {key!r}: the message is dropped; "
                    "declare the queue before you send to it"
                ),
                stacklevel=2,
            )
        if self.session.settings.recall_revoked and (tasks := revoked_tasks(exchange, message)):
            self.session.run(partial(self.session.recall, tasks))

    def _durable_queues(self, exchange: str, routing_key: str) -> list[str]:
        """Those that this process knows to be bound; of the default exchange the queue of that name."""
        if not exchange:
            return [routing_key] if self.session.temporary(routing_key) is None else []
        known = self.state.exchanges.get(exchange)
        if known is None:
            return []
        found = self.typeof(exchange).lookup(known["table"], exchange, routing_key, None)
        return sorted(queue for queue in found if queue and self.session.temporary(queue) is None)

    # ---- receiving ----

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[Any], Any],
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        subscriber = Subscriber(no_ack, callback)
        self._subscribers[consumer_tag] = subscriber
        self._consumers.add(consumer_tag)
        self._tag_to_queue[consumer_tag] = queue
        inbox = self.connection.inbox
        temporary = self.session.temporary(queue)
        if temporary is not None:
            subscriber.source = temporary
            temporary.listen(consumer_tag, partial(inbox.put, (self, consumer_tag, None)))
            return
        deliver = partial(self._into, inbox, consumer_tag)
        subscriber.source = self.session.run(partial(self.session.feed, queue, self._window, deliver))

    def _into(self, inbox: Any, consumer_tag: str, lease: Lease) -> None:
        inbox.put((self, consumer_tag, lease))

    def basic_cancel(self, consumer_tag: str) -> None:
        """What kombu has not got yet is given back; of a temporary queue it is kept."""
        subscriber = self._subscribers.pop(consumer_tag, None)
        if subscriber is None:
            return
        self._consumers.discard(consumer_tag)
        self._tag_to_queue.pop(consumer_tag, None)
        source = subscriber.source
        if isinstance(source, TemporaryQueue):
            source.listen_no_more(consumer_tag)
            self.session.post(partial(self.session.abandoned, source))
        elif source is not None:
            self.session.run(source.stop)
        for lease in self.connection.inbox.drop(self, consumer_tag):
            self._settle(lease, Session.give_back)

    def deliver(self, consumer_tag: str, lease: Lease | None) -> bool:
        """Pass an entry of the inbox to its callback. False: there was nothing to deliver."""
        subscriber = self._subscribers.get(consumer_tag)
        if subscriber is None:
            if lease is not None:
                self._settle(lease, Session.give_back)
            return False
        delivery = self._taken(subscriber, lease)
        if delivery is None:
            return False
        message = self._message(delivery, consumer_tag)
        if message is None:
            return False
        self._hand_over(message, subscriber.no_ack)
        subscriber.callback(message)
        return True

    @staticmethod
    def _taken(subscriber: Subscriber, lease: Lease | None) -> Delivery | None:
        if lease is not None:
            return Delivery(lease.raw, lease)
        queue = subscriber.source
        raw = queue.take() if isinstance(queue, TemporaryQueue) else None
        return None if raw is None else Delivery(raw, queue=queue)  # type: ignore[arg-type]

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        temporary = self.session.temporary(queue)
        if temporary is not None:
            raw = temporary.take()
            delivery = None if raw is None else Delivery(raw, queue=temporary)
        else:
            lease = self.session.run(partial(self.session.pop, queue))
            delivery = None if lease is None else Delivery(lease.raw, lease)
        message = None if delivery is None else self._message(delivery, None)
        if message is not None:
            self._hand_over(message, no_ack)
        return message

    def _message(self, delivery: Delivery, consumer_tag: str | None) -> Any | None:
        """None: its body cannot be decoded; it becomes a dead letter."""
        tag = f"{self.channel_id}-{next(self._tags)}"
        properties = {**delivery.raw["properties"], "delivery_tag": tag}
        info = dict(properties["delivery_info"])
        if consumer_tag is not None:
            info["consumer_tag"] = consumer_tag
        if delivery.lease is not None:
            info["redelivered"] = delivery.lease.message.reconsume_times > 0
        properties["delivery_info"] = info
        self._deliveries[tag] = delivery
        try:
            return self.Message({**delivery.raw, "properties": properties}, channel=self)
        except Exception as error:  # what a hostile sender put there
            log.info("the body of a message cannot be decoded: %r", error)
            self.settle(tag, Session.reject)
            return None

    def _hand_over(self, message: Any, no_ack: bool) -> None:
        if no_ack:
            self.settle(message.delivery_tag, Session.ack)
        else:
            self.qos.append(message, message.delivery_tag)

    def settle(self, delivery_tag: str, how: Callable[[Session, Lease], None]) -> None:
        """Any thread."""
        delivery = self._deliveries.pop(delivery_tag, None)
        if delivery is None:
            return
        if delivery.lease is None:
            if how is Session.give_back and delivery.queue is not None:
                delivery.queue.put_back(delivery.raw)
            return
        self._settle(delivery.lease, how)

    def _settle(self, lease: Lease, how: Callable[[Session, Lease], None]) -> None:
        self._has_settled = True
        self.session.post(partial(how, self.session, lease))

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        self.qos.prefetch_count = prefetch_count
        self.session.post(partial(self._window.resize, prefetch_count))

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        """The transport delivers for all channels."""
        raise Empty

    def _restore(self, message: Any) -> None:
        self.qos.reject(message.delivery_tag, requeue=True)

    def close(self) -> None:
        """Cancel consumers, return what is not acknowledged, and wait until brokers have the acknowledgements."""
        if self.closed:
            return
        session = self._session
        if not session.is_here:
            self._forget_parent()
        super().close()
        if self._has_settled:
            try:
                session.run(session.settled)
            except NotRunning:
                log.info("the client ended before all acknowledgements were sent: those messages come again")
