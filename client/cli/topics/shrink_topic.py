"""Taking queues away from a topic without losing sight of their messages: what is unread there, and `topic shrink`.

Producers write only to the first `write_queues` queues, consumers are given only the first `read_queues`. So the write
queues are reduced first, and the read queues once every group has read those that go away. All of it goes over the
wire, to Apache's brokers as well. Loop thread.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import QueueRange, TopicConfig, unread_messages
from firearrow.client.base.errors import BrokerError
from firearrow.client.base.message import MessageQueue
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call
from firearrow.client.cli.output import Kind, titled

NO_GROUP = ""
UNREAD_COLUMNS = (
    *titled("group", "broker"),
    *titled("queues", "unread", kind=Kind.COUNT),
)
LOOK_S = 1.0
REPORT_S = 10.0


class Unread(NamedTuple):
    """What a group has not read in queues of a broker that go away. `group` empty: none reads the topic."""

    group: str
    broker: str
    queues: int
    messages: int


async def unread_beyond(admin: Admin, topic: str, kept: Mapping[str, int]) -> list[Unread]:
    """Of each group and broker with something unread in queues from `kept[broker]` on. Broadcasting groups do not
    count: their members keep the offsets."""
    stats = await admin.topic_stats(topic)
    leaving = [
        (queue, found)
        for queue, found in stats.items()
        if queue.queue_id >= kept.get(queue.broker_name, queue.queue_id + 1)
        and found.max_offset > found.min_offset
    ]
    if not leaving:
        return []
    configs = await admin.topic_config(topic)
    given = {
        queue
        for queue, _ in leaving
        if queue.broker_name in configs and queue.queue_id < configs[queue.broker_name].read_queues
    }
    listed = await admin.groups_of(topic)
    groups = [group for group in listed if not await _is_broadcasting(admin, group)]
    left = [
        (group, queue, await _left(admin, group, queue, found, is_given=queue in given))
        for group in groups
        for queue, found in leaving
    ]
    if not listed:
        left = [(NO_GROUP, queue, found.max_offset - found.min_offset) for queue, found in leaving]
    counts: dict[tuple[str, str], list[int]] = {}
    for group, queue, count in left:
        if count:
            counts.setdefault((group, queue.broker_name), []).append(count)
    return [Unread(*key, len(each), sum(each)) for key, each in sorted(counts.items())]


async def _is_broadcasting(admin: Admin, group: str) -> bool:
    try:
        return (await admin.consumers(group)).model == "BROADCASTING"
    except BrokerError:  # it has no member now
        return False


async def _left(admin: Admin, group: str, queue: MessageQueue, found: QueueRange, *, is_given: bool) -> int:
    committed = await admin.offset(group, queue)
    return unread_messages(found.min_offset, found.max_offset, committed, is_given=is_given)


def unread_rows(unread: list[Unread]) -> list[dict[str, Any]]:
    return [
        {"group": each.group, "broker": each.broker, "queues": each.queues, "unread": each.messages}
        for each in unread
    ]


def unread_text(topic: str, unread: list[Unread]) -> str:
    """`messages that go out of sight: group billing has 12 unread, group audit 30`."""
    counts: dict[str, int] = {}
    for each in unread:
        counts[each.group] = counts.get(each.group, 0) + each.messages
    if NO_GROUP in counts:
        return f"the queues of topic {topic} that go away hold {counts[NO_GROUP]:,} messages, and no group reads it"
    groups = ", ".join(f"{count:,} of group {group}" for group, count in sorted(counts.items()))
    return f"the queues of topic {topic} that go away hold unread messages: {groups}"


async def reduce_queues(
    admin: Admin, topic: str, before: Mapping[str, TopicConfig], after: Mapping[str, TopicConfig]
) -> list[Unread]:
    """Change the topic at these brokers, write queues first. If messages came into queues that go away meanwhile, the
    read queues stay as they were, and these messages are returned."""
    for broker, config in sorted(after.items()):
        await admin.update_topic(broker, replace(config, read_queues=before[broker].read_queues))
    unread = await unread_beyond(admin, topic, {name: config.read_queues for name, config in after.items()})
    if not unread:
        for broker, config in sorted(after.items()):
            await admin.update_topic(broker, config)
    return unread


async def shrink(call: Call) -> int:
    """Reduce the number of queues of a topic without losing messages. Write queues are removed at once, read queues
    when their messages are consumed; an interrupted run continues when it is started again.

        firearrow topic shrink orders --queues 4
        firearrow topic shrink orders --queues 4 --wait 600 --yes
    """
    admin, given = await call.admin(), call.arguments
    topic, queues = given.topic, given.queues
    configs = await admin.topic_config(topic)
    wide = {
        name: config
        for name, config in configs.items()
        if max(config.read_queues, config.write_queues) > queues
    }
    if not wide:
        call.output.note(f"topic {topic} has at most {queues} queues already")
        return OK
    kept = dict.fromkeys(wide, queues)
    if given.dry_run:
        call.output.rows(UNREAD_COLUMNS, unread_rows(await unread_beyond(admin, topic, kept)))
    if not call.may(f"shrink topic {topic} to {queues} queues at {', '.join(sorted(wide))}"):
        return OK
    for broker, config in sorted(wide.items()):
        if config.write_queues > queues:
            await admin.update_topic(broker, replace(config, write_queues=queues))
    unread = await _drained(call, admin, kept)
    if unread and not given.force:
        call.output.rows(UNREAD_COLUMNS, unread_rows(unread))
        call.output.note(
            f"{unread_text(topic, unread)}; producers write to {queues} queues now, consumers still read all: "
            "run this again once they are read, or with --force"
        )
        return FOUND_TROUBLE
    for broker, config in sorted(
        (await admin.topic_config(topic)).items()
    ):  # others may have changed it meanwhile
        if broker not in wide:
            continue
        if config.write_queues > queues and not given.force:
            call.output.note(
                f"topic {topic} got {config.write_queues} write queues at {broker} meanwhile: run this again"
            )
            return FOUND_TROUBLE
        reduced = replace(
            config, write_queues=min(config.write_queues, queues), read_queues=min(config.read_queues, queues)
        )
        await admin.update_topic(broker, reduced)
    call.output.done(
        f"topic {topic} has {queues} queues at {', '.join(sorted(wide))}",
        {
            "topic": topic,
            "queues": queues,
            "brokers": sorted(wide),
            "stranded": sum(each.messages for each in unread),
        },
    )
    return OK


async def _drained(call: Call, admin: Admin, kept: Mapping[str, int]) -> list[Unread]:
    """Wait until all is read; what is not, if that takes too long, or if no group reads it."""
    topic, wait_s, force = call.arguments.topic, call.arguments.wait, call.arguments.force
    loop = asyncio.get_running_loop()
    began = reported = loop.time()
    while unread := await unread_beyond(admin, topic, kept):
        now = loop.time()
        if force or unread[0].group == NO_GROUP or (wait_s is not None and now - began + LOOK_S > wait_s):
            break
        if now - reported >= REPORT_S:
            reported = now
            call.output.note(unread_text(topic, unread))
        await asyncio.sleep(LOOK_S)
    return unread
