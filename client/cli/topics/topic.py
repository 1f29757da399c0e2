"""Manage topics: list, show, producers, create, set, shrink, delete, purge, trim, export, import and copy them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firearrow._native.base.shared_arguments import shared
from firearrow._native.base.verbs import Declared, Switch
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.overview import Overview, TopicTotals
from firearrow.client.admin_api.records import READ, TopicConfig
from firearrow.client.base.errors import ClientError, ConfigError, NoRoute
from firearrow.client.base.times import time_ms
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command, Verb, count, positive
from firearrow.client.cli.formats import PERMISSIONS, is_of_user, members, pairs, perm_text
from firearrow.client.cli.messages.selection import select_by
from firearrow.client.cli.output import Column, Kind, titled
from firearrow.client.cli.topics.shrink_topic import (
    UNREAD_COLUMNS,
    Unread,
    reduce_queues,
    shrink,
    unread_beyond,
    unread_rows,
    unread_text,
)

LOOKED_AT = 1000
"""Of a queue's newest messages, for their producers."""
TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "PRIORITY", "LITE")
LIST_COLUMNS = (
    *titled("topic", "brokers"),
    Column("queues", "QUEUES", Kind.COUNT),
    *titled("perm", "type"),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("lastMs", "LAST MESSAGE", Kind.TIME),
)
CONFIG_COLUMNS = (
    Column("broker", "BROKER"),
    *titled("readQueues", "writeQueues", kind=Kind.COUNT),
    *titled("perm", "type", "order", "attributes"),
)
QUEUE_COLUMNS = (
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("minOffset", "FIRST", Kind.COUNT),
    Column("maxOffset", "NEXT", Kind.COUNT),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("lastMs", "LAST MESSAGE", Kind.TIME),
)
TRIM_COLUMNS = (
    Column("broker", "BROKER"),
    Column("queueId", "QUEUE", Kind.COUNT),
    Column("minOffset", "FIRST", Kind.COUNT),
    Column("maxOffset", "NEXT", Kind.COUNT),
    Column("trimmed", "REMOVED", Kind.COUNT),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("topic", __doc__)
    verb = command.verb("list", list_topics)
    verb.argument("--all", action="store_true", help="include system, retry and dead letter topics")
    verb.argument("-l", "--long", action="store_true", help="show queues, messages and types")
    verb = command.verb("show", show)
    verb.argument("topic")
    verb = command.verb("producers", producers)
    verb.argument("topic")
    verb.argument(
        "--limit",
        type=count,
        default=LOOKED_AT,
        metavar="N",
        help=f"how many of the newest messages of each queue to look at (default {LOOKED_AT})",
    )
    verb = command.verb("create", create)
    verb.argument("topic")
    verb.argument("--cluster", help="only at the masters of this cluster")
    _settings(verb)
    verb = command.verb("set", set_topic)
    verb.argument("topic")
    _settings(verb)
    verb.argument(
        "--force",
        action="store_true",
        help="remove queues even if they have unread messages or are written to",
    )
    verb.moving()
    verb = command.verb("shrink", shrink)
    verb.argument("topic")
    verb.argument("--queues", type=count, metavar="N", required=True, help="number of queues to keep")
    verb.argument(
        "--wait", type=positive, metavar="S", help="wait at most S seconds for consumers (default: no limit)"
    )
    verb.argument(
        "--force",
        action="store_true",
        help="do not wait until all messages are consumed; unread ones are lost",
    )
    verb.moving()
    _removing(command)
    _moving(command)
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


def _removing(command: Command) -> None:
    """The verbs that remove messages."""
    verb = command.verb("delete", delete)
    verb.argument("topic")
    verb.argument("--cluster", help="only at the masters of this cluster")
    verb.moving()
    verb = command.verb("purge", purge)
    verb.argument("topic")
    verb.argument("--queue", type=int, help="only this queue")
    verb.moving()
    verb = command.verb("trim", trim)
    verb.argument("topic")
    verb.argument("--before", metavar="TIME", help="remove messages stored before this time")
    verb.argument("--offset", type=int, help="remove messages before this offset of each queue")
    verb.argument("--queue", type=int, help="only this queue")
    verb.moving()


def _moving(command: Command) -> None:
    """The verbs that move messages between topics, files and clusters."""
    rates = (shared("--rate", type=positive), shared("--bytes-rate", type=positive))
    kept = ("--checkpoint", "file of its progress (default: one of this job in ~/.local/state/firearrow)")
    verb = command.verb("export", export)
    verb.argument("topic", help="topic to read")
    verb.argument("file", help="new file: NAME.jsonl, NAME.parquet (needs pyarrow), or - for the output")
    select_by(verb).arguments(shared("--sql"), *rates, shared("--quiet", action="store_true"))
    verb = command.verb("import", import_messages)
    verb.argument("topic", help="topic to send to")
    verb.argument("file", help="file of JSON Lines or Parquet, or - for the input")
    _sending(verb, kept, rates)
    verb.argument(
        "--check-crc",
        "--no-check-crc",
        action=Switch,
        default=True,
        help="refuse lines whose bodies do not match their bodyCrc, or take them as they are",
    )
    verb = command.verb("copy", copy)
    verb.argument("source", metavar="SOURCE", help="topic to read: TOPIC or CONTEXT:TOPIC")
    verb.argument(
        "goal", metavar="GOAL", help="topic to send to: TOPIC, CONTEXT:TOPIC, or CONTEXT: for the same name"
    )
    verb.arguments(shared("--target"))
    select_by(verb).arguments(shared("--sql"))
    _sending(verb, kept, rates)


def _sending(verb: Verb, kept: tuple[str, str], rates: Sequence[Declared]) -> None:
    """What import and copy have."""
    verb.arguments(
        shared("--create-topics", action="store_true"),
        *rates,
        shared("--provenance", action=Switch, default=True),
        shared("--verify", action=Switch, default=True),
        shared("--quiet", action="store_true"),
    )
    verb.argument(kept[0], metavar="FILE", help=kept[1])
    verb.argument(
        "--again", action="store_true", help="start from the beginning, and send all messages again"
    )


def _settings(verb: Verb) -> None:
    verb.argument(
        "--queues", type=count, metavar="N", help="number of write and read queues (8 for a new topic)"
    )
    verb.argument("--read-queues", type=count, metavar="N", help="number of read queues, if it differs")
    verb.argument("--perm", choices=tuple(PERMISSIONS), help="what clients may do: read, write, both or none")
    verb.argument("--type", choices=TYPES, help="type of the messages")
    verb.argument(
        "--order", choices=("true", "false"), help="flag of ordered topics, as Apache brokers have it"
    )
    verb.argument(
        "--attribute",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another attribute; can be repeated",
    )


async def list_topics(call: Call) -> int:
    """List the topics of all brokers. With --long the table also shows their queues, messages and types.

    firearrow topic list
    firearrow topic list --long --json
    """
    admin = await call.admin()
    names, system = await asyncio.gather(admin.topics(), admin.system_topics())
    if not call.arguments.all:
        names = [name for name in names if is_of_user(name, system)]
    if not call.arguments.long:
        call.output.rows(LIST_COLUMNS[:1], ({"topic": name} for name in names))
        return OK
    overview = Overview(admin)
    configs, totals = await overview.topic_configs(), await overview.topics()
    # no broker has the names of clusters and brokers as topics, or one that was deleted meanwhile
    known = [name for name in names if name in configs and name in totals]
    call.output.rows(LIST_COLUMNS, (_row(name, configs[name], totals[name]) for name in known))
    for broker, fault in overview.faults.items():
        call.output.note(f"broker {broker} is left out: {fault}")
    return FOUND_TROUBLE if overview.faults else OK


def _row(topic: str, configs: Mapping[str, TopicConfig], totals: TopicTotals) -> dict[str, Any]:
    return {
        "topic": topic,
        "brokers": sorted(configs),
        "queues": sum(config.write_queues for config in configs.values()),
        "perm": perm_text(min(config.perm for config in configs.values())),
        "type": next(iter(configs.values())).message_type,
        "messages": totals.messages,
        "lastMs": totals.last_ms,
    }


async def show(call: Call) -> None:
    """Show the settings, groups and queues of a topic. Each queue has its first and next offset, and the time of its
    last message.

        firearrow topic show orders
        firearrow topic show orders --json
    """
    admin, topic = await call.admin(), call.arguments.topic
    configs, stats, groups = await asyncio.gather(
        admin.topic_config(topic), admin.topic_stats(topic), admin.groups_of(topic)
    )
    brokers = [_config_row(name, config) for name, config in sorted(configs.items())]
    queues = [
        {
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": found.min_offset,
            "maxOffset": found.max_offset,
            "messages": found.max_offset - found.min_offset,
            "lastMs": found.last_ms,
        }
        for queue, found in sorted(stats.items())
    ]
    total = sum(found.max_offset - found.min_offset for found in stats.values())
    facts = {"topic": topic, "messages": total, "groups": groups}
    if call.output.json:
        call.output.record(facts | {"brokers": brokers, "queues": queues})
        return
    call.output.record(facts, [Column("messages", "messages", Kind.COUNT)])
    call.output.text("")
    call.output.rows(CONFIG_COLUMNS, brokers)
    call.output.text("")
    call.output.rows(QUEUE_COLUMNS, queues)


def _config_row(broker: str, config: TopicConfig) -> dict[str, Any]:
    return {
        "broker": broker,
        "readQueues": config.read_queues,
        "writeQueues": config.write_queues,
        "perm": perm_text(config.perm),
        "type": config.message_type,
        "order": config.order,
        "attributes": [f"{key}={value}" for key, value in sorted(config.attributes.items())],
    }


async def producers(call: Call) -> None:
    """List who sent the newest messages of a topic. Those that are still connected are shown with their clients.

    firearrow topic producers orders
    firearrow topic producers orders --limit 10000
    """
    from firearrow.client.cli.topics.producers import list_producers  # noqa: PLC0415 (reads messages)

    await list_producers(call)


async def create(call: Call) -> int:
    """Create a topic at all masters, or at those of one cluster. If the topic exists, nothing changes and the exit
    code is 1.

        firearrow topic create orders --queues 16
        firearrow topic create payments --type FIFO --cluster DefaultCluster
    """
    admin, given = await call.admin(), call.arguments
    try:
        known = await admin.topic_config(given.topic)
    except NoRoute:
        known = {}
    if known:
        call.output.note(
            f"topic {given.topic} exists at {', '.join(known)}: `firearrow topic set` changes it"
        )
        return FOUND_TROUBLE
    wanted = _changed(TopicConfig(topic=given.topic), given)
    brokers = await admin.create_topic(
        given.topic,
        wanted.write_queues,
        read_queues=wanted.read_queues,
        perm=wanted.perm,
        order=wanted.order,
        attributes=wanted.attributes,
        cluster=given.cluster,
    )
    call.output.done(
        f"created topic {given.topic} at {', '.join(brokers)}", {"topic": given.topic, "brokers": brokers}
    )
    return 0


async def set_topic(call: Call) -> int:
    """Change the settings of a topic. Settings that are not named stay as they are.

    firearrow topic set orders --perm r
    firearrow topic set orders --queues 16 --dry-run
    """
    admin, given = await call.admin(), call.arguments
    before = await admin.topic_config(given.topic)
    after = {broker: _changed(config, given) for broker, config in before.items()}
    changed = {broker: config for broker, config in after.items() if config != before[broker]}
    losing = any(
        config.read_queues < before[broker].read_queues or before[broker].perm & READ > config.perm & READ
        for broker, config in changed.items()
    )
    fewer = {name: each for name, each in changed.items() if each.read_queues < before[name].read_queues}
    rows = [_config_row(broker, config) for broker, config in sorted(changed.items())]
    what = f"change topic {given.topic} at {', '.join(sorted(changed)) or 'no broker'}"
    unread = await unread_beyond(admin, given.topic, {name: each.read_queues for name, each in fewer.items()})
    if given.dry_run:
        call.output.rows(CONFIG_COLUMNS, rows)
    if unread and not given.force:
        return _refused(call, unread)
    if not given.force and (
        hidden := [each for each in fewer.values() if each.read_queues < each.write_queues]
    ):
        call.output.note(
            f"producers write to {hidden[0].write_queues} queues of topic {given.topic}, and consumers would be given "
            f"{hidden[0].read_queues}: --queues {hidden[0].read_queues} reduces both, --force only the read queues"
        )
        return FOUND_TROUBLE
    # what was stored in queues that are not read any more is lost to consumers
    if (losing or given.dry_run) and not call.may(what):
        return OK
    for broker, config in sorted(changed.items()):
        if broker not in fewer or unread:
            await admin.update_topic(broker, config)
    if not unread and fewer and (came := await reduce_queues(admin, given.topic, before, fewer)):
        return _refused(call, came)
    call.output.rows(CONFIG_COLUMNS, rows)
    return OK


def _refused(call: Call, unread: list[Unread]) -> int:
    given = call.arguments
    if not given.dry_run:  # it has shown what it would change
        call.output.rows(UNREAD_COLUMNS, unread_rows(unread))
    queues = given.queues or given.read_queues
    call.output.note(
        f"{unread_text(given.topic, unread)}; `firearrow topic shrink {given.topic} --queues {queues}` takes them away "
        "once they are read, --force takes them away now: no consumer reads these messages then"
    )
    return FOUND_TROUBLE


def _changed(config: TopicConfig, given: Any) -> TopicConfig:  # noqa: ANN401 (argparse's namespace)
    """The config with the settings that the arguments name. ConfigError."""
    attributes = dict(config.attributes) | pairs(given.attribute)
    if given.type is not None:
        attributes["message.type"] = given.type
    return replace(
        config,
        read_queues=given.read_queues or given.queues or config.read_queues,
        write_queues=given.queues or config.write_queues,
        perm=config.perm if given.perm is None else PERMISSIONS[given.perm],
        order=config.order if given.order is None else given.order == "true",
        attributes=attributes,
    )


async def delete(call: Call) -> int:
    """Delete a topic with its messages. With --dry-run only the number of messages is printed.

    firearrow topic delete orders --dry-run
    firearrow topic delete orders --cluster DefaultCluster --yes
    """
    admin, topic = await call.admin(), call.arguments.topic
    if topic not in await admin.topics():
        call.output.note(f"there is no topic {topic}")
        return FOUND_TROUBLE
    if not call.may(f"delete topic {topic}{await _with_messages(admin, topic)}"):
        return 0
    await admin.delete_topic(topic, call.arguments.cluster)
    call.output.done(f"deleted topic {topic}", {"topic": topic, "deleted": True})
    return 0


async def _with_messages(admin: Admin, topic: str) -> str:
    """How many messages it has; empty: no broker serves it any more."""
    try:
        stats = await admin.topic_stats(topic)
    except ClientError:
        return ""
    return f" with its {sum(queue.max_offset - queue.min_offset for queue in stats.values()):,} messages"


async def purge(call: Call) -> None:
    """Remove all messages of a topic, and keep the topic itself. Only FireArrow brokers support this.

    firearrow topic purge orders --dry-run
    firearrow topic purge orders --queue 3 --yes
    """
    await _trim(call, -1, None)


async def trim(call: Call) -> None:
    """Remove the oldest messages of a topic: those before a time or an offset. Only FireArrow brokers support this.

    firearrow topic trim orders --before -2d
    firearrow topic trim orders --queue 0 --offset 1000 --yes
    """
    given = call.arguments
    if (given.before is None) == (given.offset is None):
        raise ConfigError("name one of --before TIME and --offset N")
    if given.offset is not None and given.offset < 0:
        raise ConfigError("--offset must be at least 0; `firearrow topic purge` removes all messages")
    await _trim(call, given.offset, None if given.before is None else time_ms(given.before))


async def _trim(call: Call, offset: int | None, before_ms: int | None) -> None:
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415 (only for this verb)

    admin, given = await call.admin(), call.arguments
    extensions = Extensions(admin)

    async def ask(*, dry_run: bool) -> list[dict[str, Any]]:
        found = await extensions.trim_topic(
            given.topic, offset=offset, before=before_ms, queue_id=given.queue, dry_run=dry_run
        )
        return [members(queue) for queue in found]

    rows = await ask(dry_run=True)
    removed = sum(row["trimmed"] for row in rows)
    if given.dry_run or not removed:
        call.output.rows(TRIM_COLUMNS, rows)
    if removed and call.may(f"remove {removed:,} messages of topic {given.topic}"):
        call.output.rows(TRIM_COLUMNS, await ask(dry_run=False))


async def export(call: Call) -> int:
    """Write the messages of a topic to a file of JSON Lines or Parquet. The same command continues an interrupted
    export, and the file is checked at the end.

        firearrow topic export orders orders.jsonl --from -1d --rate 5000
        firearrow topic export orders orders.parquet
    """
    from firearrow.client.cli.transfer import export_topic  # noqa: PLC0415 (only for this verb)

    return await export_topic.export(call)


async def import_messages(call: Call) -> int:
    """Send the messages of a file to a topic, in the order of each queue. The same command continues an interrupted
    import, and what arrived is compared at the end.

        firearrow topic import orders orders.jsonl --create-topics
        firearrow topic import orders-2 orders.parquet --rate 1000
    """
    from firearrow.client.cli.transfer import import_topic  # noqa: PLC0415

    return await import_topic.import_messages(call)


async def copy(call: Call) -> int:
    """Copy the messages of a topic to another topic or cluster, in the order of each queue. The same command continues,
    also after a complete copy, and what arrived is compared at the end.

        firearrow topic copy orders backup:orders --create-topics
        firearrow topic copy home:orders test: --from -1h --key 4711
    """
    from firearrow.client.cli.transfer import copy_topic  # noqa: PLC0415

    return await copy_topic.copy(call)
