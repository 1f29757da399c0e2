"""LiteEvents: which lite topics may have messages for a client, and the pops that wait for one.

An event is an LMQ that has got a message, or whose messages have become visible again. It goes to all clients that
subscribe to the lite topic, and wakes one pop of each group: the first that pops blocks the queue for the others, and
the end of that is the next event. So no event depends on one client. A client has at most one event of each of its lite
topics. Apache gives an event to one client of a group, and has to find and dispatch it again when that one is silent:
LiteEventDispatcher, PopLiteLongPollingService. Loop thread.
"""

from collections import deque
from collections.abc import Iterable

from firearrow._native.protocol import name_rules
from firearrow.broker.lite.subscriptions import LiteClient, LiteSubscriptions
from firearrow.broker.pop.long_polling import ANY_QUEUE, HoldKey, PopHoldService

ATTEMPTS_MAX = 100_000
"""Clients whose last attempt is known."""


def hold_key(client: LiteClient) -> HoldKey:
    """What a pop of the client waits for. No topic has such a name."""
    return f"{name_rules.LITE_PREFIX}{client.client_id}", client.group, ANY_QUEUE


class LiteEvents:
    def __init__(self, subscriptions: LiteSubscriptions, holds: PopHoldService) -> None:
        self._subscriptions = subscriptions
        self._holds = holds
        self._pending: dict[LiteClient, dict[str, None]] = {}
        self._attempts: dict[LiteClient, tuple[str, list[str]]] = {}

    def __len__(self) -> int:
        """The clients with events."""
        return len(self._pending)

    def arrived(self, queues: Iterable[tuple[str, int]]) -> None:
        """Consumers can now read new messages of these queues."""
        for queue, _ in queues:
            if queue.startswith(name_rules.LITE_PREFIX):
                self.offer(queue)

    def offer(self, queue: str, group: str | None = None) -> None:
        """The queue may have messages for the clients of one group, or of all."""
        woken: set[str] = set()
        for client in self._subscriptions.clients(queue, group):
            self._pending.setdefault(client, {})[queue] = None
            if client.group not in woken and self._holds.waiting(hold_key(client)):
                woken.add(client.group)
                self._holds.retry_held_soon(hold_key(client))

    def offer_to(self, client: LiteClient, queues: Iterable[str]) -> None:
        """The queues may have messages for the client, which subscribes to them."""
        pending = self._pending.setdefault(client, {})
        pending.update(dict.fromkeys(queues))
        if pending:
            self._holds.retry_held_soon(hold_key(client))
        else:
            del self._pending[client]

    def take(self, client: LiteClient) -> str | None:
        """The client's oldest event; None: it has none."""
        pending = self._pending.get(client)
        if not pending:
            return None
        queue = next(iter(pending))
        del pending[queue]
        if not pending:
            del self._pending[client]
        return queue

    def begin_attempt(self, client: LiteClient, attempt: str | None) -> None:
        """A client that did not get the answer of an attempt repeats it, and gets the same messages again."""
        last, queues = self._attempts.get(client, ("", []))
        if attempt is None or attempt != last:
            self._attempts.pop(client, None)
            return
        known = self._subscriptions.get(client)
        if known is not None:
            pending = dict.fromkeys(queue for queue in queues if queue in known.queues)
            self._pending[client] = pending | self._pending.get(client, {})
            if not self._pending[client]:
                del self._pending[client]

    def end_attempt(self, client: LiteClient, attempt: str | None, queues: list[str]) -> None:
        """The attempt has got messages of these queues."""
        if attempt is not None and (client in self._attempts or len(self._attempts) < ATTEMPTS_MAX):
            self._attempts[client] = attempt, queues

    def forget(self, client: LiteClient, queues: Iterable[str]) -> None:
        """The client has unsubscribed from them; others of its group get the events."""
        pending = self._pending.get(client, {})
        left = deque(queue for queue in queues if queue in pending)
        for queue in left:
            del pending[queue]
        if not pending:
            self._pending.pop(client, None)
        for queue in left:
            self.offer(queue, client.group)

    def drop(self, client: LiteClient) -> None:
        """The client has ended; others of its group get its events."""
        self._attempts.pop(client, None)
        for queue in self._pending.pop(client, {}):
            self.offer(queue, client.group)
