"""Checks of consumer groups: subscriptions, progress, members, ordered locks, retries and dead letters. Pure."""

from collections.abc import Iterator

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.base.names import DLQ, RETRY
from firearrow.client.cli.doctor.checks import Found, NotChecked, check_of, counted, shortened
from firearrow.client.cli.doctor.facts import Facts, Group, Progress, Queue
from firearrow.client.cli.times import age_text

DELAYED = "SCHEDULE_CONSUMER"
"""Its dead letters were due for topics that were deleted."""
RETRIES_MAX = 100
"""More retries of one group in RETRIES_WINDOW_MS are a storm."""
RETRIES_WINDOW_MS = 600_000
KEPT_HOURS = 72
EXPIRES_SHARE = 0.8
NO_CLIENTS = "a stopped store has no clients"
NEEDS_FIREARROW = "only FireArrow's broker says it"


def group_subscriptions(facts: Facts) -> Found:
    """Members of a group that subscribe differently"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        if group.differing:
            kinds = "; ".join(f"{shortened(ids, 3)}: {text}" for text, ids in group.differing[:4])
            yield Finding(
                Severity.CRITICAL,
                f"group {group.name}",
                f"its members subscribe differently: {kinds}",
                "a queue is read by one member with its own filter, so messages for the others are skipped, silently",
                f"give all members the same subscriptions, or each kind its own group; then `firearrow group "
                f"diff {group.name}`",
            )
        if group.silent:
            yield NotChecked(
                f"these members did not say what they subscribe to: {shortened(group.silent, 3)}",
                f"group {group.name}",
            )


def group_stands_still(facts: Facts) -> Found:
    """Consumers without progress, and the message they stand on"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        standing = [(queue, each) for queue, each in sorted(group.progress.items()) if each.stands]
        if standing:
            yield _standing(facts, group, standing)


def _standing(facts: Facts, group: Group, standing: list[tuple[Queue, Progress]]) -> Finding[str]:
    """One finding for the group, with the queue that stands for the longest time."""
    queue, progress = min(
        standing, key=lambda pair: facts.now_ms if pair[1].head is None else pair[1].head.stored_ms
    )
    head, more = progress.head, len(standing) - 1
    known = "" if head is None else f", message {head.message_id}, {_age(facts, head.stored_ms)} old"
    others = f" (and in {counted(more, 'more queue')})" if more else ""
    look = f"message path {queue.topic} {head.message_id}" if head else f"group lag {group.name}"
    return Finding(
        Severity.CRITICAL,
        f"group {group.name}",
        f"it stands at offset {progress.next_offset} of {queue}{known}{others}; "
        f"{counted(group.lag, 'message')} wait",
        "its members are connected, but finish nothing: a listener hangs, or fails again and again",
        f"`firearrow {look}`; look at the member's stack by `firearrow group members {group.name}`; restart it, or "
        f"skip the message by `firearrow group seek {group.name} {queue.topic} --to TIME`",
    )


def unread_expired(facts: Facts) -> Found:
    """Messages that were deleted before their group read them"""
    for group in facts.plain_groups():
        lost = {
            queue: each.min_offset - each.committed
            for queue, each in sorted(group.progress.items())
            if each.committed is not None and 0 < each.committed < each.min_offset
        }
        if lost:
            yield Finding(
                Severity.CRITICAL if group.members else Severity.WARNING,
                f"group {group.name}",
                f"{counted(sum(lost.values()), 'message')} of {shortened(map(str, lost), 3)} are gone before it "
                "read them",
                "retention or a purge deleted them: they are lost for this group",
                f"raise fileReservedTime (`firearrow config set fileReservedTime=HOURS`), or delete the group if "
                f"it is not needed: `firearrow group delete {group.name}`",
            )


def unread_expires_soon(facts: Facts) -> Found:
    """Unread messages that retention will delete soon"""
    for group in facts.plain_groups():
        for queue, each in sorted(group.progress.items()):
            broker = facts.brokers.get(queue.broker)
            if each.head is None or broker is None or not each.lag:
                continue
            kept_ms = broker.number("fileReservedTime", KEPT_HOURS) * 3_600_000
            age_ms = facts.now_ms - each.head.stored_ms
            if kept_ms and age_ms > kept_ms * EXPIRES_SHARE:
                yield Finding(
                    Severity.WARNING,
                    f"group {group.name}",
                    f"its next message of {queue} is {age_text(age_ms)} old, and files are kept {age_text(kept_ms)}",
                    f"retention deletes {counted(each.lag, 'unread message')} in file after file from then on",
                    "`firearrow config set fileReservedTime=HOURS`, and let the group catch up",
                )
                break


