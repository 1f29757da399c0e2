"""ClientInstance: the connections, routes, heartbeats and timers that all users of one client id share.

The first user creates it, the last one closes it. An instance belongs to one event loop. Loop thread.

FirstHeartbeat: a broker must have got a heartbeat before it can send requests to this client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import (
    ClientError,
    ConfigError,
    NotRunning,
    RequestTimeout,
    RocketMQError,
    check,
)
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ProducerOptions
from firearrow.client.remoting.channel import Channel
from firearrow.client.remoting.channels import Channels
from firearrow.client.remoting.client_id import build_client_id
from firearrow.client.remoting.client_roles import ConsumerRole, ProducerRole
from firearrow.client.remoting.connection_states import ConnectionStates
from firearrow.client.remoting.heartbeat import Heartbeats
from firearrow.client.remoting.name_servers import NameServers
from firearrow.client.remoting.route_retry import (
    RENEW_FOR_S,
    RENEW_WAIT_MAX_S,
    RETRY_S,
    WAIT_MAX_S,
    RouteRetry,
)
from firearrow.client.remoting.routes import MASTER, RouteTable

log = logging.getLogger("firearrow.client")

HandlerAnswer = RemotingCommand | None | Awaitable[RemotingCommand | None]
InboundHandler = Callable[[RemotingCommand, str], HandlerAnswer]
REBALANCE_GAP_S = 1.0
FETCH_NAME_SERVERS_S = 120
SHARED_OPTIONS = ("name_server", "name_server_url", "namespace", "namespace_v2", "credentials", "tls")
"""Options that must be equal for all users of an instance. Of the others, the first user's values apply."""

_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, "ClientInstance"]] = WeakKeyDictionary()


