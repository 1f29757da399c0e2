"""Checks of topics: readers, queues, permissions, the size of messages, and the clocks of those who sent them. Pure."""

from firearrow._native.protocol.name_rules import DISCARD_TOPIC, SCHEDULE_TOPIC, is_system_topic
from firearrow._native.store_checks.findings import Severity
from firearrow.client.admin_api.records import unread_messages
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.base.times import age_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, counted, finds, shortened
from firearrow.client.cli.doctor.facts import BROADCASTING, Broker, Facts, Queue, QueueState, Topic
from firearrow.client.cli.output import bytes_text

NOTE, WARNING, CRITICAL = Severity
SKEW_MESSAGES_MIN = 1000
"""With fewer messages, unequal queues say nothing."""
SKEW_FACTOR = 5
"""A queue is skewed if it has this many times the messages of the others' mean."""
BIG_BYTES = 1 << 20
AHEAD_MS = 5_000
BEHIND_MS = 300_000
READ, WRITE = 4, 2
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Apache's default of messageDelayLevel."""
IN_NO_STORE = "a store folder does not say it"
RETRY_LEVEL = 3
"""The delay level of a first retry; each further one has the next."""

NO_GROUP = Trouble(
    NOTE,
    "{messages}, and no group reads it",
    "no group reads its messages, until retention deletes them",
    "start a consumer, or `firearrow topic delete {topic}`",
)
ONE_QUEUE = Trouble(
    NOTE,
    "it has one queue",
    "only one member of each group can read it; if all its messages need one order, that is right",
    "`firearrow topic set {topic} --queues 8`",
)
BEYOND_READ_QUEUES = Trouble(
    WARNING,
    "at {broker} it has {write} write queues and {read} read queues; the others hold {messages}{unread}",
    "no consumer is given queues beyond the read queues: their messages are lost for all groups",
    "{fix}",
    CRITICAL,
)
DRAINING = Trouble(
    NOTE,
    "at {broker} it has {write} write queues and {read} read queues; unread in those that are not written: {unread}",
    "the topic is being shrunk: to take its read queues away now would hide these messages",
    "`firearrow topic shrink {topic} --queues {write}` waits and finishes",
)
NO_PERMISSION = Trouble(
    WARNING,
    "at {broker} no client may {lacks} it",
    "clients get no queue of it there: the permission was taken away, and not given back",
    "`firearrow topic set {topic} --perm rw`",
)
SKEWED = Trouble(
    WARNING,
    "queue {queue} at {broker} has {most} of {messages}",
    "one member of a group does most of the work, and the others wait",
    "choose a sharding key with more values (an id, not a kind), or send without one: `firearrow topic show {topic}`",
)
BIG = Trouble(
    WARNING,
    "message {message} has {size}",
    "they fill the log, the page cache and the memory of each consumer, and delay those after them",
    "store the content elsewhere and send its address, or compress it; `firearrow message get {topic} {message}`",
)
WRONG_CLOCK = Trouble(
    WARNING,
    "the clock of {host} is {age} {side} the broker's: message {message}",
    "timers, expiry and every measured latency are wrong by as much",
    "set the clock there by NTP (`timedatectl set-ntp true` on {host})",
)
DISCARDED = Trouble(
    WARNING,
    "{transactions} discarded, as no producer ended them in all checks{last}",
    "their messages were sent, and no consumer gets them: the producer groups were not there, or answered UNKNOWN",
    "`firearrow tx list --discarded` shows them, `firearrow tx ask ID` asks again; start their producers, or let them "
    "decide; what was looked at ends by `firearrow topic purge {topic}`",
)
REMOVED_LEVELS = Trouble(
    WARNING,
    "{messages} wait in delay levels {levels}, and messageDelayLevel has {known}",
    "Apache's broker never delivers them; FireArrow's does when they are due by the time at which they were sent",
    "start the broker with a messageDelayLevel that has these levels again, until they are delivered",
    CRITICAL,
)
LOWERED = Trouble(
    WARNING,
    "{messages} asked broker {broker} for a delay level beyond {known}, the last of messageDelayLevel, since its start",
    "they were delivered after {longest}, whatever their senders meant",
    "use a level up to {known}, or a timer message (TIMER_DELAY_MS), which takes any delay; or a messageDelayLevel "
    "with more levels",
)
FEW_LEVELS = Trouble(
    NOTE,
    "it may retry {retries} times, which needs delay level {wanted}, and messageDelayLevel of {broker} has {known}",
    "a level beyond the table is the last one: its late retries all wait {longest}",
    "fewer retries: `mqadmin updateSubGroup -r {fitting}`; or a messageDelayLevel with more levels",
)


