"""RouteTable: where topics live, and the addresses of brokers. A failed refresh leaves the old route.

Loop thread. One question a topic at a time; who asks meanwhile waits for it.

StaticTopic: the logical queues of a topic of Apache 5.x whose queues may move, and which broker holds each now.

Read from a route, asks nobody. A logical queue bears the name of a broker that is none. Never changed; any thread.
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NoRoute, check
from firearrow.client.base.message import MessageQueue, java_order
from firearrow.client.remoting.name_servers import NameServers

LOGICAL_BROKER = "__syslo__"
"""What the names of logical brokers begin with; they keep no message themselves."""
NO_HOLDER = LOGICAL_BROKER + "none__"
"""Holds a queue that no broker tells to have."""
GLOBAL_SCOPE = "__global__"


@dataclass(frozen=True, slots=True)
class StaticTopic:
    """`holders`: logical broker and queue number → name of the real broker; in order of the numbers."""

    holders: dict[tuple[str, int], str]

    @staticmethod
    def decode(mappings: Mapping[str, Mapping[str, Any]] | None, queues_max: int) -> "StaticTopic | None":
        """`topicQueueMappingByBroker` of a route. None: the topic is an ordinary one. ValueError, TypeError.

        Of several brokers that tell to have a queue, the one with the highest epoch does.
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
            raise ValueError(f"totalQueues: over {queues_max} queues in all")
        keys = [(logical, number) for logical, total in totals.items() for number in range(total)]
        keys.sort(key=lambda key: (key[1], java_order(key[0])))
        return StaticTopic({key: claims[key][1] if key in claims else NO_HOLDER for key in keys})

    def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, logical, number) for logical, number in self.holders]

    def holder(self, queue: MessageQueue) -> str:
        """A queue that is not among the logical ones is held by the broker that it names."""
        return self.holders.get((queue.broker_name, queue.queue_id), queue.broker_name)


def logical_broker(scope: str) -> str:
    """The name that queues of this scope bear."""
    return LOGICAL_BROKER + (scope[2:] if scope == GLOBAL_SCOPE else scope)


def _integer(mapping: Mapping[str, Any], field: str, most: int) -> int:
    value = mapping.get(field, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{field}: {value!r} is not in 0..{most}")
    return value


def _broker_name(mapping: Mapping[str, Any]) -> str:
    name = mapping.get("bname")
    if not isinstance(name, str) or not name:
        raise ValueError(f"bname: {name!r} is no name of a broker")
    return name


def _numbers(mapping: Mapping[str, Any], queues_max: int) -> list[int]:
    """Of the logical queues that this broker holds."""
    numbers = mapping.get("currIdMap") or {}
    if len(numbers) > queues_max:
        raise ValueError(f"currIdMap: over {queues_max} queues")
    return [int(number) for number in numbers]


MASTER = 0
PERM_READ, PERM_WRITE = 4, 2
QUEUES_MAX = 65536
"""Queues of one topic that we believe in."""


@dataclass(frozen=True, slots=True)
class QueueData:
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
                    str(queue["brokerName"]), int(queue["readQueueNums"]), int(queue["writeQueueNums"]),
                    int(queue["perm"]), int(queue.get("topicSysFlag", 0)),
                )
                for queue in data["queueDatas"]
            )  # fmt: skip
            brokers = {
                str(broker["brokerName"]): {int(n): str(a) for n, a in broker["brokerAddrs"].items()}
                for broker in data["brokerDatas"]
            }
            clusters = {str(b["brokerName"]): str(b.get("cluster", "")) for b in data["brokerDatas"]}
            static = StaticTopic.decode(data.get("topicQueueMappingByBroker"), QUEUES_MAX)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ClientError(f"a route that cannot be read: {error!r}") from error
        if sum(max(queue.read_queues, queue.write_queues, 0) for queue in queues) > QUEUES_MAX:
            raise ClientError(f"a route with over {QUEUES_MAX} queues")
        ordered = tuple(sorted(queues, key=lambda queue: java_order(queue.broker_name)))
        return TopicRoute(ordered, brokers, clusters, str(data.get("orderTopicConf") or ""), static)


