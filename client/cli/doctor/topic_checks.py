"""Checks of topics: readers, queues, permissions, the size of messages, and the clocks of those who sent them. Pure."""

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.admin_api.records import unread_messages
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.cli.doctor.checks import Found, check_of, counted
from firearrow.client.cli.doctor.facts import BROADCASTING, Facts, Queue, QueueState, Topic
from firearrow.client.cli.output import bytes_text
from firearrow.client.cli.times import age_text

SKEW_MESSAGES_MIN = 1000
"""With fewer messages, unequal queues say nothing."""
SKEW_FACTOR = 5
"""A queue is skewed if it has this many times the messages of the others' mean."""
BIG_BYTES = 1 << 20
AHEAD_MS = 5_000
BEHIND_MS = 300_000
READ, WRITE = 4, 2


def topics_without_groups(facts: Facts) -> Found:
    """Topics with messages that no group reads"""
    for topic in facts.plain_topics():
        if topic.messages and not topic.groups:
            yield Finding(
                Severity.NOTE,
                f"topic {topic.name}",
                f"{counted(topic.messages, 'message')}, and no group reads it",
                "no group reads its messages, until retention deletes them",
                f"start a consumer, or `firearrow topic delete {topic.name}`",
            )


def one_queue_topics(facts: Facts) -> Found:
    """Topics with one queue, which one member of a group can read"""
    for topic in facts.plain_topics():
        queues = sum(config.write_queues for config in topic.configs.values())
        if queues == 1 and topic.messages:
            yield Finding(
                Severity.NOTE,
                f"topic {topic.name}",
                "it has one queue",
                "only one member of each group can read it; if all its messages need one order, that is right",
                f"`firearrow topic set {topic.name} --queues 8`",
            )


def unreadable_queues(facts: Facts) -> Found:
    """Queues that are never read: written beyond the read queues, or left when queues were taken away"""
    for topic in facts.topics.values():
        if topic.group_of(DLQ) is not None:
            continue
        for broker, config in sorted(topic.configs.items()):
            beyond = [
                (queue, state)
                for queue, state in topic.queues.items()
                if queue.broker == broker and queue.number >= config.read_queues and state.messages
            ]
            unread = _unread(facts, topic, beyond, are_given=False)
            written = config.write_queues > config.read_queues
            if written or unread:
                queues = max([config.write_queues, *(queue.number + 1 for queue, _ in beyond)])
                yield Finding(
                    Severity.CRITICAL if unread else Severity.WARNING,
                    f"topic {topic.name}",
                    f"at {broker} it has {config.write_queues} write queues and {config.read_queues} read queues; "
                    f"the others hold {counted(sum(state.messages for _, state in beyond), 'message')}"
                    + (f", unread: {unread}" if unread else ""),
                    "no consumer is given queues beyond the read queues: their messages are lost for all groups",
                    f"`firearrow topic set {topic.name} --read-queues {queues}`, and then `firearrow topic shrink "
                    f"{topic.name} --queues {config.write_queues}`"
                    if not written
                    else f"`firearrow topic set {topic.name} --queues {queues}`",
                )


def _unread(facts: Facts, topic: Topic, queues: list[tuple[Queue, QueueState]], *, are_given: bool) -> str:
    """What each group has not read of them, or no group has; empty: each has read all. `are_given`: to consumers."""
    if not queues:
        return ""
    total = sum(state.messages for _, state in queues)
    if not topic.is_plain:
        return f"{total:,}" if total else ""
    counts: dict[str, int] = {}
    known: set[Queue] = set()
    for name in sorted(topic.groups):
        group = facts.groups.get(name)
        if group is None or not group.is_plain or group.model == BROADCASTING:
            continue
        counts[name] = 0
        for queue, state in queues:
            progress = group.progress.get(queue)
            committed = None if progress is None else progress.committed
            counts[name] += unread_messages(state.min_offset, state.max_offset, committed, is_given=are_given)
            if committed is not None:
                known.add(queue)
    if not counts:
        return f"{total:,}, no group reads it" if total else ""
    texts = [f"{count:,} of group {name}" for name, count in counts.items() if count]
    unknown = 0 if are_given else sum(state.messages for queue, state in queues if queue not in known)
    return ", ".join([*texts, f"{unknown:,} that no group has read"] if unknown else texts)


