"""Checks of consumer groups: subscriptions, progress, members, ordered locks, retries and dead letters. Pure."""

from collections.abc import Sequence
from itertools import pairwise

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.base.times import age_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, counted, finds, shortened
from firearrow.client.cli.doctor.facts import BROADCASTING, Facts, Group, Progress, Queue, Topic

NOTE, WARNING, CRITICAL = Severity
DELAYED = "SCHEDULE_CONSUMER"
"""Its dead letters were due for topics that were deleted."""
RETRIES_MAX = 100
"""More retries of one group in RETRIES_WINDOW_MS are a storm."""
RETRIES_WINDOW_MS = 600_000
KEPT_HOURS = 72
EXPIRES_SHARE = 0.8
GROWTH_SHARE = 0.001
"""A lag that grows by a smaller share of it while we watch may be one that varies."""
NO_CLIENTS = "a stopped store has no clients"
NEEDS_FIREARROW = "only FireArrow's broker says it"

SUBSCRIBES_DIFFERENTLY = Trouble(
    CRITICAL,
    "its members subscribe differently: {kinds}",
    "a queue is read by one member with its own filter, so messages for the others are skipped, silently",
    "give all members the same subscriptions, or each kind its own group; then `firearrow group diff {group}`",
)
STANDS = Trouble(
    CRITICAL,
    "it stands at offset {offset} of {queue}{message}{others}; {lag} wait",
    "its members are connected, but finish nothing: a listener hangs, or fails again and again",
    "`firearrow {look}`; look at the member's stack by `firearrow group members {group}`; restart it, or skip the "
    "message by `firearrow group seek {group} {topic} --to TIME`",
)
LAGS_MORE = Trouble(
    WARNING,
    "its lag only grows: {lag} wait, {growth} more than {time} before",
    "more is sent than its members consume: they are later and later, until retention deletes what they have not read",
    "faster listeners, or more members: `firearrow group members {group}`; if all queues have one, more queues: "
    "`firearrow topic set {topic} --queues N`",
)
EXPIRED = Trouble(
    WARNING,
    "{messages} of {queues} were deleted before it read them",
    "retention or a purge deleted them: they are lost for this group",
    "raise fileReservedTime (`firearrow config set fileReservedTime=HOURS`), or delete the group if it is not needed: "
    "`firearrow group delete {group}`",
    CRITICAL,
)
EXPIRES = Trouble(
    WARNING,
    "its next message of {queue} is {age} old, and files are kept {kept}",
    "retention deletes {messages} in file after file from then on",
    "`firearrow config set fileReservedTime=HOURS`, and let the group catch up",
)
NO_MEMBERS = Trouble(
    NOTE,
    "it has no members{waiting}",
    "no client reads for it: its consumers are down, or it is a relic",
    "start its consumers, or `firearrow group delete {group}`",
    WARNING,
)
LOST_OWNER = Trouble(
    WARNING,
    "{queue}{at}, is locked by {client}, which is not connected",
    "an ordered queue is read by the owner of its lock alone: until the lock ends, no client reads it",
    "wait a minute, until the lock expires; then `firearrow queue who {group}`",
)
IDLE_MEMBERS = Trouble(
    WARNING,
    "{members} for {queues} of {topics}",
    "a queue is read by one member: the others stand by, and add nothing",
    "`firearrow topic set {topic} --queues {wanted}`, or fewer members",
)
DISABLED = Trouble(
    WARNING,
    "consumeEnable is false, and {messages} wait",
    "brokers refuse its pulls: it was paused, and not resumed",
    "`firearrow group pause {group} --resume`",
)
RETRY_STORM = Trouble(
    WARNING,
    "{retries} in the last {time}",
    "its listeners fail on many messages: each comes back up to 16 times, and then is a dead letter",
    "read its log; `firearrow group lag {group}`, `firearrow tail {topic} --from -10`",
)
DEAD_LETTERS = Trouble(
    WARNING,
    "{letters} not read and not redriven",
    "these messages {reason}: no consumer gets them again, and retention deletes them",
    "`firearrow dlq show {group}`, then `firearrow dlq redrive {group}`",
)


