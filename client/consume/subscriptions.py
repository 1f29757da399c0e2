"""Subscriptions: the topics of a consumer, named as brokers know them, and their handlers.

A handler outlives its subscription: it still gets messages that were pulled before, and retries. The owner
sends the heartbeats. Event loop only.
"""

from collections.abc import Callable, Iterator, Mapping

from firearrow.client.base.names import Namespace
from firearrow.client.base.service_state import now_ms
from firearrow.client.consume.listeners import Handler
from firearrow.client.rebalance.subscription import Subscription


class Subscriptions(Mapping[str, Subscription]):
    """Topic with its namespace → Subscription."""

    def __init__(self, namespace: Namespace, clock_ms: Callable[[], int] = now_ms) -> None:
        self._namespace = namespace
        self._clock_ms = clock_ms
        self._current: dict[str, Subscription] = {}
        self._announced: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}

    def add(self, topic: str, tags: str | None, sql: str | None, handler: Handler) -> None:
        """`topic` as users know it. ConfigError: tags or sql are invalid."""
        wrapped = self._namespace.wrap(topic)
        subscription = Subscription.of(wrapped, tags, sql)
        if wrapped in self._announced:
            subscription = subscription.renewed(self._announced[wrapped].version + 1)
        self._current[wrapped] = self._announced[wrapped] = subscription
        self._handlers[self._namespace.unwrap(topic)] = handler

    def add_all_of(self, topic: str) -> None:
        """Subscribe to all messages of a retry topic, which have their original topics."""
        if topic not in self._current:
            self._current[topic] = self._announced[topic] = Subscription.of(topic)

    def add_retries(self, retry: str, topic: str) -> None:
        """Subscribe to POP's retry topic of `topic`, whose messages keep its name (as brokers know both)."""
        self.add_all_of(retry)
        handler = self._handlers.get(self._namespace.unwrap(topic))
        if handler is not None:
            self._handlers[self._namespace.unwrap(retry)] = handler

    def drop(self, topic: str) -> bool:
        """Returns whether it was subscribed. `topic` as users or as brokers know it."""
        return self._current.pop(self._namespace.wrap(topic), None) is not None

    def renew(self, topic: str) -> None:
        """Later heartbeats report a newer version. `topic` as brokers know it.

        Unlike in Java, pulls keep the version of `add`: brokers refuse only pulls that are newer than the
        last heartbeat, and a pull may overtake the heartbeat with the new version.
        """
        if topic in self._current:
            self._announced[topic] = self._announced[topic].renewed(self._clock_ms())

    def for_heartbeat(self) -> list[Subscription]:
        """The subscriptions with the versions that heartbeats report."""
        return [self._announced[topic] for topic in self._current]

    def handler_of(self, topic: str) -> Handler | None:
        """`topic` as users know it."""
        return self._handlers.get(topic)

    @property
    def handlers(self) -> list[Handler]:
        return list(self._handlers.values())

    def __getitem__(self, topic: str) -> Subscription:
        return self._current[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._current))

    def __len__(self) -> int:
        return len(self._current)