@finds(NO_GROUP)
def topics_without_groups(facts: Facts) -> Found:
    """Topics with messages that no group reads"""
    for topic in facts.plain_topics():
        if topic.messages and not topic.groups:
            yield NO_GROUP.of(
                f"topic {topic.name}", messages=counted(topic.messages, "message"), topic=topic.name
            )


@finds(ONE_QUEUE)
def one_queue_topics(facts: Facts) -> Found:
    """Topics with one queue, which one member of a group can read"""
    for topic in facts.plain_topics():
        queues = sum(config.write_queues for config in topic.configs.values())
        if queues == 1 and topic.messages:
            yield ONE_QUEUE.of(f"topic {topic.name}", topic=topic.name)


@finds(BEYOND_READ_QUEUES)
def unreadable_queues(facts: Facts) -> Found:
    """Queues that are never read: written beyond the read queues, or left when queues were taken away"""
    for topic in facts.topics.values():
        if topic.group_of(DLQ) is not None or is_system_topic(topic.name):
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
                wider = f"`firearrow topic set {topic.name} --queues {queues}`"
                shrunk = (
                    f"`firearrow topic set {topic.name} --read-queues {queues}`, and then `firearrow topic shrink "
                    f"{topic.name} --queues {config.write_queues}`"
                )
                yield BEYOND_READ_QUEUES.of(
                    f"topic {topic.name}",
                    is_worst=bool(unread),
                    broker=broker,
                    write=config.write_queues,
                    read=config.read_queues,
                    messages=counted(sum(state.messages for _, state in beyond), "message"),
                    unread=f", unread: {unread}" if unread else "",
                    fix=wider if written else shrunk,
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


@finds(DRAINING)
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
                yield DRAINING.of(
                    f"topic {topic.name}",
                    broker=broker,
                    write=config.write_queues,
                    read=config.read_queues,
                    unread=unread,
                    topic=topic.name,
                )


@finds(NO_PERMISSION)
def topic_permissions(facts: Facts) -> Found:
    """Topics that no client may write or read"""
    for topic in facts.plain_topics():
        for broker, config in sorted(topic.configs.items()):
            lacks = [word for bit, word in ((READ, "read"), (WRITE, "write")) if not config.perm & bit]
            if lacks:
                yield NO_PERMISSION.of(
                    f"topic {topic.name}", broker=broker, lacks=" or ".join(lacks), topic=topic.name
                )


@finds(SKEWED)
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
            yield SKEWED.of(
                f"topic {topic.name}",
                queue=fullest.number,
                broker=fullest.broker,
                most=f"{most:,}",
                messages=counted(total, "message"),
                topic=topic.name,
            )


def _is_written(topic: Topic, broker: str) -> bool:
    config = topic.configs.get(broker)
    return config is None or bool(config.perm & WRITE)


@finds(BIG)
def big_messages(facts: Facts) -> Found:
    """Messages of 1 MiB or more"""
    for topic in facts.topics.values():
        big = [each for each in topic.newest if each.bytes >= BIG_BYTES]
        if big:
            largest = max(big, key=lambda each: each.bytes)
            yield BIG.of(
                f"topic {topic.name}",
                message=largest.message_id,
                size=bytes_text(largest.bytes),
                topic=topic.name,
            )


@finds(WRONG_CLOCK)
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
                yield WRONG_CLOCK.of(
                    f"topic {topic.name}",
                    host=worst.born_host,
                    age=age_text(abs(worst.born_ms - worst.stored_ms)),
                    side=word,
                    message=worst.message_id,
                )


@finds(DISCARDED)
def discarded_transactions(facts: Facts) -> Found:
    """Transactions that were discarded after all checks"""
    topic = facts.topics.get(DISCARD_TOPIC)
    if topic is not None and topic.messages:
        last_ms = max(state.last_ms for state in topic.queues.values())
        yield DISCARDED.of(
            "transactions",
            transactions=counted(topic.messages, "transaction was", "transactions were"),
            last=f", the last one {age_text(max(facts.now_ms - last_ms, 0))} ago" if last_ms > 0 else "",
            topic=DISCARD_TOPIC,
        )


@finds(REMOVED_LEVELS)
def removed_delay_levels(facts: Facts) -> Found:
    """Messages that wait in delay levels that messageDelayLevel does not have any more"""
    topic = facts.topics.get(SCHEDULE_TOPIC)
    for broker in facts.asked_brokers():
        if broker.delay_offsets is None:
            why = "the broker does not list its delay levels" if facts.store is None else IN_NO_STORE
            yield NotChecked(why, f"broker {broker.name}")
        if topic is None or broker.delay_offsets is None:
            continue
        known, waiting = len(_levels(broker)), dict[int, int]()
        for queue, state in topic.queues.items():
            if queue.broker == broker.name and queue.number >= known:
                delivered = broker.delay_offsets.get(queue.number + 1, 0)
                waiting[queue.number + 1] = state.max_offset - max(state.min_offset, delivered)
        waiting = {level: count for level, count in sorted(waiting.items()) if count > 0}
        if waiting:
            yield REMOVED_LEVELS.of(
                f"broker {broker.name}",
                is_worst=broker.machine is None,
                messages=counted(sum(waiting.values()), "message"),
                levels=shortened(map(str, waiting)),
                known=known,
            )


@finds(LOWERED)
def delay_levels_beyond(facts: Facts) -> Found:
    """Messages sent with a delay level that messageDelayLevel does not have"""
    for broker in facts.asked_brokers():
        if broker.status is None:
            why = "only FireArrow's broker says it" if facts.store is None else IN_NO_STORE
            yield NotChecked(why, f"broker {broker.name}")
            continue
        levels = _levels(broker)
        for each in broker.status.get("loweredDelayLevels", ()):
            if facts.topics.get(
                each["topic"], Topic(each["topic"])
            ).is_plain:  # retries: `retries-beyond-levels`
                yield LOWERED.of(
                    f"topic {each['topic']}",
                    messages=counted(each["count"], "message"),
                    broker=broker.name,
                    known=len(levels),
                    longest=levels[-1],
                )


@finds(FEW_LEVELS)
def retries_beyond_levels(facts: Facts) -> Found:
    """Groups whose retries need more delay levels than there are"""
    for group in facts.plain_groups():
        tables = [(len(_levels(broker)), broker) for broker in facts.asked_brokers()]
        if group.config is None or not tables:
            continue
        known, broker = min(tables, key=lambda pair: pair[0])
        wanted = RETRY_LEVEL - 1 + group.config.retries_max
        if wanted > known:
            yield FEW_LEVELS.of(
                f"group {group.name}",
                retries=group.config.retries_max,
                wanted=wanted,
                broker=broker.name,
                known=known,
                longest=_levels(broker)[-1],
                fitting=max(known - RETRY_LEVEL + 1, 0),
            )


def _levels(broker: Broker) -> list[str]:
    return broker.config.get("messageDelayLevel", LEVELS).split() or LEVELS.split()


CHECKS = (
    topics_without_groups,
    one_queue_topics,
    unreadable_queues,
    draining_queues,
    topic_permissions,
    skewed_queues,
    big_messages,
    client_clocks,
    discarded_transactions,
    removed_delay_levels,
    delay_levels_beyond,
    retries_beyond_levels,
)