def groups_without_members(facts: Facts) -> Found:
    """Groups that have read something, and have no members now"""
    if facts.store is not None:
        yield NotChecked(NO_CLIENTS)
        return
    for group in facts.plain_groups():
        if group.members == () and group.progress:
            lag = group.lag
            yield Finding(
                Severity.WARNING if lag else Severity.NOTE,
                f"group {group.name}",
                f"it has no members, and {counted(lag, 'message')} wait" if lag else "it has no members",
                "no client reads for it: its consumers are down, or it is a relic",
                f"start its consumers, or `firearrow group delete {group.name}`",
            )


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
            at = f", which stands at message {lock.head_id}" if lock.head_id else ""
            yield Finding(
                Severity.WARNING,
                f"group {lock.group}",
                f"{lock.queue}{at}, is locked by {lock.client_id}, which is not connected",
                "an ordered queue is read by the owner of its lock alone: until the lock ends, no client reads it",
                f"wait a minute, until the lock expires; then `firearrow queue who {lock.group}`",
            )


def more_members_than_queues(facts: Facts) -> Found:
    """Members that get no queue"""
    for group in facts.plain_groups():
        if not group.members or group.model == "BROADCASTING" or not group.subscriptions:
            continue
        topics = [facts.topics[name] for name in group.subscriptions if name in facts.topics]
        queues = max(
            (
                sum(config.read_queues for config in topic.configs.values())
                for topic in topics
                if topic.is_plain
            ),
            default=0,
        )
        if 0 < queues < len(group.members):
            names = shortened(topic.name for topic in topics if topic.is_plain)
            yield Finding(
                Severity.WARNING,
                f"group {group.name}",
                f"{counted(len(group.members), 'member')} for {counted(queues, 'queue')} of {names}",
                "a queue is read by one member: the others stand by, and add nothing",
                f"`firearrow topic set {topics[0].name} --queues {len(group.members)}`, or fewer members",
            )


def disabled_groups(facts: Facts) -> Found:
    """Groups that may not consume, though they have members or messages wait"""
    for group in facts.plain_groups():
        if group.config is not None and not group.config.consume_enabled and (group.members or group.lag):
            yield Finding(
                Severity.WARNING,
                f"group {group.name}",
                f"consumeEnable is false, and {counted(group.lag, 'message')} wait",
                "brokers refuse its pulls: it was paused, and not resumed",
                f"`firearrow group pause {group.name} --resume`",
            )


def retry_storms(facts: Facts) -> Found:
    """Groups that fail again and again"""
    if facts.store is not None:
        yield NotChecked("a stopped store retries nothing")
        return
    for topic in facts.topics.values():
        group = topic.group_of(RETRY)
        recent = sum(queue.recent or 0 for queue in topic.queues.values())
        if group is not None and recent >= RETRIES_MAX:
            yield Finding(
                Severity.WARNING,
                f"group {group}",
                f"{counted(recent, 'retry', 'retries')} in the last {age_text(RETRIES_WINDOW_MS)}",
                "its listeners fail on many messages: each comes back up to 16 times, and then is a dead letter",
                f"read its log; `firearrow group lag {group}`, `firearrow tail {topic.name} --from -10`",
            )


def unread_dead_letters(facts: Facts) -> Iterator[Finding[str]]:
    """Dead letters that were not read"""
    for topic in facts.topics.values():
        group = topic.group_of(DLQ)
        if group is None:
            continue
        unread = 0
        for queue, state in topic.queues.items():
            read = [
                reader.progress[queue].committed or 0
                for reader in facts.groups.values()
                if queue in reader.progress
            ]
            unread += max(state.max_offset - max([state.min_offset, *read]), 0)
        if unread:
            yield Finding(
                Severity.WARNING,
                f"group {group}",
                f"{counted(unread, 'dead letter')} that were not read",
                f"{_why_dead(group)}: no consumer gets them again, and retention deletes them",
                f"`firearrow dlq show {group}`, then `firearrow dlq redrive {group}`",
            )


def _why_dead(group: str) -> str:
    return f"these messages {'were due for deleted topics' if group == DELAYED else 'failed in all their retries'}"


def _age(facts: Facts, since_ms: int) -> str:
    return age_text(max(facts.now_ms - since_ms, 0))


CHECKS = tuple(
    map(
        check_of,
        (
            group_subscriptions,
            group_stands_still,
            unread_expired,
            unread_expires_soon,
            groups_without_members,
            ordered_queues_without_owner,
            more_members_than_queues,
            disabled_groups,
            retry_storms,
            unread_dead_letters,
        ),
    )
)
