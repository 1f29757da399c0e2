"""What must hold between what consumers got and what is stored. Pure functions on a History.

A message may be redelivered until the group's offset, or its acknowledgement, has passed it.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.history import Delivery, GroupQueue, History, Member
from tests.history.violation import Violation


def false_deliveries(history: History, settled: bool) -> Iterator[Violation]:
    """No client gets what was not sent, other bodies, rolled back messages, or messages that are gone later.

    While clients are at work their files are read in turn: what one got may still be missing in the file of another.
    """
    for delivery in history.deliveries:
        copy, group = delivery.copy, delivery.group
        attempt = history.attempts.get(copy.name)
        if attempt is None:
            if settled:
                yield Violation(
                    "invented", f"{group} got {copy.name}, which was never sent, at {delivery.position}"
                )
            continue
        if attempt.fate == "drop":
            yield Violation("rolled back", f"{group} got {copy.name}, which was rolled back")
        if (attempt.crc, attempt.size) != (copy.crc, copy.size):
            yield Violation("changed", f"{group} got {copy.name} with another body than was sent")
        found = history.stored.get(delivery.position)
        if delivery.times == 0 and (found is not None or settled) and found != copy:
            there = "nothing" if found is None else found.name
            yield Violation("gone", f"{group} got {copy.name} at {delivery.position}, where {there} is now")


def undelivered(history: History, settled: bool) -> Iterator[Violation]:
    """At the end every group has got everything, and consumed what failed at first."""
    if not settled:
        return
    got: defaultdict[str, set[tuple[str, int, int]]] = defaultdict(set)
    fine: defaultdict[str, set[str]] = defaultdict(set)
    for delivery in history.deliveries:
        if delivery.times == 0:
            got[delivery.group].add(delivery.position)
        if delivery.ok:
            fine[delivery.group].add(delivery.copy.name)
    for member in history.groups.values():
        for position, copy in history.stored.items():
            if position[0] != member.topic:
                continue
            if member.how != "pop" and position not in got[member.group]:
                yield Violation("undelivered", f"{member.group} never got {copy.name} at {position}")
            elif copy.name not in fine[member.group]:
                yield Violation("undelivered", f"{member.group} never consumed {copy.name} at {position}")


def skipped(history: History, settled: bool) -> Iterator[Violation]:
    """An orderly group gets each queue from its beginning, and nothing new before everything that precedes it."""
    next_new: defaultdict[GroupQueue, int] = defaultdict(int)
    for delivery in history.deliveries:
        member = history.groups[delivery.group]
        if member.how not in ("orderly", "exact") or member.shared:
            continue
        topic, queue_id, offset = delivery.position
        key = delivery.group, topic, queue_id
        if offset > next_new[key]:
            yield Violation("skipped", f"{key} got {offset} when {next_new[key]} was next")
        next_new[key] = max(next_new[key], offset + 1)


def again(history: History, settled: bool) -> Iterator[Violation]:
    """No message is redelivered below a committed offset, or after its acknowledgement: after as many as there are
    copies, if its client stored it more than once."""
    copies = Counter(copy.name for copy in history.stored.values())
    committed = {member.group: _Committed(history, member) for member in history.groups.values()}
    for delivery in history.deliveries:
        member = history.groups[delivery.group]
        if member.how == "pop":
            name = delivery.copy.name
            acked = history.acked.get((delivery.group, name), [])
            if len(acked) >= max(copies[name], 1) and delivery.popped > acked[max(copies[name], 1) - 1]:
                yield Violation("again", f"{delivery.group} got {name} after it was acknowledged")
        elif not member.shared and delivery.times == 0:
            passed = committed[delivery.group].before(delivery)
            if delivery.position[2] < passed:
                yield Violation(
                    "again", f"{delivery.group} got {delivery.position} after {passed} was its group's offset"
                )


class _Committed:
    """How far a group's offset was known to be at a time."""

    def __init__(self, history: History, member: Member) -> None:
        self._known: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
        queues = {key[1:] for key in (*history.observed, *history.answered) if key[0] == member.group}
        for queue in queues:
            key = (member.group, *queue)
            facts = sorted(
                [(seen.at, seen.offset) for seen in history.observed.get(key, ())]
                + [(commit.at, commit.offset) for commit in history.answered.get(key, ())]
            )
            self._known[queue] = [at for at, _ in facts], _highest([offset for _, offset in facts])

    def before(self, delivery: Delivery) -> int:
        times, offsets = self._known.get(delivery.position[:2], ([], []))
        at = bisect_right(times, delivery.at)
        return offsets[at - 1] if at else -1


def _highest(offsets: list[int]) -> list[int]:
    found: list[int] = []
    for offset in offsets:
        found.append(max(offset, found[-1]) if found else offset)
    return found
