"""Manage consumer groups: list, show, create, lag, members, seek, pause, delete and diff."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firearrow._native.protocol.name_rules import dlq_topic, retry_topic
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.admin_api.overview import BROADCASTING, Overview
from firearrow.client.admin_api.records import (
    ConsumerConnections,
    ConsumerLag,
    GroupConfig,
    QueueLag,
    QueueRange,
)
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError, TransportError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.times import now_ms, time_ms
from firearrow.client.cli.command import FOUND_TROUBLE, Call, Command, of_each, positive
from firearrow.client.cli.formats import is_system_group, version_text
from firearrow.client.cli.output import Colour, Column, Kind, titled

WATCH_S = 2.0
LIST_COLUMNS = (
    Column("group", "GROUP"),
    Column("consuming", "MAY CONSUME", colour=lambda row: None if row["consuming"] else Colour.YELLOW),
    Column("retriesMax", "RETRIES", Kind.COUNT),
    Column("members", "MEMBERS", Kind.COUNT),
    *titled("type", "model"),
    Column("lag", "LAG", Kind.COUNT),
)
LAG_COLUMNS = (
    *titled("topic", "broker"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("consumerOffset", "CONSUMED", Kind.COUNT),
    Column("brokerOffset", "NEXT", Kind.COUNT),
    Column("lag", "LAG", Kind.COUNT),
    Column("lastMs", "CONSUMED UP TO", Kind.TIME),
    Column("behindMs", "BEHIND", Kind.AGE),
)
TOPIC_COLUMNS = (
    *titled("topic", "filter"),
    Column("lag", "LAG", Kind.COUNT),
    Column("lastMs", "CONSUMED UP TO", Kind.TIME),
)
MEMBER_COLUMNS = (
    Column("clientId", "CLIENT"),
    *titled("address", "language", "version"),
)
SEEK_COLUMNS = (
    *titled("topic", "broker"),
    Column("queueId", "QUEUE", Kind.COUNT),
    *titled("from", "to", "skipped", "repeated", kind=Kind.COUNT),
)
DIFF_COLUMNS = (
    Column("clientId", "CLIENT"),
    *titled("what", "value"),
    Column("others", "MOST OTHERS"),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("group", __doc__)
    verb = command.verb("list", list_groups)
    verb.argument("--all", action="store_true", help="include groups of Apache's tools")
    verb.argument("-l", "--long", action="store_true", help="show members and lag")
    verb = command.verb("show", show)
    verb.argument("group")
    verb = command.verb("create", create)
    verb.argument("group")
    verb.argument(
        "--orderly", action="store_true", help="clients of gRPC get the messages of a queue in order"
    )
    verb.argument(
        "--retries",
        type=int,
        metavar="N",
        help="times that a message comes again before it is a dead letter (default 16)",
    )
    verb.argument("--cluster", help="only at the masters of this cluster")
    verb = command.verb("lag", lag)
    verb.argument("group").argument("topic", nargs="?")
    verb.argument(
        "--watch",
        nargs="?",
        const=WATCH_S,
        type=positive,
        metavar="S",
        help="repeat every S seconds (default 2)",
    )
    verb.argument("--max", type=int, metavar="N", help="exit with 1 if the total lag is over N messages")
    verb = command.verb("members", members)
    verb.argument("group")
    _moving_verbs(command)
    verb = command.verb("diff", diff)
    verb.argument("group")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


def _moving_verbs(command: Command) -> None:
    verb = command.verb("seek", seek)
    verb.argument("group").argument(
        "topic", nargs="?", help="a topic (default: all in which the group has offsets)"
    )
    verb.argument("--to", metavar="start|end|TIME", help="position to continue from")
    verb.argument(
        "--offset",
        type=int,
        help="offset to continue from; needs a topic, --queue, and a group without members",
    )
    verb.argument("--queue", type=int, help="only in this queue")
    verb.moving()
    verb = command.verb("pause", pause)
    verb.argument("group")
    verb.argument("--topic", help="only this topic")
    verb.argument("--resume", action="store_true", help="let the group consume again")
    verb.moving()
    verb = command.verb("delete", delete)
    verb.argument("group")
    verb.argument("--keep-offsets", action="store_true", help="keep the offsets for a new group of this name")
    verb.argument("--topics", action="store_true", help="delete its retry and dead letter topics as well")
    verb.argument("--cluster", help="only at the masters of this cluster")
    verb.moving()


async def list_groups(call: Call) -> None:
    """List the consumer groups of all brokers. With --long the table also shows their members and lag.

    firearrow group list
    firearrow group list --long --all
    """
    admin = await call.admin()
    configs = await admin.groups()
    names = sorted(name for name in configs if call.arguments.all or not is_system_group(name))
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "consuming": configs[name].consume_enabled,
            "retriesMax": configs[name].retries_max,
        }
        for name in names
    ]
    if not call.arguments.long:
        call.output.rows(LIST_COLUMNS[:3], rows)
        return
    totals = await Overview(admin).groups(names)
    for row in rows:
        found = totals[row["group"]]
        row |= {"members": found.members, "type": found.consume_type, "model": found.model, "lag": found.lag}
    call.output.rows(LIST_COLUMNS, rows)


async def _connected(admin: Admin, group: str) -> ConsumerConnections | None:
    """None: it has no members."""
    try:
        return await admin.consumers(group)
    except BrokerError:
        return None


async def show(call: Call) -> None:
    """Show the settings, members and topics of a group. Each topic has its filter and its lag.

    firearrow group show billing
    firearrow group show billing --json
    """
    admin, group = await call.admin(), call.arguments.group
    configs = await admin.groups()
    if group not in configs:
        raise ClientError(f"there is no group {group}")
    config = configs[group]
    connected, progress = await asyncio.gather(_connected(admin, group), _progress(admin, group, None))
    facts = {
        "group": group,
        "consuming": config.consume_enabled,
        "retriesMax": config.retries_max,
        "ordered": config.orderly,
        "broadcasting": config.broadcast_enabled,
        "members": 0 if connected is None else len(connected.connections),
        "type": None if connected is None else connected.consume_type,
        "model": None if connected is None else connected.model,
        "lag": progress.messages,
        "consumedPerSecond": round(progress.tps, 1),
    }
    topics = _topic_rows(connected, progress)
    if call.output.json:
        call.output.record(facts | {"topics": topics})
        return
    call.output.record(
        facts, [Column("lag", "lag", Kind.COUNT), Column("consumedPerSecond", "consumed per second")]
    )
    call.output.text("")
    call.output.rows(TOPIC_COLUMNS, topics)


async def create(call: Call) -> int:
    """Create a group at all masters, or at those of one cluster, as clients of gRPC need it. If the group exists,
    nothing changes and the exit code is 1.

        firearrow group create billing
        firearrow group create payments --orderly --retries 3
    """
    admin, given = await call.admin(), call.arguments
    if given.group in await admin.groups():
        call.output.note(f"group {given.group} exists")
        return FOUND_TROUBLE
    wanted = GroupConfig(group=given.group, orderly=given.orderly)
    if given.retries is not None:
        wanted = replace(wanted, retries_max=given.retries)
    await admin.create_group(wanted, given.cluster)
    call.output.done(f"created group {given.group}", {"group": given.group})
    return 0


def _topic_rows(connected: ConsumerConnections | None, progress: ConsumerLag) -> list[dict[str, Any]]:
    subscriptions = {} if connected is None else connected.subscriptions
    names = {queue.topic for queue in progress.queues} | set(subscriptions)
    rows = []
    for topic in sorted(names):
        queues = [lag for queue, lag in progress.queues.items() if queue.topic == topic]
        rows.append(
            {
                "topic": topic,
                "filter": subscriptions[topic].expression if topic in subscriptions else None,
                "lag": sum(queue.messages for queue in queues) if queues else None,
                "lastMs": max((queue.last_ms for queue in queues), default=0),
            }
        )
    return rows


async def lag(call: Call) -> int:
    """Show how many messages a group has not consumed yet, by queue. The exit code is 1 if the group has consumed
    nothing yet, and with --max if there are more of them in all.

        firearrow group lag billing --watch
        firearrow group lag billing orders --max 1000
    """
    admin, given = await call.admin(), call.arguments
    while True:
        progress = await _progress(admin, given.group, given.topic)
        now = now_ms()
        rows = await _lag_rows(admin, progress, now)
        is_over = given.max is not None and progress.messages > given.max
        if given.watch is None:
            call.output.rows(LAG_COLUMNS, rows)
            has_begun = await _has_consumed(call, admin, progress)
            return 0 if has_begun and not is_over else FOUND_TROUBLE
        call.output.redraw()
        call.output.rows(LAG_COLUMNS, [{"atMs": now, **row} for row in rows])
        call.output.flush()
        if is_over:
            return FOUND_TROUBLE
        await asyncio.sleep(given.watch)


async def _progress(admin: Admin, group: str, topic: str | None) -> ConsumerLag:
    """In one topic, or in those with an offset of the group and those to which its members subscribe: of these all
    messages count if it has no offset. ClientError: there is no such group or topic."""
    progress = await admin.consumer_lag(group, topic)
    connected = await _connected(admin, group)
    has_begun = any(queue.consumer_offset for queue in progress.queues.values())
    if connected is None and not has_begun and group not in await admin.groups():
        raise ClientError(f"there is no group {group}")
    if topic is not None:
        if not progress.queues and topic not in await admin.topics():
            raise ClientError(f"there is no topic {topic}")
        if not progress.queues and connected is not None and topic not in connected.subscriptions:
            raise ClientError(f"the members of group {group} do not subscribe to topic {topic}")
        return progress
    if connected is None or connected.model == BROADCASTING:
        return progress
    known = {queue.topic for queue in progress.queues} | {retry_topic(group)}
    for missing in sorted(connected.subscriptions.keys() - known):
        queues = (await admin.consumer_lag(group, missing)).queues
        progress = ConsumerLag(progress.tps, progress.queues | queues)
    return progress


async def _lag_rows(admin: Admin, progress: ConsumerLag, now: int) -> list[dict[str, Any]]:
    """Of a group that stands at the first message, or before it, this message shows how late it is."""
    unknown = [queue for queue, found in progress.queues.items() if found.messages and not found.last_ms]

    async def earliest_ms(queue: MessageQueue) -> int:
        try:
            return await admin.earliest_ms(queue)
        except ClientError:
            return 0

    first_ms = dict(zip(unknown, await of_each(unknown, earliest_ms), strict=True))
    return [
        _lag_row(queue, found, first_ms.get(queue, found.last_ms), now)
        for queue, found in progress.queues.items()
    ]


def _lag_row(queue: MessageQueue, found: QueueLag, since_ms: int, now: int) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queueId": queue.queue_id,
        "consumerOffset": found.consumer_offset,
        "brokerOffset": found.broker_offset,
        "lag": found.messages,
        "lastMs": found.last_ms,
        "behindMs": max(now - since_ms, 0) if found.messages and since_ms > 0 else None,
    }


async def _has_consumed(call: Call, admin: Admin, progress: ConsumerLag) -> bool:
    """Whether the group has an offset in one of these queues; if not, a note says what that means."""
    group = call.arguments.group
    if any(found.consumer_offset for found in progress.queues.values()):
        return True
    connected = await _connected(admin, group)
    if connected is not None and connected.model == BROADCASTING:
        call.output.note(
            f"the members of group {group} keep their offsets themselves: brokers do not know its lag"
        )
        return False
    offsets = await of_each(list(progress.queues), lambda queue: admin.offset(group, queue))
    if any(offset is not None for offset in offsets):
        return True
    if not progress.queues:
        what = "and has no members: name a topic to see what waits in it"
    else:
        what = "so all messages of these queues wait for it"
    call.output.note(f"group {group} has consumed nothing, {what}")
    return False


async def members(call: Call) -> None:
    """List the connected members of a group. Each one has its address, language and version.

    firearrow group members billing
    firearrow group members billing --json
    """
    admin, group = await call.admin(), call.arguments.group
    connected = await _connected(admin, group)
    if connected is None:
        if group not in await admin.groups():
            raise ClientError(f"there is no group {group}")
        call.output.note(f"group {group} has no members")
    connections = () if connected is None else connected.connections
    call.output.rows(
        MEMBER_COLUMNS,
        (
            {
                "clientId": member.client_id,
                "address": member.address,
                "language": member.language,
                "version": version_text(member.version),
            }
            for member in connections
        ),
    )


# ---- seek ----


async def seek(call: Call) -> None:
    """Move the offsets of a group to the start, the end, a time or an offset. Connected members continue from there.

    firearrow group seek billing orders --to -2h
    firearrow group seek billing orders --queue 0 --offset 1000 --dry-run
    """
    given = call.arguments
    if (given.to is None) == (given.offset is None):
        raise ConfigError("name one of --to start|end|TIME and --offset N")
    if given.offset is not None and (given.topic is None or given.queue is None or given.offset < 0):
        raise ConfigError("--offset needs a topic and --queue, and must be at least 0")
    when = {"start": 0, "end": None}[given.to] if given.to in ("start", "end") else given.to
    when_ms = time_ms(when) if isinstance(when, str) else when
    admin = await call.admin()
    connected = await _connected(admin, given.group)
    if connected is not None and given.queue is not None:
        raise ClientError(
            f"group {given.group} has {len(connected.connections)} members, which would overwrite the offset of one "
            "queue: stop them first"
        )
    topics = [given.topic] if given.topic else await _topics_of(admin, given.group)
    if not topics:
        raise ClientError(f"group {given.group} has no offsets: name a topic")
    if given.topic is not None:
        await _check_reads(call, admin, connected)
    moves = [move for topic in topics for move in await _moves(admin, call, topic, when_ms)]
    if given.dry_run or not given.yes:
        call.output.rows(SEEK_COLUMNS, map(_move_row, moves))
    if not call.may(f"move group {given.group} in {', '.join(topics)}: {_sums(moves)}"):
        return
    if given.queue is None:
        moves = [move for topic in topics for move in await _reset(admin, call, topic, when_ms, moves)]
    else:
        await _store(admin, given.group, moves)
    if given.yes:
        call.output.rows(SEEK_COLUMNS, map(_move_row, moves))


async def _check_reads(call: Call, admin: Admin, connected: ConsumerConnections | None) -> None:
    """ClientError: the group does not exist, or its members do not subscribe to the topic. A note, if it has neither
    members nor offsets in it: that is how a new group gets its first offsets."""
    group, topic = call.arguments.group, call.arguments.topic
    if connected is not None:
        if topic in connected.subscriptions:
            return
        subscribed = ", ".join(sorted(connected.subscriptions.keys() - {retry_topic(group)})) or "no topic"
        raise ClientError(
            f"the members of group {group} do not read topic {topic}: they subscribe to {subscribed}"
        )
    if group not in await admin.groups():
        raise ClientError(f"there is no group {group}")
    if group not in await admin.groups_of(topic):
        call.output.note(f"group {group} has read nothing of topic {topic} so far")


async def _topics_of(admin: Admin, group: str) -> list[str]:
    """Those in which it has offsets, without its retry topic; brokers before 5.0 know this from the lag only."""
    queues = (await admin.consumer_lag(group)).queues
    return sorted({queue.topic for queue in queues} - {retry_topic(group)})


Move = tuple[MessageQueue, int | None, int]
"""Queue, and the group's offset before and after"""