@finds(SUBSCRIBES_DIFFERENTLY)
def group_subscriptions(facts: Facts) -> Found:
    """Members of a group that subscribe differently"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        if group.differing:
            kinds = "; ".join(f"{shortened(ids, 3)}: {text}" for text, ids in group.differing[:4])
            yield SUBSCRIBES_DIFFERENTLY.of(f"group {group.name}", kinds=kinds, group=group.name)
        if group.silent:
            yield NotChecked(
                f"these members did not say what they subscribe to: {shortened(group.silent, 3)}",
                f"group {group.name}",
            )


@finds(STANDS)
def group_stands_still(facts: Facts) -> Found:
    """Consumers without progress, and the message they stand on"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        standing = sorted((queue, each) for queue, each in group.heads.items() if each.stands)
        if standing:
            yield _standing(facts, group, standing)


def _standing(facts: Facts, group: Group, standing: list[tuple[Queue, Progress]]) -> Finding[str]:
    """One finding for the group, with the queue that stands for the longest time."""
    queue, progress = min(
        standing, key=lambda pair: facts.now_ms if pair[1].head is None else pair[1].head.stored_ms
    )
    head, more = progress.head, len(standing) - 1
    return STANDS.of(
        f"group {group.name}",
        offset=progress.next_offset,
        queue=queue,
        message="" if head is None else f", message {head.message_id}, {_age(facts, head.stored_ms)} old",
        others=f" (and in {counted(more, 'more queue')})" if more else "",
        lag=counted(group.lag, "message"),
        look=f"message path {queue.topic} {head.message_id}" if head else f"group lag {group.name}",
        group=group.name,
        topic=queue.topic,
    )


@finds(LAGS_MORE)
def group_lag_grows(facts: Facts) -> Found:
    """Consumers that work, but are later and later"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        if not group.members or not group.progress or any(each.stands for each in group.heads.values()):
            continue
        for lags, over_ms in ((group.watched_lags, facts.watched_ms), (group.past_lags, group.past_ms)):
            if _only_grows(lags):
                latest = max(group.progress, key=lambda queue: group.progress[queue].lag)
                yield LAGS_MORE.of(
                    f"group {group.name}",
                    lag=counted(round(lags[-1]), "message"),
                    growth=f"{round(lags[-1] - lags[0]):,}",
                    time=age_text(over_ms),
                    group=group.name,
                    topic=latest.topic,
                )
                break


def _only_grows(lags: Sequence[float]) -> bool:
    rises = all(after > before for before, after in pairwise(lags))
    return len(lags) > 2 and rises and lags[-1] - lags[0] > lags[-1] * GROWTH_SHARE


@finds(EXPIRED)
def unread_expired(facts: Facts) -> Found:
    """Messages that were deleted before their group read them"""
    for group in facts.plain_groups():
        lost = dict(
            sorted(
                (queue, each.min_offset - each.committed)
                for queue, each in group.progress.items()
                if each.committed is not None and 0 < each.committed < each.min_offset
            )
        )
        if lost:
            yield EXPIRED.of(
                f"group {group.name}",
                is_worst=bool(group.members),
                messages=counted(sum(lost.values()), "message"),
                queues=shortened(map(str, lost), 3),
                group=group.name,
            )


@finds(EXPIRES)
def unread_expires_soon(facts: Facts) -> Found:
    """Unread messages that retention will delete soon"""
    for group in facts.plain_groups():
        for queue, each in sorted(group.heads.items()):
            broker = facts.brokers.get(queue.broker)
            if each.head is None or broker is None or not each.lag:
                continue
            kept_ms = broker.number("fileReservedTime", KEPT_HOURS) * 3_600_000
            age_ms = facts.now_ms - each.head.stored_ms
            if kept_ms and age_ms > kept_ms * EXPIRES_SHARE:
                yield EXPIRES.of(
                    f"group {group.name}",
                    queue=queue,
                    age=age_text(age_ms),
                    kept=age_text(kept_ms),
                    messages=counted(each.lag, "unread message"),
                )
                break


@finds(NO_MEMBERS)
def groups_without_members(facts: Facts) -> Found:
    """Groups that have read something, and have no members now"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        if group.members == () and (group.progress or group.reads):
            lag = group.lag
            yield NO_MEMBERS.of(
                f"group {group.name}",
                is_worst=lag > 0,
                waiting=f", and {counted(lag, 'message')} wait" if lag else "",
                group=group.name,
            )


