"""Facts of a running cluster, FireArrow's or Apache's: what its name servers and brokers answer. Loop thread.

Each broker is asked separately, so that one that cannot be reached hides no other. What FireArrow alone answers is
left out at Apache's brokers. Reading a message commits nothing. Names are those of the brokers.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import PullFlag, RequestCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.client.admin_api import records
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extensions import Extensions
from firearrow.client.admin_api.listings import ListedGroup, ListedTopic, listed_groups, listed_topics
from firearrow.client.admin_api.records import Connection, ConsumerLag, Members, QueueLag, read
from firearrow.client.admin_api.replicas import replicas
from firearrow.client.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    OnlyFireArrow,
    TransportError,
)
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.base.times import now_ms
from firearrow.client.cli.doctor.facts import (
    BROADCASTING,
    Broker,
    Facts,
    Group,
    Lock,
    Progress,
    Queue,
    QueueState,
    Sample,
    Topic,
)
from firearrow.client.cli.doctor.group_checks import NEEDS_FIREARROW, RETRIES_WINDOW_MS
from firearrow.client.cli.doctor.name_server_facts import addresses_of, ask_name_servers, look_around

T = TypeVar("T")
READER = "TOOLS_CONSUMER"
"""The group of Apache's tools, which every broker has."""
AT_ONCE = 16
OFFSETS_ASKED_MAX, HEADS_MAX, SAMPLES_MAX = 5_000, 500, 500
MEMBERS_ASKED_MAX = 10
"""Members of one group that are asked for their subscriptions, at Apache's brokers."""
QUEUES_MAX = 4096
WATCHED_MAX, WATCHED_LAG, WATCHES = 50, 1000, 3
"""Groups whose lag is read WATCHES times while we watch: those with the largest lags, of WATCHED_LAG messages or with
messages that wait for long."""
PAST_MS, PAST_PARTS, PAST_STEPS_MIN = 3_600_000, 6, 60
"""Of the history: how far back, into how many parts it is divided, and how many values there must be."""
MEMBER_S = 3.0
NOTHING: Mapping[int, int] = {}
Filled = tuple[int, Queue, int, int, int | None, bool]
"""A queue with messages: its number, itself, its first offset and its end, the offset of a group without one there (the
end: consumers are not given the queue), and whether checks look it up"""
DELAYED = ("DELAY", "TIMER_OUT_MS", "REAL_TOPIC", "ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "TRAN_MSG")
"""Properties of messages that were stored later than they were sent."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A group stands if the message that it stands on is older than `stands_ms`, and it does not move in `watch_s`."""

    stands_ms: int
    watch_s: float


async def cluster_facts(admin: Admin, facts: Facts, name_server: str, watch: Watch) -> None:
    """Fills `facts`. TransportError, NoNameServer: no name server answers."""
    facts.name_servers = await ask_name_servers(admin, addresses_of(name_server))
    answering = [each.address for each in facts.name_servers if each.fault is None]
    if answering:  # the others delay each question, or answer it with an error
        admin.calls.instance.name_servers.update(";".join(answering))
    for name, ids in (await admin.calls.clusters()).brokers.items():
        if 0 in ids:
            facts.brokers[name] = Broker(name, ids[0])
    await _each(facts.brokers.values(), lambda broker: _ask_broker(admin, broker))
    facts.replicas = await replicas(admin)
    cluster = _Cluster(admin, facts)
    await cluster.topics()
    await cluster.groups()
    await cluster.heads()
    await cluster.samples()
    await cluster.subscriptions()
    await cluster.locks()
    await look_around(admin, facts)
    await past_lags(admin, facts)
    await cluster.watch(watch)


async def _ask_broker(admin: Admin, broker: Broker) -> None:
    ask = admin.calls.ask
    try:
        answer = await ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        broker.runtime = read(answer.body, records.texts)
        broker.config = await admin.broker_config(broker.name)
    except TransportError as error:
        broker.fault = str(error)
        return
    except ClientError:
        pass  # it does not let us see it: the defaults count
    with contextlib.suppress(ClientError):
        answer = await ask(broker.address, RequestCode.GET_ALL_DELAY_OFFSET)
        broker.delay_offsets = read(answer.body, _delay_offsets)
    begin_ms = now_ms()
    try:
        broker.machine = await Extensions(admin).machine(broker.name)
        broker.status = await Extensions(admin).status(broker.name)
    except OnlyFireArrow:
        broker.unknown = NEEDS_FIREARROW
    except ClientError as error:
        broker.unknown = str(error)
    if broker.machine is not None:
        broker_ms = broker.machine["nowMs"]
        broker.ahead_ms = broker_ms - min(max(broker_ms, begin_ms), now_ms())


class _Cluster:
    """Fills `facts`."""

    def __init__(self, admin: Admin, facts: Facts) -> None:
        self._admin = admin
        self._facts = facts
        self._brokers = list(facts.asked_brokers())
        self._listed: dict[str, dict[str, ListedGroup]] = {}
        """Broker → its groups, at brokers that list them."""
        self._queues: dict[str, dict[str, tuple[int, list[Filled]]]] = {}
        """The same brokers → topic → how many of its queues are read, and those that have messages."""
        self._highest: dict[str, dict[str, int]] = {}
        """Broker → topic → the highest queue in which a group has an offset."""

    # ---- topics ----

    async def topics(self) -> None:
        for broker, table in await self._of_each_broker(RequestCode.GET_ALL_TOPIC_CONFIG, _topic_configs):
            for name, config in table.items():
                self._facts.topics.setdefault(name, Topic(name)).configs[broker] = config
        for asked in self._brokers:
            with contextlib.suppress(OnlyFireArrow, BrokerError, TransportError):
                groups = await listed_groups(self._admin.calls, asked.address, details=True)
                self._list_topics(asked.name, await listed_topics(self._admin.calls, asked.address), groups)
                self._listed[asked.name] = groups
        await _each(self._unlisted(), self._highest_queues)
        await _each(self._facts.topics.values(), self._topic)
        await _each(self._facts.topics.values(), self._redriven)

    def _list_topics(
        self, broker: str, listed: Mapping[str, ListedTopic], groups: Mapping[str, ListedGroup]
    ) -> None:
        """All topics of a broker that lists them, with the groups that read them."""
        queues = self._queues[broker] = {}
        for name, found in listed.items():
            topic = self._facts.topics.get(name)
            if topic is not None and broker in topic.configs:
                for each in found.queues:
                    state = QueueState(each.min_offset, each.max_offset, each.last_ms)
                    topic.queues[Queue(name, broker, each.queue_id)] = state
                queues[name] = topic.configs[broker].read_queues, _filled(topic, broker)
        read = {
            name: topic.groups
            for name, topic in self._facts.topics.items()
            if topic.is_plain or name.startswith(DLQ)
        }
        for group, row in groups.items():
            for name in {*row.offsets, *row.subscriptions} & read.keys() if group != READER else ():
                read[name].add(group)

    async def _highest_queues(self, broker: Broker) -> None:
        """Of a broker that does not list its queues: queues that topics had, and have no more, are found by them."""
        for found in await self._may(broker.name, RequestCode.GET_ALL_CONSUMER_OFFSET, {}, _highest_queues):
            self._highest[broker.name] = found

    async def _topic(self, topic: Topic) -> None:
        """What brokers that do not list all topics report of this one."""
        ext = {"topic": topic.name}
        for broker in self._of(topic.configs):
            if broker in self._listed:
                continue
            for stats in await self._may(broker, RequestCode.GET_TOPIC_STATS_INFO, ext, records.topic_stats):
                for queue, found in stats.items():
                    state = QueueState(found.min_offset, found.max_offset, found.last_ms)
                    topic.queues[_queue(queue, broker)] = state
            await self._beyond(topic, broker)
            if topic.is_plain or topic.name.startswith(DLQ):
                for names in await self._may(
                    broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext, _groups_of_topic
                ):
                    topic.groups |= set(names) - {READER}
        if topic.name.startswith(RETRY):
            await self._recent(topic)

    async def _redriven(self, topic: Topic) -> None:
        """How far `firearrow dlq` has come with dead letters."""
        if topic.name.startswith(DLQ):
            for queue, state in topic.queues.items():
                if state.messages:
                    state.redriven = await self._offset(READER, queue) or 0

    async def _beyond(self, topic: Topic, broker: str) -> None:
        """Queues that the topic had and has no more, with what they hold: statistics do not list them. Apache's broker
        makes an object for each queue that it is asked about: it is asked up to the first one that is empty, and for
        those in which a group has an offset."""
        config = topic.configs[broker]
        number, found = max(config.read_queues, config.write_queues), topic.is_plain
        highest = min(self._highest.get(broker, {}).get(topic.name, -1), QUEUES_MAX)
        while number < QUEUES_MAX and topic.is_plain and (found or number <= highest):
            queue, ext = Queue(topic.name, broker, number), {"topic": topic.name, "queueId": str(number)}
            end = await self._number(broker, RequestCode.GET_MAX_OFFSET, ext)
            found = bool(end)
            if end:
                begin = await self._number(broker, RequestCode.GET_MIN_OFFSET, ext)
                topic.queues[queue] = QueueState(max(begin or 0, 0), end, 0)
            number += 1

    async def _recent(self, topic: Topic) -> None:
        since_ms = self._facts.now_ms - RETRIES_WINDOW_MS
        for queue, state in topic.queues.items():
            if state.last_ms >= since_ms:
                ext = {"topic": topic.name, "queueId": str(queue.number), "timestamp": str(since_ms)}
                first = await self._number(queue.broker, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
                state.recent = 0 if first is None else max(state.max_offset - max(first, state.min_offset), 0)

    # ---- groups ----

    async def groups(self) -> None:
        all_groups = self._facts.groups
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        for _, table in await self._of_each_broker(code, records.groups):
            for name, config in table.items():
                all_groups.setdefault(name, Group(name)).config = config
        for topic in self._facts.topics.values():
            for name in topic.groups:
                all_groups.setdefault(name, Group(name))
        await _each(self._facts.plain_groups(), self._group)
        unlisted = {broker.name for broker in self._unlisted()}
        unknown = [
            (group, queue)
            for group in (self._facts.plain_groups() if unlisted else ())
            for queue, each in group.progress.items()
            if each.committed == 0 and each.max_offset > 0 and queue.broker in unlisted
        ]
        for topic in self._facts.plain_topics():
            unknown += [pair for pair in self._unread_queues(topic) if pair[1].broker in unlisted]
        if len(unknown) > OFFSETS_ASKED_MAX:
            self._facts.unasked.append(
                f"whether offsets are stored: of {OFFSETS_ASKED_MAX} of {len(unknown)} queues"
            )
        await _each(unknown[:OFFSETS_ASKED_MAX], lambda pair: self._stored_offset(*pair))

    def _unread_queues(self, topic: Topic) -> list[tuple[Group, Queue]]:
        """Of queues that consumers are not given; the lag of a group does not have them at each broker."""
        found = []
        for queue, state in topic.queues.items():
            if state.messages and queue.number >= topic.configs[queue.broker].read_queues:
                groups = (self._facts.groups[name] for name in sorted(topic.groups))
                for group in (each for each in groups if each.is_plain and each.model != BROADCASTING):
                    if queue not in group.progress:
                        committed = self._committed(group.name, queue)
                        group.progress[queue] = Progress(committed, state.min_offset, state.max_offset)
                    found.append((group, queue))
        return found

    async def _group(self, group: Group) -> None:
        members: dict[str, Connection] = {}
        ext = {"consumerGroup": group.name}
        for broker in self._brokers:
            if broker.name in self._listed:
                self._add_members(group, members, self._listed[broker.name].get(group.name))
                continue
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            for found in await self._may(broker.name, code, ext, records.consumer_connections):
                members |= {each.client_id: each for each in found.connections}
                group.model, group.from_where = found.model, found.from_where
                for topic, subscription in found.subscriptions.items():
                    group.subscriptions[topic] = subscription.expression
        group.members = tuple(members.values())
        if group.model != BROADCASTING:
            await self._progress(group)

    def _add_members(self, group: Group, members: dict[str, Connection], listed: ListedGroup | None) -> None:
        if listed is not None and listed.members:
            members |= {each.client_id: each for each in listed.connections}
            group.model, group.from_where = listed.message_model, listed.consume_from_where
            group.subscriptions |= listed.subscriptions

    def _committed(self, group: str, queue: Queue) -> int | None:
        """At a broker that lists its groups; None: it has committed nothing, or the broker does not list them."""
        listed = self._listed.get(queue.broker, {}).get(group)
        return None if listed is None else listed.offsets.get(queue.topic, {}).get(queue.number)

    def _listed_progress(self, group: Group) -> None:
        """As GET_CONSUME_STATS has it: of topics with an offset of the group; while it has members, of those to which
        they subscribe. All groups of a large cluster have a million queues: only what checks read gets an object."""
        progress, reads = group.progress, False
        for broker, listed in self._listed.items():
            row = listed.get(group.name)
            if row is None:
                continue
            topics = self._queues[broker]
            for name in sorted(group.subscriptions) if row.members else row.offsets:
                offsets = row.offsets.get(name, NOTHING)
                read_queues, queues = topics.get(name, (0, ()))
                reads = reads or any(number < read_queues for number in offsets)
                for number, queue, low, end, absent, is_looked_up in queues:
                    offset = offsets.get(number, absent)
                    if offset is None or offset < end or is_looked_up:
                        progress[queue] = Progress(offset, low, end)
        group.reads = reads

    async def _progress(self, group: Group) -> None:
        self._listed_progress(group)
        if len(self._listed) == len(self._brokers):
            return
        for queue, lag in (await self._lags(group, self._unlisted())).items():
            topic = self._facts.topics.get(queue.topic)
            state = None if topic is None else topic.queues.get(queue)
            minimum = 0 if state is None else state.min_offset
            group.progress[queue] = Progress(lag.consumer_offset, minimum, lag.broker_offset)
            if topic is not None and (topic.is_plain or topic.name.startswith(DLQ)):
                topic.groups.add(group.name)

    def _unlisted(self) -> list[Broker]:
        return [broker for broker in self._brokers if broker.name not in self._listed]

    async def _lags(self, group: Group, brokers: Iterable[Broker]) -> dict[Queue, QueueLag]:
        """In the topics that have offsets of the group, and in those that its members subscribe to."""
        found: dict[Queue, QueueLag] = {}
        ext = {"consumerGroup": group.name}
        code = RequestCode.GET_CONSUME_STATS
        for broker in brokers:
            answers: list[ConsumerLag] = await self._may(broker.name, code, ext, records.consumer_lag)
            known = {queue.topic for lags in answers for queue in lags.queues}
            for topic in group.subscriptions:
                if topic not in known and broker.name in self._configs_of(topic):
                    answers += await self._may(
                        broker.name, code, ext | {"topic": topic}, records.consumer_lag
                    )
            found |= {
                _queue(queue, broker.name): lag for lags in answers for queue, lag in lags.queues.items()
            }
        return found

    async def _stored_offset(self, group: Group, queue: Queue) -> None:
        """Tell an offset 0 from none."""
        group.progress[queue].committed = await self._offset(group.name, queue)

    async def _offset(self, group: str, queue: Queue) -> int | None:
        """None: it has committed none."""
        named = {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.number)}
        ext = named | {"setZeroIfNotFound": "false"}
        return await self._number(queue.broker, RequestCode.QUERY_CONSUMER_OFFSET, ext)

    # ---- messages ----

    async def heads(self) -> None:
        """The next message of each queue that a group has not read to its end."""
        waiting = [
            (group, queue, each)
            for group in sorted(self._facts.plain_groups(), key=lambda group: not group.members)
            for queue, each in group.progress.items()
            if _waits(group, each) and not queue.topic.startswith(DLQ)
        ]
        self._bounded("the messages that groups stand on", waiting, HEADS_MAX)
        await _each(waiting[:HEADS_MAX], lambda entry: self._head(*entry))

    async def _head(self, group: Group, queue: Queue, progress: Progress) -> None:
        for message in await self._message(queue, progress.next_offset):
            progress.head = message
            group.heads[queue] = progress

    async def samples(self) -> None:
        """The last message of each topic's busiest queues."""
        wanted: list[tuple[Topic, Queue, int]] = []
        for topic in self._facts.plain_topics():
            states = [
                (state.last_ms, queue, state) for queue, state in topic.queues.items() if state.messages
            ]
            wanted += [
                (topic, queue, state.max_offset - 1) for _, queue, state in sorted(states, reverse=True)[:2]
            ]
        self._bounded("the last messages of topics", wanted, SAMPLES_MAX)

        async def sample(entry: tuple[Topic, Queue, int]) -> None:
            topic, queue, offset = entry
            topic.newest += await self._message(queue, offset)

        await _each(wanted[:SAMPLES_MAX], sample)

    async def _message(self, queue: Queue, offset: int) -> list[Sample]:
        ext = {
            "consumerGroup": READER,
            "topic": queue.topic,
            "queueId": str(queue.number),
            "queueOffset": str(offset),
            "maxMsgNums": "1",
            "sysFlag": str(int(PullFlag.PULL_SUBSCRIPTION)),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        try:
            answer = await self._ask(queue.broker, RequestCode.PULL_MESSAGE, ext)
            return list(map(_sample, decode_messages(answer.body, queue.broker, _unopened)))
        except (ClientError, RecordError):
            return []

    # ---- clients ----

    async def subscriptions(self) -> None:
        """What the members of groups subscribe to, where they differ: FireArrow's broker knows, Apache's members are
        asked."""
        for broker in self._brokers:
            for each in (broker.machine or {}).get("differences", ()):
                kinds = [
                    (str(kind["subscribed"]), [str(name) for name in kind["clients"]])
                    for kind in each["members"]
                ]
                self._facts.groups.setdefault(each["group"], Group(each["group"])).differing = kinds
        if any(broker.machine is None for broker in self._brokers):
            many = [group for group in self._facts.plain_groups() if len(group.members or ()) > 1]
            await _each(many, self._compare)

    async def locks(self) -> None:
        """Of the brokers that list them."""
        for broker in self._brokers:
            with contextlib.suppress(ClientError):
                found = await Extensions(self._admin).queue_locks(broker=broker.name)
                locks = [] if self._facts.locks is None else self._facts.locks
                locks += [
                    Lock(
                        each.group,
                        Queue(each.topic, broker.name, each.queue_id),
                        each.client_id,
                        each.connected,
                        each.head_msg_id,
                    )
                    for each in found
                ]
                self._facts.locks = locks
                if found.more:
                    self._facts.unasked.append(
                        f"locks of ordered queues at {broker.name}: {len(locks)} were read"
                    )

    async def _compare(self, group: Group) -> None:
        kinds: dict[str, list[str]] = {}
        for member in (group.members or ())[:MEMBERS_ASKED_MAX]:
            ext = {"consumerGroup": group.name, "clientId": member.client_id, "jstackEnable": "false"}
            subscribed = await self._subscribed(ext)
            if subscribed is None:
                group.silent.append(member.client_id)
            elif subscribed:
                kinds.setdefault(subscribed, []).append(member.client_id)
        if len(kinds) > 1:
            group.differing = list(kinds.items())

    async def _subscribed(self, ext: Mapping[str, str]) -> str | None:
        for broker in self._brokers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MEMBER_S):
                    code = RequestCode.GET_CONSUMER_RUNNING_INFO
                    for found in await self._may(broker.name, code, ext, _subscriptions_text):
                        return found
        return None

    async def watch(self, watch: Watch) -> None:
        """Look again at the groups that may stand still, and several times at those whose lag may only grow."""
        now = self._facts.now_ms
        doubtful = [
            (group, queue, each)
            for group in self._facts.plain_groups()
            if group.members
            for queue, each in group.heads.items()
            if each.head is not None and now - each.head.stored_ms >= watch.stands_ms
        ]
        groups = {group.name: group for group, _, _ in doubtful}
        large = [each for each in self._facts.plain_groups() if each.members and each.lag >= WATCHED_LAG]
        growing = {each.name: each for each in (*groups.values(), *large)}
        growing = dict(sorted(growing.items(), key=lambda pair: -pair[1].lag)[:WATCHED_MAX])
        if not growing:
            return
        self._facts.watched_ms = round(watch.watch_s * 1000)
        for count in range(WATCHES + 1):
            await asyncio.sleep(watch.watch_s / WATCHES if count else 0)
            wanted = growing if count < WATCHES else groups | growing
            again = {name: await self._lags(group, self._brokers) for name, group in wanted.items()}
            for name, group in growing.items():
                group.watched_lags.append(sum(lag.messages for lag in again[name].values()))
        for group, queue, each in doubtful:
            lag = again[group.name].get(queue)
            each.stands = lag is not None and lag.consumer_offset == (each.committed or 0)

    # ---- requests ----

    def _of(self, names: Iterable[str]) -> list[str]:
        """Those of these brokers that answer."""
        return [name for name in names if any(broker.name == name for broker in self._brokers)]

    def _configs_of(self, topic: str) -> Iterable[str]:
        found = self._facts.topics.get(topic)
        return () if found is None else found.configs

    def _bounded(self, what: str, asked: list[Any], at_most: int) -> None:
        if len(asked) > at_most:
            self._facts.unasked.append(f"{what}: {at_most} of {len(asked)} were read")

    async def _ask(
        self, broker: str, code: RequestCode, ext: Mapping[str, str] | None = None
    ) -> RemotingCommand:
        """ClientError."""
        try:
            return await self._admin.calls.ask(self._facts.brokers[broker].address, code, ext)
        except (ConnectFailed, ConnectionLost) as error:
            self._facts.brokers[broker].fault = str(error)
            raise

    async def _may(
        self, broker: str, code: RequestCode, ext: Mapping[str, str], reader: Callable[[Members], T]
    ) -> list[T]:
        """One answer, or none if the broker refuses: it has no such group, or no member of it."""
        try:
            return [read((await self._ask(broker, code, ext)).body, reader)]
        except ClientError:
            return []

    async def _number(self, broker: str, code: RequestCode, ext: Mapping[str, str]) -> int | None:
        """The field `offset` of the answer; None: there is none."""
        try:
            return (await self._ask(broker, code, ext)).integer("offset")
        except (ClientError, FieldError):
            return None

    async def _of_each_broker(self, code: RequestCode, reader: Callable[[Members], T]) -> list[tuple[str, T]]:
        """BrokerError: it does not let us see its topics or groups."""
        found = []
        for broker in self._brokers:
            with contextlib.suppress(TransportError):
                found.append((broker.name, read((await self._ask(broker.name, code)).body, reader)))
        return found


async def past_lags(admin: Admin, facts: Facts) -> None:
    """What FireArrow's brokers know of the last hour: a lag that grows slowly does not show while we watch."""
    for broker in facts.asked_brokers():
        if broker.machine is None:
            continue
        try:
            past = await Extensions(admin).history(broker.name, facts.now_ms - PAST_MS, facts.now_ms, "lag:")
        except ClientError:
            continue
        for name, values in past["series"].items():
            group = facts.groups.get(name.removeprefix("lag:").partition("@")[0])
            known = [value for value in values if value is not None]
            if group is not None and len(known) >= PAST_STEPS_MIN:
                size = len(known) // PAST_PARTS
                parts = [known[at * size : (at + 1) * size] for at in range(PAST_PARTS)]
                means = [sum(part) / size for part in parts]
                before = group.past_lags or [0.0] * PAST_PARTS
                group.past_lags = [one + two for one, two in zip(before, means, strict=True)]
                group.past_ms = max(group.past_ms, len(known) * past["stepMs"])


def _filled(topic: Topic, broker: str) -> list[Filled]:
    config, found = topic.configs[broker], []
    for queue, state in topic.queues.items():
        if queue.broker == broker and state.max_offset:
            is_read = queue.number < config.read_queues
            is_looked_up = is_read and (queue.number >= config.write_queues or topic.name.startswith(DLQ))
            absent = None if is_read else state.max_offset
            found.append((queue.number, queue, state.min_offset, state.max_offset, absent, is_looked_up))
    return found


def _waits(group: Group, progress: Progress) -> bool:
    """Whether the queue has a next message for the group, as far as that can be known."""
    if progress.min_offset >= progress.max_offset:
        return False
    if progress.committed is not None:
        return progress.committed < progress.max_offset
    begins_at_first = group.from_where == "CONSUME_FROM_FIRST_OFFSET" or progress.min_offset == 0
    return bool(group.members) and begins_at_first


async def _each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """A few at a time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> None:
        async with turns:
            await work(item)

    async with asyncio.TaskGroup() as tasks:
        for item in list(items):
            tasks.create_task(one(item))


def _queue(queue: MessageQueue, broker: str) -> Queue:
    return Queue(queue.topic, broker, queue.queue_id)


def _topic_configs(wrapper: Members) -> dict[str, records.TopicConfig]:
    table = wrapper.members("topicConfigTable").pairs()
    return {str(name): records.topic_config(Members(config)) for name, config in table}


def _delay_offsets(answer: Members) -> dict[int, int]:
    table = answer.members("offsetTable").pairs()
    return {int(level): offset for level, offset in table if level.isdecimal() and isinstance(offset, int)}


def _highest_queues(answer: Members) -> dict[str, int]:
    """Topic → the highest queue in which a group has an offset."""
    found: dict[str, int] = {}
    for key, offsets in answer.members("offsetTable").pairs():
        topic = str(key).partition("@")[0]
        numbers = [int(number) for number, _ in Members(offsets).pairs() if str(number).isdecimal()]
        found[topic] = max([found.get(topic, -1), *numbers])
    return found


def _groups_of_topic(answer: Members) -> list[str]:
    return answer.texts("groupList")


def _subscriptions_text(info: Members) -> str:
    """`bills *, orders TagA`, in one order whatever the client; empty if it subscribes to nothing."""
    found = []
    for each in map(Members, info.items("subscriptionSet")):
        topic, expression = each.text("topic"), each.text("subString") or "*"
        if each.text("expressionType", "TAG") in ("TAG", ""):
            expression = "||".join(sorted({tag.strip() for tag in expression.split("||")}))
        if not topic.startswith(RETRY):
            found.append(f"{topic} {expression}")
    return ", ".join(sorted(found))


def _sample(message: ReceivedMessage) -> Sample:
    return Sample(
        message.message_id,
        message.born_timestamp,
        message.store_timestamp,
        message.store_size,
        message.born_host,
        any(message.get_property(name) is not None for name in DELAYED),
    )


def _unopened(_flags: int, body: bytes) -> bytes:
    """Bodies stay compressed: nothing looks at them."""
    return body