async def _moves(admin: Admin, call: Call, topic: str, when_ms: int | None) -> list[Move]:
    given = call.arguments
    stats = await admin.topic_stats(topic)
    queues = [queue for queue in stats if given.queue in (None, queue.queue_id)]
    if not queues:
        raise ClientError(f"topic {topic} has no queue {given.queue}")

    async def move(queue: MessageQueue) -> Move:
        before = await admin.offset(given.group, queue)
        return queue, before, await _target(admin, queue, stats[queue], given.offset, when_ms)

    return await of_each(queues, move)


async def _target(
    admin: Admin, queue: MessageQueue, found: QueueRange, offset: int | None, when_ms: int | None
) -> int:
    if offset is not None:
        if not found.min_offset <= offset <= found.max_offset:
            raise ConfigError(
                f"--offset {offset} is not in queue {queue.queue_id}: "
                f"choose {found.min_offset} to {found.max_offset}"
            )
        return offset
    # brokers before 5.0 find the last message for a time after it
    if when_ms is None or when_ms > found.last_ms:
        return found.max_offset
    return found.min_offset if when_ms <= 0 else await admin.offset_at(queue, when_ms)


async def _reset(admin: Admin, call: Call, topic: str, when_ms: int | None, moves: list[Move]) -> list[Move]:
    """By the brokers, which reach the members, too; without members Apache's broker leaves it to us."""
    group = call.arguments.group
    ours = [move for move in moves if move[0].topic == topic]
    try:
        after = await admin.reset_offsets(group, topic, when_ms)
    except BrokerError as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        await _store(admin, group, ours)
        return ours
    return [(queue, before, after.get(queue, to)) for queue, before, to in ours]


