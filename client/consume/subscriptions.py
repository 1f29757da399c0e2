"""Subscriptions: which topics a consumer wants, by the names that brokers know, and whose handlers they go to.

A handler outlives its subscription: what was pulled before, and what comes back to be tried again, is still its own.
Never tells anybody: the owner sends heartbeats. Event loop only.
"""

from collections.abc import Callable, Iterator, Mapping

from firearrow.client.base.names import Namespace
from firearrow.client.base.service_state import now_ms
from firearrow.client.consume.listeners import Handler
from firearrow.client.rebalance.subscription import Subscription


class Subscriptions(Mapping[str, Subscription]):
    """Topic, with its namespace → Subscription."""

    def __init__(self, namespace: Namespace, clock_ms: Callable[[], int] = now_ms) -> None:
        self._namespace = namespace
        self._clock_ms = clock_ms
        self._wanted: dict[str, Subscription] = {}
        self._told: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}

    def add(self, topic: str, tags: str | None, sql: str | None, handler: Handler) -> None:
        """`topic` as users know it. ConfigError: tags or sql cannot be used."""
        wrapped = self._namespace.wrap(topic)
        wanted = Subscription.of(wrapped, tags, sql)
        if wrapped in self._told:
            wanted = wanted.renewed(self._told[wrapped].version + 1)
        self._wanted[wrapped] = self._told[wrapped] = wanted
        self._handlers[self._namespace.unwrap(topic)] = handler

    def add_all_of(self, topic: str) -> None:
        """A topic whose messages show the topics they were sent to, as retry topics do."""
        if topic not in self._wanted:
            self._wanted[topic] = self._told[topic] = Subscription.of(topic)

    def add_retries(self, retry: str, topic: str) -> None:
        """POP's retry topic of `topic`, whose messages keep its name; both as brokers know them."""
        self.add_all_of(retry)
        handler = self._handlers.get(self._namespace.unwrap(topic))
        if handler is not None:
            self._handlers[self._namespace.unwrap(retry)] = handler

    def drop(self, topic: str) -> bool:
        """Whether it was there. `topic` as users or as brokers know it."""
        return self._wanted.pop(self._namespace.wrap(topic), None) is not None

    def renew(self, topic: str) -> None:
        """Brokers are told a newer version of it from now on. `topic` as brokers know it.

        Pulls keep the version that it was wanted with, unlike Java's: brokers refuse only those newer than what they
        were told, and a pull may overtake the heartbeat that tells it.
        """
        if topic in self._wanted:
            self._told[topic] = self._told[topic].renewed(self._clock_ms())

    def for_heartbeat(self) -> list[Subscription]:
        """For heartbeats."""
        return [self._told[topic] for topic in self._wanted]

    def handler_of(self, topic: str) -> Handler | None:
        """`topic` as users know it."""
        return self._handlers.get(topic)

    @property
    def handled(self) -> bool:
        """There is a handler at all."""
        return bool(self._handlers)

    def __getitem__(self, topic: str) -> Subscription:
        return self._wanted[topic]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._wanted))

    def __len__(self) -> int:
        return len(self._wanted)
