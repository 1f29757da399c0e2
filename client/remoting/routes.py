"""RouteTable: the queues of topics and the addresses of brokers. A failed refresh keeps the old route.

At most one route request per topic runs at a time; concurrent callers share it. Loop thread.

StaticTopic: the logical queues of a static topic (Apache 5.x), whose queues may move between brokers, and the
broker that has each now. It is read from a route and immutable. The broker name of a logical queue is not
that of a broker.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NoRoute, TransportError, check
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.remoting.name_servers import NameServers

LOGICAL_BROKER = "__syslo__"
"""Prefix of the names of logical brokers, which store no messages themselves."""
NO_HOLDER = LOGICAL_BROKER + "none__"
"""Stands for the broker of a queue that no broker claims."""
GLOBAL_SCOPE = "__global__"


@dataclass(frozen=True, slots=True)
class StaticTopic:
    """`holders`: logical broker and queue number → name of the real broker; in order of the numbers."""

    holders: dict[tuple[str, int], str]

    @staticmethod
    def decode(mappings: Mapping[str, Mapping[str, Any]] | None, queues_max: int) -> "StaticTopic | None":
        """`topicQueueMappingByBroker` of a route. None: the topic is not static. ValueError, TypeError.

        If several brokers claim a queue, the one with the highest epoch has it.
        """
        if not mappings:
            return None
        totals: dict[str, int] = {}
        claims: dict[tuple[str, int], tuple[int, str]] = {}
        for mapping in mappings.values():
            scope = mapping.get("scope", GLOBAL_SCOPE)
            if scope is None:
                continue
            logical = logical_broker(scope)
            total = _integer(mapping, "totalQueues", queues_max)
            totals[logical] = max(totals.get(logical, 0), total)
            claim = (_integer(mapping, "epoch", (1 << 63) - 1), _broker_name(mapping))
            for number in _numbers(mapping, queues_max):
                key = logical, number
                claims[key] = max(claims.get(key, claim), claim)
        if sum(totals.values()) > queues_max:
            raise ValueError(f"totalQueues: over {queues_max} queues in total")
        keys = [(logical, number) for logical, total in totals.items() for number in range(total)]
        keys.sort(key=lambda key: (key[1], java_order(key[0])))
        return StaticTopic({key: claims[key][1] if key in claims else NO_HOLDER for key in keys})

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, logical, number) for logical, number in self.holders]

    def holder(self, queue: MessageQueue) -> str:
        """The broker that has the queue; a queue that is not logical is at the broker it names."""
        return self.holders.get((queue.broker_name, queue.queue_id), queue.broker_name)


def logical_broker(scope: str) -> str:
    """The broker name of the queues of this scope."""
    return LOGICAL_BROKER + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def _integer(mapping: Mapping[str, Any], field: str, value_max: int) -> int:
    value = mapping.get(field, 0)
    if type(value) is not int or not 0 <= value <= value_max:
        raise ValueError(f"{field}: {value!r} is not in 0..{value_max}")
    return value


def _broker_name(mapping: Mapping[str, Any]) -> str:
    name = mapping.get("bname")
    if not isinstance(name, str) or not name:
        raise ValueError(f"bname: {name!r} is not a broker name")
    return name


def _numbers(mapping: Mapping[str, Any], queues_max: int) -> list[int]:
    """Numbers of the logical queues that this broker has."""
    numbers = mapping.get("currIdMap") or {}
    if len(numbers) > queues_max:
        raise ValueError(f"currIdMap: over {queues_max} queues")
    return [int(number) for number in numbers]


RENEW_S = 0.09
"""Shortest time between two requests for a route because of an answer or a lost connection."""
MASTER = 0
PERM_READ, PERM_WRITE = 4, 2
QUEUES_MAX = 65536
"""Most queues of one topic that are accepted."""


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic's queues at one broker."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """`brokers`: name → {id → `host:port`}; id 0 is the master."""

    queues: tuple[QueueData, ...]
    brokers: dict[str, dict[int, str]]
    clusters: dict[str, str]
    order_conf: str = ""
    static: StaticTopic | None = None

    @staticmethod
    def decode(body: bytes) -> "TopicRoute":
        """The body of a route answer in standard JSON. ClientError."""
        try:
            data: dict[str, Any] = orjson.loads(body)
            queues = tuple(
                QueueData(
                    str(queue["brokerName"]),
                    int(queue["readQueueNums"]),
                    int(queue["writeQueueNums"]),
                    int(queue["perm"]),
                    int(queue.get("topicSysFlag", 0)),
                )
                for queue in data["queueDatas"]
            )
            brokers = {
                str(broker["brokerName"]): {int(i): str(a) for i, a in broker["brokerAddrs"].items()}
                for broker in data["brokerDatas"]
            }
            clusters = {str(b["brokerName"]): str(b.get("cluster", "")) for b in data["brokerDatas"]}
            static = StaticTopic.decode(data.get("topicQueueMappingByBroker"), QUEUES_MAX)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClientError(f"the name server's route cannot be read: {error!r}") from error
        if sum(max(queue.read_queues, queue.write_queues, 0) for queue in queues) > QUEUES_MAX:
            raise ClientError(f"the name server's route has over {QUEUES_MAX} queues")
        ordered = tuple(sorted(queues, key=lambda queue: java_order(queue.broker_name)))
        return TopicRoute(ordered, brokers, clusters, str(data.get("orderTopicConf") or ""), static)


@dataclass(frozen=True, slots=True)
class PublishInfo:
    """The writable queues of a topic, in the order of the brokers' names; `static`: logical queues."""

    topic: str
    queues: tuple[MessageQueue, ...]
    ordered: bool = False
    static: bool = False
    brokers: frozenset[str] = field(default=frozenset(), compare=False)

    @staticmethod
    def of(topic: str, route: TopicRoute, queues_max: int | None = None) -> "PublishInfo":
        if route.order_conf:
            queues = tuple(_ordered_queues(topic, route.order_conf))
        elif route.static is not None:
            queues = tuple(route.static.queues(topic))
        else:
            queues = tuple(
                MessageQueue(topic, data.broker_name, number)
                for data in route.queues
                if data.perm & PERM_WRITE and MASTER in route.brokers.get(data.broker_name, {})
                for number in range(
                    data.write_queues if queues_max is None else min(queues_max, data.read_queues)
                )
            )
        names = frozenset(queue.broker_name for queue in queues)
        return PublishInfo(topic, queues, bool(route.order_conf), route.static is not None, names)