async def _store(admin: Admin, group: str, moves: list[Move]) -> None:
    operations = Operations(admin)
    for queue, _, offset in moves:
        await operations.move_queue(group, queue, offset)


def _move_row(move: Move) -> dict[str, Any]:
    queue, before, after = move
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queueId": queue.queue_id,
        "from": before,
        "to": after,
        "skipped": None if before is None else max(after - before, 0),
        "repeated": None if before is None else max(before - after, 0),
    }


def _sums(moves: list[Move]) -> str:
    """How many messages the group does not get, or gets again."""
    steps = [after - before for _, before, after in moves if before is not None]
    if not steps:
        return "it has no offsets there yet"
    skipped, repeated = sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0)
    return f"it skips {skipped:,} messages and gets {repeated:,} again"


# ---- pause and delete ----


async def pause(call: Call) -> None:
    """Forbid a group to consume, in all topics or in one. Its members stay connected, and continue after --resume.

    firearrow group pause billing
    firearrow group pause billing --topic orders --resume
    """
    given = call.arguments
    operations = Operations(await call.admin())
    what = f"{'resume' if given.resume else 'pause'} group {given.group}"
    if given.topic is not None:
        what += f" in topic {given.topic}"
    if not call.may(what):
        return
    values: dict[str, Any] = {"group": given.group, "consuming": given.resume}
    if given.topic is None:
        values["brokers"] = await operations.set_consuming(given.group, given.resume)
    else:
        values["topic"] = given.topic
        values["consuming"] = await operations.readable(given.group, given.topic, given.resume)
    call.output.done(f"{'resumed' if given.resume else 'paused'} {what.partition(' ')[2]}", values)