@finds(LOST_OWNER)
def ordered_queues_without_owner(facts: Facts) -> Found:
    """Ordered queues that are locked by a client that is not there"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    if facts.locks is None:
        yield NotChecked(NEEDS_FIREARROW)
        return
    for lock in facts.locks:
        if not lock.connected:
            yield LOST_OWNER.of(
                f"group {lock.group}",
                queue=lock.queue,
                at=f", which stands at message {lock.head_id}" if lock.head_id else "",
                client=lock.client_id,
                group=lock.group,
            )


@finds(IDLE_MEMBERS)
def more_members_than_queues(facts: Facts) -> Found:
    """Members that get no queue"""
    for group in facts.plain_groups():
        if not group.members or group.model == BROADCASTING:
            continue
        topics = [facts.topics[name] for name in sorted(group.subscriptions) if name in facts.topics]
        counts = {topic.name: _read_queues(topic) for topic in topics if topic.is_plain}
        if counts and 0 < max(counts.values()) < len(group.members):
            widest = max(counts, key=lambda name: counts[name])
            yield IDLE_MEMBERS.of(
                f"group {group.name}",
                members=counted(len(group.members), "member"),
                queues=counted(counts[widest], "queue"),
                topics=shortened(counts),
                topic=widest,
                wanted=-(-len(group.members) // len(facts.topics[widest].configs)),
            )


def _read_queues(topic: Topic) -> int:
    return sum(config.read_queues for config in topic.configs.values())


@finds(DISABLED)
def disabled_groups(facts: Facts) -> Found:
    """Groups that may not consume, though they have members or messages wait"""
    for group in facts.plain_groups():
        if group.config is not None and not group.config.consume_enabled and (group.members or group.lag):
            yield DISABLED.of(f"group {group.name}", messages=counted(group.lag, "message"), group=group.name)


@finds(RETRY_STORM)
def retry_storms(facts: Facts) -> Found:
    """Groups that fail again and again"""
    if facts.store is not None:
        yield NotChecked("a stopped store retries nothing")
        return
    for topic in facts.topics.values():
        group = topic.group_of(RETRY)
        recent = sum(queue.recent or 0 for queue in topic.queues.values())
        if group is not None and recent >= RETRIES_MAX:
            yield RETRY_STORM.of(
                f"group {group}",
                retries=counted(recent, "retry", "retries"),
                time=age_text(RETRIES_WINDOW_MS),
                group=group,
                topic=topic.name,
            )


@finds(DEAD_LETTERS)
def unread_dead_letters(facts: Facts) -> Found:
    """Dead letters that were neither read nor sent again"""
    for topic in facts.topics.values():
        group = topic.group_of(DLQ)
        if group is None:
            continue
        unread = sum(
            max(state.max_offset - max(state.min_offset, _read_to(facts, topic, queue)), 0)
            for queue, state in topic.queues.items()
        )
        if unread:
            due = group == DELAYED
            yield DEAD_LETTERS.of(
                f"group {group}",
                letters=counted(unread, "dead letter"),
                reason="were due for deleted topics" if due else "failed in all their retries",
                group=group,
            )


def _read_to(facts: Facts, topic: Topic, queue: Queue) -> int:
    """Up to where some group has read the queue, or its letters were sent again. An offset beyond its end is of letters
    that were there before."""
    readers = (facts.groups[name].progress.get(queue) for name in topic.groups if name in facts.groups)
    offsets = [each.committed or 0 for each in readers if each is not None]
    state = topic.queues[queue]
    return max((each for each in (*offsets, state.redriven) if each <= state.max_offset), default=0)


def _age(facts: Facts, since_ms: int) -> str:
    return age_text(max(facts.now_ms - since_ms, 0))


CHECKS = (
    group_subscriptions,
    group_stands_still,
    group_lag_grows,
    unread_expired,
    unread_expires_soon,
    groups_without_members,
    ordered_queues_without_owner,
    more_members_than_queues,
    disabled_groups,
    retry_storms,
    unread_dead_letters,
)
