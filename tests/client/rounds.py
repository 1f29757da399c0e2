"""Fakes for tests of offset stores, locks and rebalancers: an instance with scripted brokers, and a member of a group
that has only a Rebalancer."""

import time
from collections.abc import Callable, Iterable, Mapping

from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NoRoute, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import ClientOptions, ConsumeFromWhere, MessageModel
from firearrow.client.rebalance.allocate_strategies import Strategy, averagely
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.queue_locks import QueueLocks
from firearrow.client.rebalance.rebalance import Queues, RebalanceContext, Rebalancer
from firearrow.client.rebalance.remote_offset_store import RemoteOffsetStore
from firearrow.client.rebalance.start_offset import PullRequest, start_offset
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets
from firearrow.client.remoting.routes import MASTER, BrokerAddress

Says = Callable[[RemotingCommand], RemotingCommand] | Exception
ADDRESS = "master:1"


def queues_of(topic: str, count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


class FakeRoutes:
    """`queues`: by topic. `brokers` as RouteTable has them; after a refresh, `found_later` too."""

    def __init__(self) -> None:
        self.queues: dict[str, list[MessageQueue]] = {}
        self.brokers: dict[str, dict[int, str]] = {"broker-a": {MASTER: ADDRESS}}
        self.found_later: dict[str, dict[int, str]] = {}
        self.refreshed: list[str] = []

    async def refresh(self, topic: str) -> bool:
        self.refreshed.append(topic)
        self.brokers = self.brokers | self.found_later
        return bool(self.found_later)

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self.queues:
            raise NoRoute(f"topic {topic}: no route")
        return self.queues[topic]

    def known_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        return self.queues.get(topic, [])

    def known(self, topic: str) -> object | None:
        return self.queues.get(topic)

    def brokers_of(self, topic: str) -> list[str]:
        return [address for ids in self.brokers.values() for address in ids.values()]

    def broker_name_of(self, queue: MessageQueue) -> str:
        return queue.broker_name

    def address(self, broker: str, number: int, only_this: bool = False) -> BrokerAddress | None:
        ids = self.brokers.get(broker, {})
        if number in ids:
            return BrokerAddress(ids[number], number)
        if only_this or not ids:
            return None
        first = next(iter(ids))
        return BrokerAddress(ids[first], first)


class FakeNameServers:
    addresses = ("names:1",)


class FakeInstance:
    """`says`: what answers each request code, or what is raised instead. `asked`, `addresses`: what was sent where."""

    def __init__(self, says: Mapping[int, Says]) -> None:
        self.says = dict(says)
        self.options = ClientOptions(name_server="names:1")
        self.client_id = "me"
        self.routes = FakeRoutes()
        self.channels = self
        self.asked: list[RemotingCommand] = []
        self.addresses: list[str] = []
        self.rebalances_soon: list[float] = []
        self.heartbeats_of: list[str] = []
        self.name_servers = FakeNameServers()

    async def oneway(self, address: str, command: RemotingCommand) -> None:
        self.addresses.append(address)
        self.asked.append(command)

    async def call(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        await self.oneway(address, command)
        says = self.says[command.code]
        if isinstance(says, Exception):
            raise says
        return says(command)

    async def call_any(
        self, topic: str, request: Callable[[], RemotingCommand], timeout_s: float
    ) -> tuple[RemotingCommand, str]:
        if not self.routes.brokers_of(topic):
            await self.routes.refresh(topic)
        for address in self.routes.brokers_of(topic)[:1]:
            return await self.call(address, request(), timeout_s), address
        raise ClientError(f"topic {topic} has no known broker")

    async def call_master(
        self, broker: str, command: RemotingCommand, timeout_s: float, topic: str | None = None
    ) -> RemotingCommand:
        return check(await self.call(self._master(broker), command, timeout_s), broker)

    async def call_holder(
        self, queue: MessageQueue, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        return await self.call_master(self.routes.broker_name_of(queue), command, timeout_s)

    async def oneway_master(self, broker: str, command: RemotingCommand, topic: str | None = None) -> None:
        await self.oneway(self._master(broker), command)

    async def heartbeat_brokers_of(self, topic: str) -> None:
        self.heartbeats_of.append(topic)

    def rebalance_soon(self, after_s: float = 0) -> None:
        self.rebalances_soon.append(after_s)

    def asked_for(self, code: int) -> list[RemotingCommand]:
        return [command for command in self.asked if command.code == code]

    def _master(self, broker: str) -> str:
        address = self.routes.brokers.get(broker, {}).get(MASTER)
        if address is None:
            raise ClientError(f"broker {broker} is not known")
        return address


class Member:
    """A consumer of a real broker that takes its queues and never pulls. `orderly`: with locks."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        topics: Iterable[str],
        *,
        orderly: bool = False,
        strategy: Strategy = averagely,
        broker_assigns: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self.instance = instance
        self.group = group
        self.model = model
        self.subscriptions = {topic: Subscription.of(topic) for topic in topics}
        self.offsets = RemoteOffsetStore(instance, group)
        self.begun: list[PullRequest] = []
        self.popped: list[MessageQueue] = []
        self.changes: list[tuple[str, Queues, Queues]] = []
        table: dict[MessageQueue, ProcessQueue] = {}
        self.locks = QueueLocks(instance, group, table) if orderly else None
        self.rebalancer = Rebalancer(
            RebalanceContext(
                instance=instance,
                group=group,
                model=model,
                strategy=strategy,
                offsets=self.offsets,
                topics=self.topics,
                begin=self.begun.append,
                start_offset=start_offset(
                    self.offsets, QueueOffsets(instance), ConsumeFromWhere.LAST_OFFSET, 0
                ),
                changed=self._changed,
                locks=self.locks,
                broker_assigns=broker_assigns,
                begin_pop=lambda queue, process_queue: self.popped.append(queue),
            ),
            table,
        )

    @property
    def mine(self) -> list[int]:
        """Ids of the owned queues of all topics."""
        return sorted(queue.queue_id for queue, held in self.rebalancer.table.items() if not held.dropped)

    def topics(self) -> set[str]:
        return set(self.subscriptions)

    def heartbeat_data(self) -> dict[str, object]:
        return {
            "groupName": self.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": self.model.value,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [one.heartbeat_json() for one in self.subscriptions.values()],
        }

    @property
    def rebalances(self) -> bool:
        return True

    async def rebalance(self) -> bool:
        return await self.rebalancer.run()

    async def persist_offsets(self) -> None:
        await self.offsets.persist_all(list(self.rebalancer.table))

    async def join(self) -> None:
        for topic in self.subscriptions:
            await self.instance.routes.subscribe_queues(topic)
        await self.instance.join_consumer(self)
        await self.instance.heartbeat_all()
        self.instance.rebalance_soon()

    async def leave(self) -> None:
        await self.persist_offsets()
        if self.locks is not None:
            await self.locks.unlock_all()
        self.rebalancer.close()
        await self.instance.leave_consumer(self)
        await self.instance.leave()

    async def _changed(self, topic: str, everything: Queues, mine: Queues) -> None:
        self.changes.append((topic, everything, mine))
        self.subscriptions[topic] = self.subscriptions[topic].renewed(int(time.time() * 1000))
        self.instance.heartbeats.forget()
        await self.instance.heartbeat_all()