async def delete(call: Call) -> int:
    """Delete a group with its offsets. With --topics its retry and dead letter topics are deleted as well.

    firearrow group delete billing --topics --dry-run
    firearrow group delete billing --keep-offsets --yes
    """
    admin, given = await call.admin(), call.arguments
    if given.group not in await admin.groups():
        call.output.note(f"there is no group {given.group}")
        return FOUND_TROUBLE
    connected = await _connected(admin, given.group)
    members = "" if connected is None else f", which has {len(connected.connections)} members"
    if not call.may(f"delete group {given.group}{members}"):
        return 0
    await admin.delete_group(given.group, offsets=not given.keep_offsets, cluster=given.cluster)
    topics = [retry_topic(given.group), dlq_topic(given.group)] if given.topics else []
    for topic in topics:
        await admin.delete_topic(topic, given.cluster)
    call.output.done(
        f"deleted group {given.group}", {"group": given.group, "deleted": True, "topics": topics}
    )
    return 0


# ---- diff ----


async def diff(call: Call) -> int:
    """Compare the subscriptions of the members of a group. The exit code is 1 if they differ: such members lose
    messages of each other.

        firearrow group diff billing
        firearrow group diff billing --json
    """
    admin, group = await call.admin(), call.arguments.group
    connected = await _connected(admin, group)
    if connected is None:
        if group not in await admin.groups():
            raise ClientError(f"there is no group {group}")
        call.output.note(f"group {group} has no members to compare")
        return 0
    clients = [member.client_id for member in connected.connections]
    found = dict(
        zip(clients, await of_each(clients, lambda client: _facts(admin, group, client)), strict=True)
    )
    silent = [client for client, facts in found.items() if facts is None]
    for client in silent:
        call.output.note(f"member {client} does not say what it subscribes")
    known = {client: facts for client, facts in found.items() if facts is not None}
    rows = []
    for what in sorted({what for facts in known.values() for what in facts}):
        values = {client: facts.get(what, "-") for client, facts in known.items()}
        most = max(sorted(set(values.values())), key=list(values.values()).count)
        rows += [
            {"clientId": client, "what": what, "value": value, "others": most}
            for client, value in sorted(values.items())
            if value != most
        ]
    if rows:
        call.output.rows(DIFF_COLUMNS, rows)
    elif not silent:
        call.output.note(f"the {len(known)} members of group {group} subscribe the same")
    return FOUND_TROUBLE if rows or silent else 0


async def _facts(admin: Admin, group: str, client_id: str) -> dict[str, str] | None:
    """What must be equal at all members: name → value. None: the member does not answer."""
    try:
        info = await admin.running_info(group, client_id)
    except (BrokerError, TransportError):
        return None
    facts: dict[str, str] = {}
    for subscription in info.get("subscriptionSet") or ():
        topic = admin.namespace.unwrap(str(subscription.get("topic")))
        if topic != retry_topic(group):
            facts[f"filter of {topic}"] = _filter_text(subscription)
    properties: Mapping[str, str] = info.get("properties") or {}
    for name, what in (
        ("messageModel", "message model"),
        ("PROP_CONSUMEORDERLY", "ordered"),
        ("PROP_CONSUME_TYPE", "way of consuming"),
    ):
        if name in properties:
            facts[what] = str(properties[name])
    return facts


def _filter_text(subscription: Mapping[str, Any]) -> str:
    """Tags sorted: their order makes no difference."""
    expression = str(subscription.get("subString"))
    if subscription.get("expressionType", "TAG") != "TAG":
        return expression
    return " || ".join(sorted(tag.strip() for tag in expression.split("||")))
