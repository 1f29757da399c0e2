"""What must hold between what was sent and what is stored. Pure functions on a History; each yields its violations.

`settled`: senders rest, and everything that is stored was read after that.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.history.history import Attempt, History, Position, Queue
from tests.history.violation import Violation


def lost(history: History, settled: bool) -> Iterator[Violation]:
    """An acknowledged message is at its offset; delayed ones have been delivered."""
    present = {copy.name for copy in history.stored.values()} if settled else set()
    for attempt in history.attempts.values():
        if not attempt.acknowledged:
            continue
        position = attempt.position
        if position is not None and (settled or _is_read(history, position)):
            found = history.stored.get(position)
            if found is None or found.name != attempt.name:
                there = "nothing" if found is None else found.name
                yield Violation("lost", f"{attempt.name} was acknowledged at {position}, where {there} is")
        elif position is None and settled and attempt.fate == "keep" and attempt.name not in present:
            yield Violation("lost", f"{attempt.name} ({attempt.kind}) was acknowledged and never delivered")


def repeated(history: History, settled: bool) -> Iterator[Violation]:
    """No more copies than were sent; none of what was rolled back."""
    for name, count in Counter(copy.name for copy in history.stored.values()).items():
        attempt = history.attempts.get(name)
        if attempt is None:
            continue
        if attempt.fate == "drop":
            yield Violation("rolled back", f"{name} was rolled back and is stored")
        elif count > attempt.copies:
            yield Violation(
                "repeated", f"{name} is stored {count} times, sent {attempt.copies} times at most"
            )


def invented(history: History, settled: bool) -> Iterator[Violation]:
    """Everything that is stored was sent, to that topic, with that body; each id once."""
    for name in history.duplicate_ids:
        yield Violation("duplicate id", f"{name} was sent twice under one id: the history is invalid")
    for position, copy in history.stored.items():
        attempt = history.attempts.get(copy.name)
        if attempt is None:
            yield Violation("invented", f"{copy.name}, which was never sent, is at {position}")
        elif attempt.topic != position[0]:
            yield Violation("invented", f"{copy.name}, which was sent to {attempt.topic}, is at {position}")
        elif (attempt.crc, attempt.size) != (copy.crc, copy.size):
            yield Violation("changed", f"{position}: the body of {copy.name} is not the one that was sent")


def gone(history: History, settled: bool) -> Iterator[Violation]:
    """What the observer read does not change, and queues have no gaps."""
    for position, before, after in history.overwritten:
        yield Violation("gone", f"{before.name} was at {position}, where {after.name} is now")
    for queue, before_ends, now in history.shrunk:
        yield Violation("gone", f"{queue} went from {before_ends.first}..{before_ends.end} back to {now}")
    read: defaultdict[Queue, set[int]] = defaultdict(set)
    for topic, queue_id, offset in history.stored:
        read[topic, queue_id].add(offset)
    for queue, ends in history.ends.items():
        holes = set(range(ends.first, ends.end)) - read[queue]
        beyond = {offset for offset in read[queue] if offset >= ends.end}
        if settled and holes:
            yield Violation("gone", f"{queue} has {len(holes)} gaps below {ends.end}, one at {min(holes)}")
        if beyond:
            yield Violation(
                "gone", f"{queue} ends at {ends.end}, but {len(beyond)} were read at {min(beyond)} and up"
            )


def disordered(history: History, settled: bool) -> Iterator[Violation]:
    """Of one sender in one queue: acknowledged ones in the order of sending, and none after one that was sent later.

    Delayed messages and those of transactions get their offset later, in no order.
    """
    for (queue, sender), attempts in _by_sender(history).items():
        newest, newest_acknowledged = -1, -1
        for attempt in attempts:
            late = attempt.ended is not None and attempt.ended < newest
            if late or (attempt.acknowledged and attempt.begun < newest_acknowledged):
                yield Violation(
                    "disordered", f"{queue}: {attempt.name} follows a message that {sender} sent later"
                )
            newest = max(newest, attempt.begun)
            if attempt.acknowledged and attempt.copies == 1:
                newest_acknowledged = max(newest_acknowledged, attempt.begun)


def _by_sender(history: History) -> dict[tuple[Queue, str], list[Attempt]]:
    found: defaultdict[tuple[Queue, str], list[Attempt]] = defaultdict(list)
    for position in sorted(history.stored):
        attempt = history.attempts.get(history.stored[position].name)
        if attempt is not None and attempt.kind == "plain":
            found[position[:2], attempt.sender].append(attempt)
    return found


def _is_read(history: History, position: Position) -> bool:
    ends = history.ends.get(position[:2])
    return ends is not None and position[2] < ends.end