def draining_queues(facts: Facts) -> Found:
    """Queues that are read and not written any more: they can be taken away once they are read"""
    for topic in facts.plain_topics():
        for broker, config in sorted(topic.configs.items()):
            beyond = [
                (queue, state)
                for queue, state in topic.queues.items()
                if queue.broker == broker
                and config.write_queues <= queue.number < config.read_queues
                and state.messages
            ]
            if beyond and (unread := _unread(facts, topic, beyond, are_given=True)):
                yield Finding(
                    Severity.NOTE,
                    f"topic {topic.name}",
                    f"at {broker} it has {config.write_queues} write queues and {config.read_queues} read queues; "
                    f"unread in those that are not written: {unread}",
                    "the topic is being shrunk: to take its read queues away now would hide these messages",
                    f"`firearrow topic shrink {topic.name} --queues {config.write_queues}` waits and finishes",
                )


def topic_permissions(facts: Facts) -> Found:
    """Topics that no client may write or read"""
    for topic in facts.plain_topics():
        for broker, config in sorted(topic.configs.items()):
            lacks = [word for bit, word in ((READ, "read"), (WRITE, "write")) if not config.perm & bit]
            if lacks:
                yield Finding(
                    Severity.WARNING,
                    f"topic {topic.name}",
                    f"at {broker} no client may {' or '.join(lacks)} it",
                    "clients get no queue of it there: the permission was taken away, and not given back",
                    f"`firearrow topic set {topic.name} --perm rw`",
                )


def skewed_queues(facts: Facts) -> Found:
    """Topics with most messages in one queue"""
    for topic in facts.topics.values():
        if topic.group_of(DLQ) is None and topic.group_of(RETRY) is None and not topic.is_plain:
            continue
        counts = sorted(
            (
                (state.messages, queue)
                for queue, state in topic.queues.items()
                if _is_written(topic, queue.broker)
            ),
            reverse=True,
        )
        total = sum(count for count, _ in counts)
        if len(counts) < 2 or total < SKEW_MESSAGES_MIN:
            continue
        most, fullest = counts[0]
        mean = (total - most) / (len(counts) - 1)
        if most > SKEW_FACTOR * max(mean, 1):
            yield Finding(
                Severity.WARNING,
                f"topic {topic.name}",
                f"queue {fullest.number} at {fullest.broker} has {most:,} of {counted(total, 'message')}",
                "one member of a group does most of the work, and the others wait",
                "choose a sharding key with more values (an id, not a kind), or send without one: "
                f"`firearrow topic show {topic.name}`",
            )


def _is_written(topic: Topic, broker: str) -> bool:
    config = topic.configs.get(broker)
    return config is None or bool(config.perm & WRITE)


def big_messages(facts: Facts) -> Found:
    """Messages of 1 MiB or more"""
    for topic in facts.topics.values():
        big = [each for each in topic.newest if each.bytes >= BIG_BYTES]
        if big:
            largest = max(big, key=lambda each: each.bytes)
            yield Finding(
                Severity.WARNING,
                f"topic {topic.name}",
                f"message {largest.message_id} has {bytes_text(largest.bytes)}",
                "they fill the log, the page cache and the memory of each consumer, and delay those behind them",
                "store the content elsewhere and send its address, or compress it; "
                f"`firearrow message get {topic.name} {largest.message_id}`",
            )


def client_clocks(facts: Facts) -> Found:
    """Clients whose clock differs from the broker's: born times against store times"""
    for topic in facts.plain_topics():
        ahead = [each for each in topic.newest if each.born_ms - each.stored_ms > AHEAD_MS]
        behind = [
            each for each in topic.newest if each.stored_ms - each.born_ms > BEHIND_MS and not each.delayed
        ]
        for wrong, word in ((ahead, "ahead of"), (behind, "behind")):
            if wrong:
                worst = max(wrong, key=lambda each: abs(each.born_ms - each.stored_ms))
                yield Finding(
                    Severity.WARNING,
                    f"topic {topic.name}",
                    f"the clock of {worst.born_host} is {age_text(abs(worst.born_ms - worst.stored_ms))} {word} the "
                    f"broker's: message {worst.message_id}",
                    "timers, expiry and every measured latency are wrong by as much",
                    f"set the clock there by NTP (`timedatectl set-ntp true` on {worst.born_host})",
                )


CHECKS = tuple(
    map(
        check_of,
        (
            topics_without_groups,
            one_queue_topics,
            unreadable_queues,
            draining_queues,
            topic_permissions,
            skewed_queues,
            big_messages,
            client_clocks,
        ),
    )
)