class ClientInstance:
    """`register_handler` sets the handler of a request code that brokers send to clients."""

    @classmethod
    async def of(
        cls, options: ClientOptions, *, broadcasting: bool = False, stream: bool = False
    ) -> "ClientInstance":
        """The instance of this client id in the running loop; pair each call with a `leave`. ConfigError."""
        loop = asyncio.get_running_loop()
        client_id = build_client_id(options, broadcasting=broadcasting, stream=stream)
        instances = _instances.setdefault(loop, {})
        instance = instances.get(client_id)
        if instance is None:
            instance = instances[client_id] = cls(loop, options, client_id)
            instance._start()
        elif any(getattr(options, name) != getattr(instance.options, name) for name in SHARED_OPTIONS):
            raise ConfigError(
                f"client id {client_id} is in use in this event loop with different options; "
                f"{', '.join(SHARED_OPTIONS)} must be equal: set another instance_name"
            )
        instance._users += 1
        return instance

    def __init__(self, loop: asyncio.AbstractEventLoop, options: ClientOptions, client_id: str) -> None:
        self.loop = loop
        self.options = options
        self.client_id = client_id
        self.producers: dict[str, ProducerRole] = {}
        self.consumers: dict[str, ConsumerRole] = {}
        self.channels = Channels(
            loop, options, self._request_received, self._opened, self._lost, self._failed
        )
        self.connections = ConnectionStates(loop, self._is_named)
        self.lost_listeners: list[Callable[[str], None]] = []
        """Called with the address of a broker or name server whose connection has ended."""
        self.name_servers = NameServers(self.channels, options)
        self.routes = RouteTable(self.name_servers)
        self.heartbeats = Heartbeats(
            client_id,
            options,
            self.channels,
            self.routes,
            self.producers.values,
            self.consumers.values,
            self.rebalance_soon,
            self.connections.last_error.set,
        )
        self._route_retry = RouteRetry(
            self.routes,
            self._consumed_topics,
            self._heartbeat_new_brokers,
            loop.time,
            min(options.poll_name_server_s, WAIT_MAX_S),
        )
        self._handlers: dict[int, InboundHandler] = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._changed}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._users = 0
        self._renewed_until: dict[str, float] = {}
        """Address of a broker that is not reached → until when its routes are requested again."""
        self._rebalance_requested = asyncio.Event()
        self._closed = False

    async def leave(self) -> None:
        """The last user closes it: timers stop, outstanding answers are awaited, connections are closed."""
        self._users -= 1
        if self._users > 0 or self._closed:
            return
        self._closed = True
        _instances.get(self.loop, {}).pop(self.client_id, None)
        self.heartbeats.close()
        self.connections.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.channels.close()

    # ---- producers and consumers ----

    async def join_producer(self, role: ProducerRole) -> None:
        """ConfigError: a producer of this group uses the instance already."""
        if self.producers.setdefault(role.group, role) is not role:
            raise ConfigError(f"a producer of group {role.group} runs in this client instance already")
        self.heartbeats.forget()

    async def leave_producer(self, role: ProducerRole) -> None:
        if self.producers.get(role.group) is role:
            del self.producers[role.group]
            await self._unregister({"producerGroup": role.group})

    async def join_consumer(self, role: ConsumerRole) -> None:
        """ConfigError: a consumer of this group uses the instance already."""
        if self.consumers.setdefault(role.group, role) is not role:
            raise ConfigError(f"a consumer of group {role.group} runs in this client instance already")
        self.heartbeats.forget()

    async def leave_consumer(self, role: ConsumerRole) -> None:
        if self.consumers.get(role.group) is role:
            del self.consumers[role.group]
            await self._unregister({"consumerGroup": role.group})

    async def heartbeat_all(self) -> int:
        """Send a heartbeat to every known broker. Returns how many answered."""
        return await self.heartbeats.beat_all()

    async def heartbeat_brokers_of(self, topic: str) -> None:
        await self.heartbeats.beat_to(self.routes.brokers_of(topic))

    def broker_version(self, address: str) -> int:
        return self.heartbeats.version(address)

    def is_silent(self, broker_name: str) -> bool:
        """Whether the broker's master leaves requests unanswered."""
        heartbeats = self.heartbeats
        return heartbeats.silent and heartbeats.is_silent(self.routes.master(broker_name))

    # ---- calls ----

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """The answer, with any code. TransportError, TooManyRequests."""
        return await self.channels.call(address, command, timeout_s)

    async def call_master(
        self,
        broker_name: str,
        command: RemotingCommand,
        timeout_s: float,
        *,
        topic: str | None = None,
        any_code: bool = False,
    ) -> RemotingCommand:
        """Call a broker's master; if it is not known, refresh the route of `topic` once.

        BrokerError unless `any_code`.
        """
        answer = await self.call(await self.master(broker_name, topic), command, timeout_s)
        return answer if any_code else check(answer, broker_name)

    async def call_holder(
        self, queue: MessageQueue, command: RemotingCommand, timeout_s: float, *, any_code: bool = False
    ) -> RemotingCommand:
        """Call the master of the broker that has the queue. BrokerError unless `any_code`."""
        answer = await self.call(await self.master_of(queue), command, timeout_s)
        return answer if any_code else check(answer, self.routes.broker_name_of(queue))

    async def call_any(
        self, topic: str, request: Callable[[], RemotingCommand], timeout_s: float
    ) -> tuple[RemotingCommand, str]:
        """Call brokers of the topic, one after the other, until one answers: the answer and its address.

        ClientError.
        """
        if not self.routes.brokers_of(topic):
            await self.routes.refresh(topic)
        addresses = sorted(self.routes.brokers_of(topic), key=self.heartbeats.is_silent)
        if not addresses:
            raise ClientError(f"topic {topic} has no known broker")
        return await self.channels.call_first(addresses, request, timeout_s)

    async def oneway_master(
        self, broker_name: str, command: RemotingCommand, topic: str | None = None
    ) -> None:
        await self.channels.oneway(await self.master(broker_name, topic), command)

    async def master(self, broker_name: str, topic: str | None = None) -> str:
        """The address of the broker's master. ClientError: the broker is not known."""
        address = self.routes.master(broker_name)
        if address is None and topic is not None:
            await self.routes.refresh(topic)
            address = self.routes.master(broker_name)
        if address is None:
            only_slaves = self.routes.address(broker_name, MASTER) is not None
            raise ClientError(
                f"broker {broker_name} has no master now: promote a slave, or start its master"
                if only_slaves
                else f"broker {broker_name} is not known"
            )
        return address

    async def master_of(self, queue: MessageQueue) -> str:
        """The address of the master that has the queue; if it is not known, refresh the route once.

        ClientError.
        """
        routes = self.routes
        if routes.master(routes.broker_name_of(queue)) is None:
            await routes.refresh(queue.topic)
        return await self.master(routes.broker_name_of(queue))

    # ---- requests of brokers ----

    def register_handler(self, code: int, handler: InboundHandler) -> None:
        """`handler(request, address)` returns the answer to this code, or None for no answer."""
        self._handlers[code] = handler

    def _request_received(self, request: RemotingCommand, channel: Channel) -> None:
        self.spawn(self._serve(request, channel))

    async def _serve(self, request: RemotingCommand, channel: Channel) -> None:
        handler = self._handlers.get(request.code)
        try:
            if handler is None:
                answer: RemotingCommand | None = request.answer(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"this client does not support request code {request.code}",
                )
            else:
                result = handler(request, channel.address)
                answer = await result if isinstance(result, Awaitable) else result
        except Exception as error:
            log.exception("request %d from %s failed", request.code, channel.address)
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None and not request.is_oneway and not channel.closed:
            channel.send(answer.encode())

    def _changed(self, request: RemotingCommand, address: str) -> None:
        self.rebalance_soon()

    def _is_named(self, address: str) -> bool:
        return self.routes.has_address(address) or address in self.name_servers.addresses

    def _failed(self, address: str, reason: str) -> None:
        """No connection could be opened. Callers try again, so that this is called again."""
        if not self._closed:
            self.connections.not_reached(address, reason)
        self._renew_routes(address)

    def _renew_routes(self, address: str) -> None:
        """A broker is not reached: its place may be another one's, after a promotion. Java waits for its timer."""
        if self._closed or not self.routes.topics_at(address):
            return
        is_running = address in self._renewed_until
        self._renewed_until[address] = self.loop.time() + RENEW_FOR_S
        if not is_running:
            self.spawn(self._renew_routes_of(address))

    async def _renew_routes_of(self, address: str) -> None:
        """Until no route names the address: a promoted broker registers a moment later, and the old master, which takes
        connections again, reports nothing. From the second time on, one topic shows whether there is a change."""
        wait_s = RETRY_S
        topics = asked = self.routes.topics_at(address)
        try:
            while topics and self.loop.time() < self._renewed_until[address]:
                if await self._renewed(asked):
                    await self._renewed(topics[len(asked) :])
                    await self._heartbeat_new_brokers()
                else:
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, RENEW_WAIT_MAX_S)
                topics = self.routes.topics_at(address)
                asked = topics[:1]
        finally:
            del self._renewed_until[address]
        self._leave(address)

    def _leave(self, address: str) -> None:
        """If no route names it any more: pulls that a former master holds are sent to the new one."""
        channel = self.channels.held(address)
        if channel is not None and not self.routes.has_address(address):
            channel.close()

    async def _renewed(self, topics: list[str]) -> bool:
        """Whether a route changed."""
        changed = False
        for topic in topics:
            try:
                changed = await self.routes.renew(topic) or changed
            except ClientError as error:
                log.debug("could not refresh the route of %s: %s", topic, error)
        return changed

    def _lost(self, address: str, reason: str) -> None:
        if not self._closed:
            self.connections.not_reached(address, reason)
            self._renew_routes(address)
        for listener in list(self.lost_listeners):
            listener(address)

    def _opened(self, address: str, again: bool) -> None:
        """A broker that came back, maybe at another address, must get a heartbeat before other requests."""
        self.connections.reached(address)
        used = bool(self.producers or self.consumers)
        if not again and (not used or self.heartbeats.is_beating(address)):
            return
        if self.routes.has_address(address):
            self.spawn(self._rebalance_after(self.heartbeats.beat_on_open(address)))

    async def _rebalance_after(self, heartbeat: asyncio.Task[bool]) -> None:
        if await asyncio.shield(heartbeat):
            self.rebalance_soon()

    # ---- timers ----

    def rebalance_soon(self, after_s: float = 0) -> None:
        if after_s > 0:
            self.loop.call_later(after_s, self._rebalance_requested.set)
        else:
            self._rebalance_requested.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that is cancelled when the instance closes. Its failure is logged."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def every(
        self, seconds: float, work: Callable[[], Awaitable[object]], first_s: float | None = None
    ) -> asyncio.Task[Any]:
        """Repeat `work` until the instance closes or the task is cancelled. Failures are logged."""
        return self.spawn(self._repeat(seconds, work, seconds if first_s is None else first_s))

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[object]], first_s: float) -> None:
        await asyncio.sleep(first_s)
        while True:
            try:
                await work()
            except RocketMQError as error:
                log.info("%s failed: %s", getattr(work, "__qualname__", work), error)
            except Exception:
                log.exception("%s failed", getattr(work, "__qualname__", work))
            await asyncio.sleep(seconds)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the client failed", exc_info=error)

    def _start(self) -> None:
        options = self.options
        self.every(FETCH_NAME_SERVERS_S, self.name_servers.fetch, 0)
        self.every(options.poll_name_server_s, self._refresh_routes)
        self.every(RETRY_S, self._route_retry.refresh_missing)
        self.every(options.heartbeat_s, self.heartbeat_all, min(1, options.heartbeat_s))
        self.every(options.persist_offsets_s, self._persist_offsets)
        self.every(min(options.idle_s, 5), self._close_idle)
        self.spawn(self._rebalance())

    async def _close_idle(self) -> None:
        self.channels.close_idle()

    async def _refresh_routes(self) -> None:
        topics: set[str] = set()
        for role in (*self.producers.values(), *self.consumers.values()):
            topics |= role.topics()
        self.routes.forget_but(topics)
        self.connections.forget_unnamed()
        for topic in sorted(topics):
            try:
                if await self.routes.refresh(topic):
                    self.rebalance_soon()
            except ClientError as error:
                log.debug("could not refresh the route of %s: %s", topic, error)

    async def _heartbeat_new_brokers(self) -> None:
        """Brokers of a new route may be new: they must get a heartbeat before the rebalance calls them."""
        await self.heartbeat_all()
        self.rebalance_soon()

    def _consumed_topics(self) -> set[str]:
        return set().union(*(consumer.topics() for consumer in self.consumers.values()))

    async def _persist_offsets(self) -> None:
        for error in await asyncio.gather(
            *(consumer.persist_offsets() for consumer in self.consumers.values()), return_exceptions=True
        ):
            if isinstance(error, BaseException):
                log.error("offsets of a group were not stored", exc_info=error)

    async def _rebalance(self) -> None:
        """Rebalance all consumers on request, at most once per second; else each `rebalance_s`, or 1 s if
        unbalanced.
        """
        wait_s = self.options.rebalance_s
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._rebalance_requested.wait()
            except TimeoutError:
                pass
            self._rebalance_requested.clear()
            sharing = [consumer for consumer in self.consumers.values() if consumer.rebalances]
            balanced = await asyncio.gather(*map(self._rebalance_one, sharing))
            wait_s = self.options.rebalance_s if all(balanced) else REBALANCE_GAP_S
            if sharing:
                await asyncio.sleep(REBALANCE_GAP_S)

    async def _rebalance_one(self, consumer: ConsumerRole) -> bool:
        try:
            return await consumer.rebalance()
        except Exception:
            log.exception("rebalance of group %s failed", consumer.group)
            return False

    async def _unregister(self, group_field: dict[str, str]) -> None:
        """Report to every broker that a member left. A broker that does not get it finds out by itself."""
        if self._closed:
            raise NotRunning("the client is closed")
        self.heartbeats.forget()
        fields = {"clientID": self.client_id} | group_field
        await asyncio.gather(
            *(self._unregister_at(address, dict(fields)) for _, _, address in self.routes.addresses())
        )

    async def _unregister_at(self, address: str, fields: dict[str, str]) -> None:
        request = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, fields)
        try:
            await self.call(address, request, self.options.api_timeout_s)
        except ClientError as error:
            log.debug("could not unregister at %s: %s", address, error)


class FirstHeartbeat:
    """Sends the heartbeats from which brokers know a producer. A producer that joins later needs its own."""

    def __init__(self, instance: ClientInstance, options: ProducerOptions) -> None:
        self._instance = instance
        self._options = options
        self._known: set[str] = set()

    async def ensure_known(self, topic: str, within_s: float) -> None:
        """Send a heartbeat to each master of the topic (named as brokers know it) that has not got one yet.

        A broker that does not answer is tried again next time. NoRoute, TransportError of name servers;
        RequestTimeout: the time is over.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._ensure_known(topic)
        except TimeoutError:
            raise RequestTimeout(
                f"topic {topic}: name servers or brokers did not answer within {within_s:g} s, nothing was sent"
            ) from None

    async def _ensure_known(self, topic: str) -> None:
        options, routes = self._options, self._instance.routes
        info = await routes.publish_info(topic, options.template_topic, options.default_queues)
        masters = (routes.master(name) for name in {routes.broker_name_of(queue) for queue in info.queues})
        unknown = {address for address in masters if address is not None} - self._known
        if unknown:
            self._known |= await self._instance.heartbeats.beat_to(unknown)
