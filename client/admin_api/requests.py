"""AdminCalls: sends admin requests to a broker, the masters of a cluster or of a topic, or the name servers.

A name server is asked for the masters each time. Loop thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.admin_api.records import ClusterInfo, cluster_info, read
from firearrow.client.base.errors import ClientError, NoRoute, TransportError, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import MASTER

log = logging.getLogger("firearrow.client")

Item = TypeVar("Item")
Found = TypeVar("Found")
TRIES_MAX = 5
AT_ONCE = 16
ROUTE_POLL_S = 0.02


class AdminCalls:
    """All methods: BrokerError (the broker refused), TransportError."""

    def __init__(self, instance: ClientInstance, timeout_s: float) -> None:
        self.instance = instance
        self._timeout_s = timeout_s

    async def ask(
        self, address: str, code: RequestCode, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, ext, body)
        return check(await self.instance.call(address, request, self._timeout_s), address)

    async def ask_again(self, address: str, code: RequestCode, ext: Mapping[str, str]) -> RemotingCommand:
        """Send an idempotent request, up to TRIES_MAX times while no answer comes."""
        for _ in range(TRIES_MAX - 1):
            try:
                return await self.ask(address, code, ext)
            except TransportError:
                continue
        return await self.ask(address, code, ext)

    async def ask_name_server(
        self, code: RequestCode, ext: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, ext)
        return check(await self.instance.name_servers.call(request), "name server")

    async def ask_name_servers(self, code: RequestCode, ext: Mapping[str, str]) -> None:
        """Send the request to all name servers."""
        for answer in await self.instance.name_servers.call_all(RemotingCommand.request(code, ext)):
            check(answer, "name server")

    async def ask_master(
        self, queue: MessageQueue, code: RequestCode, ext: Mapping[str, str]
    ) -> RemotingCommand:
        """The answer, with any code, of the master that has the queue."""
        request = RemotingCommand.request(code, ext)
        return await self.instance.call_holder(queue, request, self._timeout_s, any_code=True)

    async def ask_broker(self, broker_name: str, code: RequestCode, body: bytes = b"") -> RemotingCommand:
        return await self.ask(await self.master(broker_name), code, body=body)

    async def ask_brokers_of(
        self, topic: str, code: RequestCode, ext: Mapping[str, str], body: bytes = b""
    ) -> dict[str, RemotingCommand]:
        """The answers of all masters of the topic by broker name; all must answer."""
        masters = await self.masters_of(topic)
        answers = await asyncio.gather(*(self.ask(address, code, ext, body) for address in masters.values()))
        return dict(zip(masters, answers, strict=True))

    async def ask_masters(
        self,
        code: RequestCode,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        cluster: str | None = None,
    ) -> list[RemotingCommand]:
        """The answers of all masters (of one cluster), asked one after the other; each must succeed."""
        return [
            await self.ask(address, code, ext, body) for address in (await self.masters(cluster)).values()
        ]

    async def ask_who_knows(self, code: RequestCode, ext: Mapping[str, str]) -> list[RemotingCommand]:
        """The answers of the masters that succeed, at least one; else raises the last error."""
        found: list[RemotingCommand] = []
        failure: ClientError | None = None
        for address in (await self.masters()).values():
            try:
                found.append(await self.ask(address, code, ext))
            except ClientError as error:
                log.debug("broker %s has no answer: %s", address, error)
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    async def clusters(self) -> ClusterInfo:
        answer = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return read(answer.body, cluster_info)

    async def master(self, broker_name: str) -> str:
        """The address of the broker's master. ClientError: name servers know none."""
        address = (await self.masters()).get(broker_name)
        if address is None:
            raise ClientError(f"broker {broker_name}: the name server knows no master of it")
        return address

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Broker name → address of its master. ClientError: there is no master, or no such cluster."""
        info = await self.clusters()
        if cluster is not None and cluster not in info.clusters:
            known = ", ".join(sorted(info.clusters)) or "none"
            raise ClientError(f"cluster {cluster} does not exist; known clusters: {known}")
        names = sorted(info.brokers) if cluster is None else info.clusters[cluster]
        found = {name: info.brokers[name][MASTER] for name in names if MASTER in info.brokers.get(name, {})}
        if not found:
            raise ClientError("the name server knows no master")
        return found

    async def masters_of(self, topic: str) -> dict[str, str]:
        """As `masters`, of the brokers of this topic: to know them needs no right for the cluster. NoRoute: none."""
        await self.instance.routes.refresh(topic)
        route = self.instance.routes.known(topic)
        brokers = route.brokers.items() if route is not None else ()
        masters = {name: ids[MASTER] for name, ids in brokers if MASTER in ids}
        if not masters:
            raise NoRoute(f"topic {topic}: no broker serves it")
        return masters

    async def await_route(self, topic: str, broker_names: set[str]) -> None:
        """Wait until a name server has routes to the topic at these brokers, which register it soon."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while not broker_names <= await self._brokers_of(topic):  # noqa: ASYNC110
                    await asyncio.sleep(ROUTE_POLL_S)  # name servers send no notification
        except TimeoutError:
            raise ClientError(
                f"topic {topic}: the brokers accepted it, but the name server does not know it yet"
            ) from None

    async def _brokers_of(self, topic: str) -> set[str]:
        try:
            await self.instance.routes.refresh(topic)
        except NoRoute:
            return set()
        route = self.instance.routes.known(topic)
        return {data.broker_name for data in route.queues} if route is not None else set()


def integer_of(answer: RemotingCommand, field: str, broker_name: str) -> int:
    """A field of an answer. ClientError: it is missing or not a number."""
    try:
        return answer.integer(field)
    except FieldError as error:
        raise ClientError(f"{broker_name}: the answer cannot be read: {error}") from error


def milliseconds(when: datetime | int) -> int:
    """A time as requests have it: ms since 1970, which an int is already."""
    return when if isinstance(when, int) else int(when.timestamp() * 1000)


async def of_each(items: Sequence[Item], ask: Callable[[Item], Awaitable[Found]]) -> list[Found]:
    """The answers in the order of the items; at most AT_ONCE requests are in flight."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> Found:
        async with slots:
            return await ask(item)

    return await asyncio.gather(*map(one, items))
