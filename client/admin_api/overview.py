"""Overview: how all topics and groups of a cluster are, in a few requests to FireArrow's brokers. Apache's, older ones,
and users without the right to list everything are asked for each topic and group.

Names are the user's. Nothing is cached. Loop thread.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api import records
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.listings import ListedGroup, listed_groups, listed_topics
from firearrow.client.admin_api.records import ConsumerConnections, ConsumerLag, TopicConfig, read
from firearrow.client.admin_api.requests import of_each
from firearrow.client.base.errors import BrokerError, NoRoute, OnlyFireArrow, TransportError
from firearrow.client.base.names import RETRY
from firearrow.client.base.service_state import Uncopied

T = TypeVar("T")
BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class TopicTotals:
    """Of all brokers. `end`: the ends of its queues, added up. `last_ms`: of its last message; 0: there is none."""

    end: int = 0
    messages: int = 0
    last_ms: int = 0

    def add(self, queues: Iterable[tuple[int, int, int]]) -> None:
        """Add queues: first offset, end, time of the last message."""
        for first, end, last_ms in queues:
            self.end += end
            self.messages += max(end - first, 0)
            self.last_ms = max(self.last_ms, last_ms)


@dataclass(slots=True)
class GroupTotals:
    """Of all brokers. `consumed`: its offsets, added up. `lag`: None, if no broker knows it. `behind_ms`: the age of
    the oldest message that it has not read; at Apache's brokers, of the last one that it has read. None: it has read
    all, or that is not known."""

    members: int = 0
    consume_type: str | None = None
    model: str | None = None
    consumed: int = 0
    lag: int | None = None
    behind_ms: int | None = None

    def add(self, consumed: int, lag: int, behind_ms: int | None) -> None:
        self.consumed += consumed
        self.lag = (self.lag or 0) + lag
        if behind_ms is not None:
            self.behind_ms = max(self.behind_ms or 0, behind_ms)


class Overview(Uncopied):
    """All methods: BrokerError, ClientError, TransportError (no broker can be reached). `faults`: brokers that are left
    out, because they cannot be reached."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.faults: dict[str, TransportError] = {}

    async def _of_masters(self, ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """Broker → the answer of `ask(address)`."""
        masters, found = await self._admin.calls.masters(), dict[str, T]()
        for broker, address in masters.items():
            try:
                found[broker] = await ask(address)
            except TransportError as error:
                self.faults[broker] = error
                if len(self.faults) == len(masters):
                    raise
        return found

    def _own(self, listed: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        """Those of the namespace, by the user's names."""
        space = self._admin.namespace
        return ((space.unwrap(name), each) for name, each in listed.items() if space.has(name))

    # ---- topics ----

    async def topics(self) -> dict[str, TopicTotals]:
        """Also system topics and the topics of groups."""
        found: dict[str, TopicTotals] = {}
        for listed in (await self._of_masters(self._topics_at)).values():
            for name, queues in self._own(listed):
                found.setdefault(name, TopicTotals()).add(queues)
        return found

    async def _topics_at(self, address: str) -> dict[str, list[tuple[int, int, int]]]:
        calls = self._admin.calls
        try:
            listed = await listed_topics(calls, address)
        except (OnlyFireArrow, BrokerError):
            pass
        else:
            return {
                name: [(queue.min_offset, queue.max_offset, queue.last_ms) for queue in topic.queues]
                for name, topic in listed.items()
            }
        names = list(await self._configs_at(address))

        async def ask(name: str) -> list[tuple[int, int, int]]:
            """Nothing, if it was deleted meanwhile."""
            try:
                answer = await calls.ask(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": name})
            except (BrokerError, NoRoute):
                return []
            stats = read(answer.body, records.topic_stats).values()
            return [(each.min_offset, each.max_offset, each.last_ms) for each in stats]

        return dict(zip(names, await of_each(names, ask), strict=True))

    async def topic_configs(self) -> dict[str, dict[str, TopicConfig]]:
        """Topic → its configuration by the name of the broker."""
        found: dict[str, dict[str, TopicConfig]] = {}
        for broker, configs in (await self._of_masters(self._configs_at)).items():
            for topic, config in self._own(configs):
                own = config if topic == config.topic else replace(config, topic=topic)
                found.setdefault(topic, {})[broker] = own
        return found

    async def _configs_at(self, address: str) -> dict[str, TopicConfig]:
        answer = await self._admin.calls.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return read(answer.body, records.topic_configs)

    # ---- groups ----

    async def groups(self, names: Iterable[str]) -> dict[str, GroupTotals]:
        """Of these groups; those that no broker knows have no members and no lag."""
        found = {name: GroupTotals() for name in names}
        members: dict[str, set[str]] = {}

        async def add(address: str) -> None:
            try:
                listed = await listed_groups(self._admin.calls, address)
            except (OnlyFireArrow, BrokerError):
                await self._add_each(address, found, members)
                return
            for name, group in self._own(listed):
                totals = found.get(name)
                if totals is not None:
                    _add_listed(totals, group)

        await self._of_masters(add)
        for name, ids in members.items():
            found[name].members = max(found[name].members, len(ids))
        return found

    async def _add_each(
        self, address: str, found: Mapping[str, GroupTotals], members: dict[str, set[str]]
    ) -> None:
        async def ask(name: str) -> None:
            connected = await self._connected(address, name)
            if connected is not None:
                members.setdefault(name, set()).update(each.client_id for each in connected.connections)
                found[name].consume_type, found[name].model = connected.consume_type, connected.model
            for lag in await self._lags(address, name, connected):
                consumed = sum(queue.consumer_offset for queue in lag.queues.values())
                found[name].add(consumed, lag.messages, behind_ms(lag, time.time_ns() // 1_000_000))

        await of_each(list(found), ask)

    async def _connected(self, address: str, group: str) -> ConsumerConnections | None:
        """None: it has no members there."""
        ext = {"consumerGroup": self._admin.namespace.wrap(group)}
        try:
            answer = await self._admin.calls.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, ext)
        except BrokerError:
            return None
        return read(answer.body, records.consumer_connections)

    async def _lags(
        self, address: str, group: str, connected: ConsumerConnections | None
    ) -> list[ConsumerLag]:
        """In the topics with an offset of the group, and in the others to which its members subscribe. None, if its
        members keep their offsets themselves."""
        if connected is not None and connected.model == BROADCASTING:
            return []
        found = [await self._lag(address, group, {})]
        known = {queue.topic for queue in found[0].queues}
        for topic in () if connected is None else connected.subscriptions.keys() - known:
            if not topic.startswith(RETRY):
                found.append(await self._lag(address, group, {"topic": topic}))
        return [lag for lag in found if lag.queues]

    async def _lag(self, address: str, group: str, more: Mapping[str, str]) -> ConsumerLag:
        """Of no queue, if the broker does not report it."""
        ext = {"consumerGroup": self._admin.namespace.wrap(group), **more}
        try:
            answer = await self._admin.calls.ask(address, RequestCode.GET_CONSUME_STATS, ext)
        except BrokerError:
            return ConsumerLag(0.0, {})
        return read(answer.body, records.consumer_lag)


def _add_listed(totals: GroupTotals, group: ListedGroup) -> None:
    """Members are connected to all brokers of their topics: the one that knows most counts."""
    if group.members:
        totals.members = max(totals.members, group.members)
        totals.consume_type, totals.model = group.consume_type, group.message_model
    if group.topics:
        totals.add(group.consumed, group.lag, group.lag_ms if group.lag else None)


def behind_ms(lag: ConsumerLag, now_ms: int) -> int | None:
    """How long ago the message was stored that the group has read last, in the queue where that is longest."""
    late = [queue.last_ms for queue in lag.queues.values() if queue.messages and queue.last_ms]
    return max(now_ms - min(late), 0) if late else None
