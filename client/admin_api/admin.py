"""Admin: requests to brokers and name servers about topics, groups, offsets, lag, messages and clients.

Every call sends new requests; nothing is cached. Names are the user's: namespaces are added and removed here.
Loop thread.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Self, TypeVar

from firearrow._native.protocol.name_rules import is_system_topic
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.admin_api import records
from firearrow.client.admin_api.message_queries import FOREVER_MS, MessageQueries
from firearrow.client.admin_api.records import (
    ClusterInfo,
    Connection,
    ConsumerConnections,
    ConsumerLag,
    GroupConfig,
    QueueRange,
    TopicConfig,
    read,
)
from firearrow.client.admin_api.requests import AdminCalls, integer_of, milliseconds
from firearrow.client.base import process_exit
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, NoRoute, NotRunning, check
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import Namespace, check_group, check_stored_topic, check_topic
from firearrow.client.base.options import ClientOptions, client_options
from firearrow.client.base.service_state import Startable
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.queue_offsets import QueueOffsets

log = logging.getLogger("firearrow.client")

T = TypeVar("T")
TIMEOUT_S = 6.0
REPLY_SUFFIX = "_REPLY_TOPIC"


class Admin(Startable):
    """`async with Admin(name_server="host:port") as admin`.

    All methods: BrokerError, TransportError, NoRoute.
    """

    def __init__(
        self,
        name_server: str | None = None,
        *,
        client: ClientOptions | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._options = client_options(client, name_server)
        self.namespace = Namespace(self._options.namespace)
        self._timeout_s = timeout_s
        self._instance: ClientInstance | None = None

    async def start(self) -> Self:
        if self._instance is None:
            self._bind()
            self._instance = await ClientInstance.of(self._options)
            process_exit.opened(self)
        return self

    async def close(self) -> None:
        if self._instance is None:
            return
        self._check_loop()
        instance, self._instance = self._instance, None
        process_exit.closed(self)
        await instance.leave()

    @property
    def calls(self) -> AdminCalls:
        """For requests that have no method here."""
        if self._instance is None:
            raise NotRunning("the Admin is not started: use `async with Admin(...)`")
        self._check_loop()
        return AdminCalls(self._instance, self._timeout_s)

    # ---- clusters and brokers ----

    async def cluster_info(self) -> ClusterInfo:
        return await self.calls.clusters()

    async def broker_config(self, broker_name: str) -> dict[str, str]:
        """The configuration that is in effect at the master."""
        answer = await self.calls.ask_broker(broker_name, RequestCode.GET_BROKER_CONFIG)
        lines = answer.body.decode("utf-8", "replace").splitlines()
        pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
        return {name.strip(): value.strip() for name, _, value in pairs}

    async def update_broker_config(self, broker_name: str, values: Mapping[str, str]) -> None:
        lines = [f"{name}={value}\n" for name, value in values.items()]
        if any(line.count("\n") > 1 or "\r" in line for line in lines):
            raise ConfigError("values: a value must not contain a line break")
        await self.calls.ask_broker(broker_name, RequestCode.UPDATE_BROKER_CONFIG, "".join(lines).encode())

    async def broker_runtime(self, broker_name: str) -> dict[str, str]:
        """Counters and states as Apache's tools show them."""
        answer = await self.calls.ask_broker(broker_name, RequestCode.GET_BROKER_RUNTIME_INFO)
        return read(answer.body, records.texts)

    # ---- topics ----

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        read_queues: int | None = None,
        perm: int = 6,
        order: bool = False,
        message_type: str | None = None,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Create or change the topic at every master (of one cluster); the brokers that accepted it.

        Returns once name servers have its route. If no broker accepted it, raises the last broker's error.
        """
        all_attributes = dict(attributes or {}) | ({"message.type": message_type} if message_type else {})
        ext = self._topic_ext(
            TopicConfig(
                topic=topic,
                read_queues=read_queues or queues,
                write_queues=queues,
                perm=perm,
                order=order,
                attributes=all_attributes,
            )
        )
        accepted: list[str] = []
        failures: list[tuple[str, ClientError]] = []
        for name, address in (await self.calls.masters(cluster)).items():
            try:
                await self.calls.ask_again(address, RequestCode.UPDATE_AND_CREATE_TOPIC, ext)
                accepted.append(name)
            except ClientError as error:
                failures.append((name, error))
        raised = failures.pop()[1] if failures and not accepted else None
        for name, failure in failures:
            log.info("topic %s was not created at broker %s: %s", topic, name, failure)
        if raised is not None:
            raise raised
        await self.calls.await_route(ext["topic"], set(accepted))
        return accepted

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete the topic at all masters and name servers. It is not an error if it does not exist."""
        ext = {"topic": self.namespace.wrap(check_stored_topic(topic))}
        await self.calls.ask_masters(RequestCode.DELETE_TOPIC_IN_BROKER, ext, cluster=cluster)
        await self.calls.ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)

    async def topics(self) -> list[str]:
        """All topics of the namespace that name servers know, including system topics and the topics of groups."""
        answer = await self.calls.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = filter(self.namespace.has, read(answer.body, lambda r: r.texts("topicList")))
        return sorted(map(self.namespace.unwrap, names))

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """The topic's configuration by broker name."""
        wrapped = self.namespace.wrap(topic)
        try:
            ext = {"topic": wrapped}
            answers = await self.calls.ask_brokers_of(wrapped, RequestCode.GET_TOPIC_CONFIG, ext)
            configs = {name: read(answer.body, records.topic_config) for name, answer in answers.items()}
        except BrokerError as refused:
            if refused.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            # brokers before 5.0 tell all topics or none
            answers = await self.calls.ask_brokers_of(wrapped, RequestCode.GET_ALL_TOPIC_CONFIG, {})
            tables = {name: read(answer.body, records.topic_configs) for name, answer in answers.items()}
            configs = {name: table[wrapped] for name, table in tables.items() if wrapped in table}
        return {name: replace(config, topic=topic) for name, config in configs.items()}

    async def update_topic(self, broker_name: str, config: TopicConfig) -> None:
        """Create or change the topic at this broker. Attributes that `config` does not have stay as they are."""
        address = await self.calls.master(broker_name)
        await self.calls.ask_again(address, RequestCode.UPDATE_AND_CREATE_TOPIC, self._topic_ext(config))

    async def system_topics(self) -> set[str]:
        """Topics that are not the user's: those with the name of a cluster or broker, and those of brokers."""
        answer, info = await asyncio.gather(
            self.calls.ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS), self.cluster_info()
        )
        replies = {f"{cluster}{REPLY_SUFFIX}" for cluster in info.clusters}
        return {*read(answer.body, lambda r: r.texts("topicList")), *info.clusters, *info.brokers, *replies}

    async def topic_stats(self, topic: str) -> dict[MessageQueue, QueueRange]:
        wrapped = self.namespace.wrap(topic)
        answers = await self.calls.ask_brokers_of(
            wrapped, RequestCode.GET_TOPIC_STATS_INFO, {"topic": wrapped}
        )
        stats = [read(answer.body, records.topic_stats) for answer in answers.values()]
        return self._as_user_queues(pair for each in stats for pair in each.items())

    async def queues(self, topic: str, *, write: bool = False) -> list[MessageQueue]:
        """The readable (or writable) queues by a new route, in the order of allocation.

        NoRoute: there is none.
        """
        wrapped = self.namespace.wrap(topic)
        routes = self.calls.instance.routes
        await routes.refresh(wrapped)
        if write:
            found = list((await routes.publish_info(wrapped, template=wrapped)).queues)
        else:
            found = await routes.subscribe_queues(wrapped)
        if not found:
            raise NoRoute(f"topic {topic} has no {'writable' if write else 'readable'} queue")
        return sorted(replace(queue, topic=topic) for queue in found)

    # ---- offsets of queues ----

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await self._queue_offsets.max_offset(self._as_broker_queue(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._queue_offsets.min_offset(self._as_broker_queue(queue))

    async def earliest_ms(self, queue: MessageQueue) -> int:
        """When the first message was stored (ms since 1970); -1: there is none."""
        return await self._queue_offsets.earliest_ms(self._as_broker_queue(queue))

    async def offset_at(self, queue: MessageQueue, when: datetime | int, *, upper: bool = False) -> int:
        """The first offset stored at `when` (int: ms) or later; `upper`: the last one until then."""
        wrapped = self._as_broker_queue(queue)
        if not upper:
            return await self._queue_offsets.offset_at(wrapped, milliseconds(when))
        ext = {
            "topic": wrapped.topic,
            "queueId": str(queue.queue_id),
            "timestamp": str(milliseconds(when)),
            "boundaryType": "UPPER",
        }
        answer = await self.calls.ask_master(wrapped, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        return integer_of(check(answer, queue.broker_name), "offset", queue.broker_name)

    # ---- messages ----

    async def view_message(self, topic: str, message_id: str) -> ReceivedMessage:
        """Find a message by its offset id or unique id. ClientError NO_MESSAGE (208)."""
        return await self._queries.view(topic, message_id)

    async def message_by_unique_id(
        self, topic: str, unique_id: str, begin_ms: int | None = None, end_ms: int = FOREVER_MS
    ) -> ReceivedMessage:
        """Find a message, by default among those of the last three days. ClientError NO_MESSAGE (208)."""
        return await self._queries.by_unique_id(topic, unique_id, begin_ms, end_ms)

    async def messages_by_key(
        self, topic: str, key: str, most: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[ReceivedMessage]:
        """Messages with a key, oldest first, at most `most` of each broker."""
        return await self._queries.by_key(topic, key, most, begin_ms, end_ms)

    # ---- consumer groups ----

    async def create_group(self, config: GroupConfig | str, cluster: str | None = None) -> None:
        """Create or change the group at every master (of one cluster); a name alone means the defaults."""
        full_config = GroupConfig(group=config) if isinstance(config, str) else config
        body = replace(full_config, group=self.namespace.wrap(check_group(full_config.group))).encode()
        await self.calls.ask_masters(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body, cluster=cluster
        )

    async def delete_group(self, group: str, *, offsets: bool = True, cluster: str | None = None) -> None:
        """Delete the group, and by default its offsets, at every master.

        Retry and dead-letter topics remain.
        """
        flag = str(offsets).lower()
        ext = {"groupName": self.namespace.wrap(group), "cleanOffset": flag, "removeOffset": flag}
        await self.calls.ask_masters(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext, cluster=cluster)

    async def groups(self) -> dict[str, GroupConfig]:
        """The groups of all masters, of the namespace."""
        found: dict[str, GroupConfig] = {}
        for answer in await self.calls.ask_masters(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            found |= read(answer.body, records.groups)
        space = self.namespace
        plain = {space.unwrap(name): config for name, config in found.items() if space.has(name)}
        return {
            name: config if name == config.group else replace(config, group=name)
            for name, config in plain.items()
        }

    async def groups_of(self, topic: str) -> list[str]:
        """Groups that have an offset in the topic or members that subscribe it."""
        wrapped = self.namespace.wrap(topic)
        answers = await self.calls.ask_brokers_of(
            wrapped, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": wrapped}
        )
        names = {name for a in answers.values() for name in read(a.body, lambda r: r.texts("groupList"))}
        return sorted(map(self.namespace.unwrap, names))

    async def consumer_lag(self, group: str, topic: str | None = None) -> ConsumerLag:
        """The progress and lag of the group, in one topic or in all topics in which it has offsets."""
        ext = {"consumerGroup": self.namespace.wrap(group)}
        if topic is not None:
            ext["topic"] = self.namespace.wrap(topic)
        answers = await self.calls.ask_masters(RequestCode.GET_CONSUME_STATS, ext)
        lags = [read(answer.body, records.consumer_lag) for answer in answers]
        queues = self._as_user_queues(pair for each in lags for pair in each.queues.items())
        return ConsumerLag(sum(each.tps for each in lags), queues)

    async def offset(self, group: str, queue: MessageQueue) -> int | None:
        """The group's offset at the broker; None: it has none."""
        ext = self._group_queue(group, queue) | {"setZeroIfNotFound": "false"}
        answer = await self.calls.ask_master(
            self._as_broker_queue(queue), RequestCode.QUERY_CONSUMER_OFFSET, ext
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return integer_of(check(answer, queue.broker_name), "offset", queue.broker_name)

    async def update_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset. Running members overwrite it: see `reset_offsets`."""
        ext = self._group_queue(group, queue) | {"commitOffset": str(offset)}
        answer = await self.calls.ask_master(
            self._as_broker_queue(queue), RequestCode.UPDATE_CONSUMER_OFFSET, ext
        )
        check(answer, queue.broker_name)

    async def reset_offsets(
        self, group: str, topic: str, when: datetime | int | None, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset the group to `when` (int: ms; None: the end), running members included; the new offsets.

        Without `force` no offset is moved forward.
        """
        time_ms = -1 if when is None else milliseconds(when)
        wrapped = self.namespace.wrap(topic)
        ext = {
            "topic": wrapped,
            "group": self.namespace.wrap(group),
            "timestamp": str(time_ms),
            "isForce": str(force).lower(),
            "queueId": "-1",
        }
        answers = await self.calls.ask_brokers_of(wrapped, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        resets = [read(answer.body, records.reset_offsets) for answer in answers.values()]
        return self._as_user_queues(pair for each in resets for pair in each.items())

    # ---- clients ----

    async def consumers(self, group: str) -> ConsumerConnections:
        """BrokerError CONSUMER_NOT_ONLINE (206): no member is connected."""
        ext = {"consumerGroup": self.namespace.wrap(group)}
        found = await self.calls.ask_who_knows(RequestCode.GET_CONSUMER_CONNECTION_LIST, ext)
        all_ = [read(answer.body, records.consumer_connections) for answer in found]
        subscriptions = {
            self.namespace.unwrap(topic): replace(subscription, topic=self.namespace.unwrap(topic))
            for topic, subscription in all_[0].subscriptions.items()
        }
        return replace(
            all_[0],
            subscriptions=subscriptions,
            connections=_distinct(c for each in all_ for c in each.connections),
        )

    async def producers(self, group: str) -> tuple[Connection, ...]:
        """BrokerError: no producer of this group is connected."""
        found = await self.calls.ask_who_knows(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": self.namespace.wrap(group)}
        )
        return _distinct(c for answer in found for c in read(answer.body, records.connections))

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> dict[str, Any]:
        """A member's running info: the JSON object unchanged, with queues as keys of its `mqTable`."""
        ext = {
            "consumerGroup": self.namespace.wrap(group),
            "clientId": client_id,
            "jstackEnable": str(stacks).lower(),
        }
        found = await self.calls.ask_who_knows(RequestCode.GET_CONSUMER_RUNNING_INFO, ext)
        return read(found[0].body, lambda members: dict(members.pairs()))

    # ---- internal ----

    @property
    def _queue_offsets(self) -> QueueOffsets:
        return QueueOffsets(self.calls.instance)

    @property
    def _queries(self) -> MessageQueries:
        return MessageQueries(self.calls.instance, self._timeout_s)

    def _as_broker_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue with the topic's name at the brokers."""
        return replace(queue, topic=self.namespace.wrap(queue.topic))

    def _as_user_queues(self, table: Iterable[tuple[MessageQueue, T]]) -> dict[MessageQueue, T]:
        """The table with the user's topic names, sorted."""
        plain = {replace(queue, topic=self.namespace.unwrap(queue.topic)): value for queue, value in table}
        return dict(sorted(plain.items()))

    def _topic_ext(self, config: TopicConfig) -> dict[str, str]:
        """The fields that create or change a topic. ConfigError: it is a system topic, or not a name."""
        if is_system_topic(check_topic(config.topic)):
            raise ConfigError(f"topic {config.topic} is a system topic and cannot be created")
        return {
            "topic": self.namespace.wrap(config.topic),
            "defaultTopic": "TBW102",
            "readQueueNums": str(config.read_queues),
            "writeQueueNums": str(config.write_queues),
            "perm": str(config.perm),
            "topicFilterType": config.filter_type,
            "topicSysFlag": str(config.sys_flag),
            "order": str(config.order).lower(),
            "attributes": ",".join(f"+{name}={value}" for name, value in config.attributes.items()),
        }

    def _group_queue(self, group: str, queue: MessageQueue) -> dict[str, str]:
        return {
            "consumerGroup": self.namespace.wrap(group),
            "topic": self.namespace.wrap(queue.topic),
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }


def _distinct(found: Iterable[Connection]) -> tuple[Connection, ...]:
    """One connection for each client, which may be connected to several brokers; sorted by client id."""
    return tuple(sorted({each.client_id: each for each in found}.values(), key=lambda each: each.client_id))
