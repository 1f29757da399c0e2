"""RouteLookup: finds the brokers on which a topic has queues to read. Loop thread.

Asks the name server of this process directly, others over TCP; their answers are cached for a time, also that
a topic does not exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.routes import RouteTable

log = logging.getLogger("firearrow.route_lookup")

Queues = list[MessageQueue]
Connect = Callable[[str, int], Awaitable[Peer]]
ANSWER_S = 3.0
TOPICS_MAX = 10_000
QUEUES_MAX = 65_536
"""Queues of one topic on all brokers."""


class RoutingError(Exception):
    """No name server answered."""


class RouteLookup:
    """`own` is the name server of this process, `connect` opens a connection to another one."""

    def __init__(
        self,
        own: RouteTable | None,
        others: Sequence[Address],
        *,
        connect: Connect,
        clock: Clock,
        period_ms: int,
    ) -> None:
        self._own = own
        self._others = others
        self._connect = connect
        self._clock = clock
        self._period_ms = period_ms
        self._peers: dict[Address, Peer] = {}
        self._last_answer: dict[str, tuple[int, Queues | None]] = {}

    async def queues(self, topic: str) -> Queues | None:
        """All readable queues of the topic, sorted; None if it is unknown or no name server answers."""
        route = None if self._own is None else self._own.route(topic)
        if route is not None:
            found = [(name, data.perm, data.read_queues) for name, data in route.queues.items()]
            return _readable(topic, found)
        now = self._clock.monotonic_ms()
        known = self._last_answer.get(topic)
        if not self._others or (known is not None and now - known[0] < self._period_ms):
            return None if known is None else known[1]
        try:
            queues = await self._fetch(topic)
        except RoutingError as error:
            log.info("cannot get the route of topic %s: %s", topic, error)
            return None if known is None else known[1]
        if topic not in self._last_answer and len(self._last_answer) >= TOPICS_MAX:
            del self._last_answer[next(iter(self._last_answer))]
        self._last_answer[topic] = now, queues
        return queues

    async def _fetch(self, topic: str) -> Queues | None:
        """The answer of the first name server that answers. RoutingError."""
        faults: list[str] = []
        for address in self._others:
            try:
                async with asyncio.timeout(ANSWER_S):
                    peer = await self._peer(address)
                    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
                    answer = await peer.ask(request, ANSWER_S)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                if answer.code == ResponseCode.SUCCESS:
                    return _queues_of(topic, answer.body)
                faults.append(f"{address[0]}:{address[1]} answers {answer.code}")
            except (OSError, ValueError) as error:
                faults.append(f"{address[0]}:{address[1]}: {error or type(error).__name__}")
        raise RoutingError(", ".join(faults))

    async def _peer(self, address: Address) -> Peer:
        peer = self._peers.get(address)
        if peer is None or peer.closed:
            peer = self._peers[address] = await self._connect(*address)
        return peer


def _queues_of(topic: str, body: bytes) -> Queues:
    """The queues of a TopicRouteData. ValueError."""
    of = json_fields.members(loads_body(body), "the route")
    found = []
    for item in json_fields.items(of.get("queueDatas"), "queueDatas"):
        data = json_fields.members(item, "queueDatas")
        count = json_fields.number(data, "readQueueNums")
        found.append((json_fields.text(data, "brokerName"), json_fields.number(data, "perm"), count))
    return _readable(topic, found)


def _readable(topic: str, found: list[tuple[str, int, int]]) -> Queues:
    """The queues of the brokers (name, permission, count) that allow reads. ValueError."""
    readable = [(name, count) for name, perm, count in found if perm & name_rules.PERM_READ]
    if sum(count for _, count in readable) > QUEUES_MAX:
        raise ValueError(f"readQueueNums add up to more than {QUEUES_MAX}")
    return sorted(MessageQueue(topic, name, number) for name, count in readable for number in range(count))