@dataclass(frozen=True, slots=True)
class PublishInfo:
    """The queues of a topic that may be written to, in the order of the brokers' names; `static`: logical queues."""

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
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    # ---- topics ----

    def known(self, topic: str) -> TopicRoute | None:
        return self._routes.get(topic)

    @property
    def publish_infos(self) -> Mapping[str, PublishInfo]:
        """What `known_publish_info` looks into: the very dict, whose values are replaced when a route is asked for."""
        return self._publish

    def known_publish_info(self, topic: str) -> PublishInfo | None:
        """What `publish_info` would give without asking anybody."""
        return self._publish.get(topic)

    async def publish_info(
        self, topic: str, template: str = "TBW102", default_queues: int = 4
    ) -> PublishInfo:
        """Where the topic can be written to. A topic that is not known yet takes the queues of `template`. NoRoute."""
        info = self._publish.get(topic)
        if info is not None and info.queues:
            return info
        try:
            await self.refresh(topic)
            info = self._publish[topic]
        except NoRoute:
            if template == topic:
                raise
            try:
                await self.refresh(template)
            except NoRoute:
                raise NoRoute(f"topic {topic}: no route, and none for {template} to make it by") from None
            info = PublishInfo.of(topic, self._routes[template], default_queues)
        if not info.queues:
            raise NoRoute(f"topic {topic}: no queue can be written to")
        return info

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be read, from the route that is known, else a fresh one. NoRoute."""
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
        """Ask the name servers; whether the route changed. NoRoute (the old one stays), ClientError."""
        asking = self._asking.get(topic)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(topic))
            self._asking[topic] = asking
            asking.add_done_callback(lambda task: self._asked(topic, task))
        return await asyncio.shield(asking)

    def forget_but(self, topics: set[str]) -> None:
        """Drop routes that nobody wants any more, and the brokers that only they named."""
        for topic in [topic for topic in self._routes if topic not in topics]:
            del self._routes[topic]
            self._publish.pop(topic, None)
        named: dict[str, dict[int, str]] = {}
        for route in self._routes.values():
            named.update(route.brokers)
        self._brokers = named

    # ---- brokers ----

    def broker_name_of(self, queue: MessageQueue) -> str:
        """The broker that has the queue now: of a logical queue, as the route that is known tells."""
        route = self._routes.get(queue.topic)
        return queue.broker_name if route is None or route.static is None else route.static.holder(queue)

    def master(self, broker_name: str) -> str | None:
        return self._brokers.get(broker_name, {}).get(MASTER)

    def address(self, broker_name: str, broker_id: int, only_this: bool = False) -> BrokerAddress | None:
        """The address of that id; of a slave that is gone: the next id, then any (unless `only_this`)."""
        ids = self._brokers.get(broker_name, {})
        wanted = [broker_id] if broker_id == MASTER else [broker_id, broker_id + 1]
        for number in wanted:
            if number in ids:
                return BrokerAddress(ids[number], number)
        if only_this or not ids:
            return None
        number = next(iter(ids))
        return BrokerAddress(ids[number], number)

    def addresses(self) -> list[tuple[str, int, str]]:
        """(broker name, id, address) of every broker that is known."""
        return [(name, number, a) for name, ids in self._brokers.items() for number, a in ids.items()]

    def any_broker_of(self, topic: str) -> str | None:
        """A random broker of the topic: its master's address, else any."""
        route = self._routes.get(topic)
        named = [ids for ids in route.brokers.values() if ids] if route is not None else []
        if not named:
            return None
        ids = random.choice(named)
        return ids.get(MASTER) or next(iter(ids.values()))

    def topic_of(self, broker_name: str) -> str | None:
        """Some topic that lives there."""
        return next((topic for topic, route in self._routes.items() if broker_name in route.brokers), None)

    # ---- asking ----

    async def _ask(self, topic: str) -> bool:
        request = RemotingCommand.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": "true"}
        )
        answer = await self._name_servers.call(request)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(f"topic {topic}: {answer.remark or 'no route'}")
        route = TopicRoute.decode(check(answer, "name server").body)
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        self._publish[topic] = PublishInfo.of(topic, route)
        self._brokers.update(route.brokers)
        return changed

    def _asked(self, topic: str, task: asyncio.Task[bool]) -> None:
        self._asking.pop(topic, None)
        if not task.cancelled():
            task.exception()


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    """`broker:number;broker:number`, in that order."""
    queues: list[MessageQueue] = []
    for item in conf.split(";"):
        name, _, number = item.rpartition(":")
        if name and number.isdigit() and len(queues) + int(number) <= QUEUES_MAX:
            queues += [MessageQueue(topic, name, n) for n in range(int(number))]
    return queues
