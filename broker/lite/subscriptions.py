"""LiteSubscriptions: which client of which group subscribes to which lite topic. Apache: LiteSubscriptionRegistry.

In memory only: clients repeat their subscriptions every few seconds, and those that do not are forgotten. Loop thread.
"""

import sys
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from firearrow.broker.base.clock import Clock


class LiteClient(NamedTuple):
    """A client id is one of a group: who has no right on the group cannot name the client."""

    group: str
    client_id: str


Subscribers = LiteClient | dict[LiteClient, None]
"""Of one lite topic: of a million most have one only, which needs no table."""


@dataclass(slots=True)
class LiteSubscription:
    """`queues`: the LMQs of the lite topics, in the order in which they were subscribed."""

    topic: str
    updated_ms: int
    queues: dict[str, None] = field(default_factory=dict)


class LiteSubscriptions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[LiteClient, LiteSubscription] = {}
        self._by_queue: dict[str, Subscribers] = {}
        self.count = 0
        """Of all clients: one lite topic of two clients counts twice."""

    @property
    def queues(self) -> Collection[str]:
        """The LMQs with a subscriber; a live view."""
        return self._by_queue

    def get(self, client: LiteClient) -> LiteSubscription | None:
        return self._clients.get(client)

    def clients(self, queue: str, group: str | None = None) -> list[LiteClient]:
        """Who subscribes to the lite topic, of one group or of all."""
        found = self._by_queue.get(queue, {})
        return [each for each in _set_of(found) if group is None or each.group == group]

    def clients_of(self, group: str) -> list[LiteClient]:
        return [client for client in self._clients if client.group == group]

    def touch(self, client: LiteClient, topic: str) -> LiteSubscription:
        """The client's subscription, made if there is none; it counts as new."""
        found = self._clients.get(client)
        if found is None:
            found = self._clients[client] = LiteSubscription(topic, 0)
        found.topic, found.updated_ms = topic, self._clock.now_ms()
        return found

    def add(self, client: LiteClient, topic: str, queue: str) -> bool:
        """Whether it is new."""
        known = self.touch(client, topic).queues
        if queue in known:
            return False
        queue = sys.intern(queue)  # the store has the same one
        known[queue] = None
        others = self._by_queue.get(queue)
        if others is None:
            self._by_queue[queue] = client
        elif isinstance(others, LiteClient):
            self._by_queue[queue] = {others: None, client: None}
        else:
            others[client] = None
        self.count += 1
        return True

    def remove(self, client: LiteClient, queues: Iterable[str]) -> list[str]:
        """Returns those that the client had subscribed to."""
        known = self._clients.get(client)
        removed = [] if known is None else [queue for queue in queues if queue in known.queues]
        for queue in removed:
            del known.queues[queue]  # type: ignore[union-attr]
            self._forget(client, queue)
        if known is not None and not known.queues:
            del self._clients[client]
        return removed

    def drop(self, client: LiteClient) -> None:
        """The client has ended."""
        known = self._clients.pop(client, None)
        if known is not None:
            for queue in known.queues:
                self._forget(client, queue)

    def expired(self, older_than_ms: int, groups: Container[str]) -> list[LiteClient]:
        """The clients that have not repeated their subscription since, and those of other groups than these."""
        return [
            client
            for client, known in self._clients.items()
            if known.updated_ms < older_than_ms or client.group not in groups
        ]

    def _forget(self, client: LiteClient, queue: str) -> None:
        clients = self._by_queue[queue]
        self.count -= 1
        if isinstance(clients, LiteClient) or len(clients) == 1:
            del self._by_queue[queue]
        else:
            del clients[client]


def _set_of(clients: Subscribers) -> dict[LiteClient, None]:
    return {clients: None} if isinstance(clients, LiteClient) else clients