class BrokerAddress(NamedTuple):
    address: str
    broker_id: int


class RouteTable:
    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._publish: dict[str, PublishInfo] = {}
        self._refreshes: dict[str, asyncio.Task[bool]] = {}
        self._brokers: dict[str, dict[int, str]] = {}
        self._renewed_s: dict[str, float] = {}

    # ---- topics ----

    def known(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    @property
    def publish_infos(self) -> Mapping[str, PublishInfo]:
        """The dict that `known_publish_info` reads, not a copy; a refreshed route replaces its value."""
        return self._publish

    def known_publish_info(self, topic: str) -> PublishInfo | None:
        """What `publish_info` knows without a request."""
        return self._publish.get(topic)

    async def publish_info(
        self, topic: str, template: str = "TBW102", default_queues: int = 4
    ) -> PublishInfo:
        """The writable queues of the topic. One that never had a route gets the queues of `template`. NoRoute."""
        info = self._publish.get(topic)
        if info is not None and info.queues:
            return info
        try:
            await self.refresh(topic)
            info = self._publish[topic]
        except NoRoute:
            # the brokers of a known topic are away; those of the template may be others (Apache: haveTopicRouterInfo)
            if template == topic or info is not None:
                raise
            try:
                await self.refresh(template)
            except NoRoute:
                raise NoRoute(
                    f"topic {topic} has no route, and neither has its template {template}: create the topic"
                ) from None
            info = PublishInfo.of(topic, self._routes[template], default_queues)
        if not info.queues:
            raise NoRoute(
                f"topic {topic} has no writable queue: its brokers have no master now, or its permissions "
                "forbid writing"
            )
        return info

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues, from the known route or else from the name servers. NoRoute."""
        if topic not in self._routes:
            await self.refresh(topic)
        return self.known_subscribe_queues(topic)

    def known_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        route = self._routes.get(topic)
        if route is None:
            return []
        if route.static is not None:
            return route.static.queues(topic)
        return [
            MessageQueue(topic, data.broker_name, number)
            for data in route.queues
            if data.perm & PERM_READ
            for number in range(data.read_queues)
        ]

    async def refresh(self, topic: str) -> bool:
        """Request the route. Returns whether it changed. NoRoute (the old one stays), ClientError.

        A caller that joined a request which then fails for its connection joins one more.
        """
        running = self._refreshes.get(topic)
        if running is not None:
            try:
                return await asyncio.shield(running)
            except TransportError:
                pass  # it may have begun long ago, at a connection that was dead then
        refresh = self._refreshes.get(topic)
        if refresh is None:
            refresh = asyncio.get_running_loop().create_task(self._request_route(topic))
            self._refreshes[topic] = refresh
            refresh.add_done_callback(lambda task: self._refreshed(topic, task))
        return await asyncio.shield(refresh)

    async def renew(self, topic: str) -> bool:
        """Like `refresh`, but at most each RENEW_S for one topic: False if that was not long ago."""
        now_s = asyncio.get_running_loop().time()
        if topic not in self._refreshes and now_s - self._renewed_s.get(topic, -RENEW_S) < RENEW_S:
            return False
        self._renewed_s[topic] = now_s
        return await self.refresh(topic)

    def forget_but(self, topics: set[str]) -> None:
        """Drop the routes of all other topics, and the brokers that only those routes named."""
        for topic in [topic for topic in self._routes if topic not in topics]:
            del self._routes[topic]
            self._renewed_s.pop(topic, None)
            self._publish.pop(topic, None)
        named: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            named.update(route.brokers)
        self._brokers = named

    # ---- brokers ----

    def broker_name_of(self, queue: MessageQueue) -> str:
        """The broker that has the queue now; for a logical queue, according to the known route."""
        route = self._routes.get(queue.topic)
        return queue.broker_name if route is None or route.static is None else route.static.holder(queue)

    def master(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER)

    def address(self, broker_name: str, broker_id: int, only_this: bool = False) -> BrokerAddress | None:
        """The address of that id; if a slave is down, of the next id, then of any (unless `only_this`)."""
        ids = self._brokers.get(broker_name, {})
        candidates = [broker_id] if broker_id == MASTER else [broker_id, broker_id + 1]
        for candidate in candidates:
            if candidate in ids:
                return BrokerAddress(ids[candidate], candidate)
        if only_this or not ids:
            return None
        first = next(iter(ids))
        return BrokerAddress(ids[first], first)

    def addresses(self) -> list[tuple[str, int, str]]:
        """(broker name, id, address) of every known broker."""
        return [(name, broker_id, a) for name, ids in self._brokers.items() for broker_id, a in ids.items()]

    def has_address(self, address: str) -> bool:
        """Whether some known broker has this address."""
        return any(address in ids.values() for ids in self._brokers.values())

    def brokers_of(self, topic: str) -> list[str]:
        """An address of each broker of the topic, in random order: its master, else any of its ids."""
        route = self._routes.get(topic)
        named = [ids for ids in route.brokers.values() if ids] if route is not None else []
        random.shuffle(named)
        return [ids.get(MASTER) or next(iter(ids.values())) for ids in named]

    def topics_at(self, address: str) -> list[str]:
        """The topics whose routes name this address."""
        return [
            topic
            for topic, route in self._routes.items()
            if any(address in ids.values() for ids in route.brokers.values())
        ]

    def topic_of(self, broker_name: str) -> str | None:
        """Any topic that has queues at this broker."""
        return next((topic for topic, route in self._routes.items() if broker_name in route.brokers), None)

    # ---- route requests ----

    async def _request_route(self, topic: str) -> bool:
        request = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        answer = await self._name_servers.call(request)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(f"topic {topic} has no route: create it, or send a first message to it")
        route = TopicRoute.decode(check(answer, "name server").body)
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        self._publish[topic] = PublishInfo.of(topic, route)
        self._brokers.update(route.brokers)
        return changed

    def _refreshed(self, topic: str, task: asyncio.Task[bool]) -> None:
        if self._refreshes.get(topic) is task:
            del self._refreshes[topic]
        if not task.cancelled():
            task.exception()


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    """The queues of `broker:count;broker:count`, in that order."""
    queues: list[MessageQueue] = []
    for item in conf.split(";"):
        name, _, count = item.rpartition(":")
        if name and count.isdigit() and len(queues) + int(count) <= QUEUES_MAX:
            queues += [MessageQueue(topic, name, number) for number in range(int(count))]
    return queues
