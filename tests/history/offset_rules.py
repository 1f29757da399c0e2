"""What must hold for the offsets of groups: never backwards, never beyond the queue, never past an undelivered message.

Pure functions on a History. Members of a shared group may move each other's offsets back while queues change owners;
Apache's protocol allows that, so such a group's offsets are only compared with what was delivered.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.history.history import Commit, GroupQueue, History
from tests.history.violation import Violation


def backwards(history: History, settled: bool) -> Iterator[Violation]:
    for key, seen in history.observed.items():
        if history.groups[key[0]].shared:
            continue
        highest = -1
        for one in sorted(seen, key=lambda one: one.before):
            if one.offset < highest:
                yield Violation("backwards", f"{key} was at {highest} and is at {one.offset} now")
            highest = max(highest, one.offset)


def forgotten(history: History, settled: bool) -> Iterator[Violation]:
    """Between the last acknowledged commit and the last requested one, for clients that wait for responses."""
    for key, seen in history.observed.items():
        if history.groups[key[0]].how != "exact":
            continue
        for one in seen:
            least = _highest(history.answered.get(key, []), one.before)
            most = max(_highest(history.asked.get(key, []), one.at), 0)
            if one.offset < least:
                yield Violation("forgotten", f"{key} is at {one.offset}, but {least} was answered before")
            if one.offset > most:
                yield Violation("ahead", f"{key} is at {one.offset}, but no commit was above {most}")


def ahead(history: History, settled: bool) -> Iterator[Violation]:
    """No group's offset is beyond its queue, or beyond a message that it has not got."""
    got: defaultdict[GroupQueue, dict[int, int]] = defaultdict(dict)
    for delivery in history.deliveries:
        topic, queue_id, offset = delivery.position
        if delivery.times == 0:
            first = got[delivery.group, topic, queue_id]
            first[offset] = min(first.get(offset, delivery.at), delivery.at)
    for key, seen in history.observed.items():
        end = history.ends.get(key[1:])
        highest = max(one.offset for one in seen)
        if settled and end is not None and highest > end.end:
            yield Violation("ahead", f"{key} was at {highest}, but its queue ends at {end.end}")
        if history.groups[key[0]].how == "pop":
            continue
        reached = 0
        latest = -1
        for one in sorted(seen, key=lambda one: one.offset):
            while reached < one.offset:
                at = got[key].get(reached)
                if at is None:
                    yield Violation("ahead", f"{key} was at {one.offset}, and {reached} was never delivered")
                latest = max(latest, at or 0)
                reached += 1
            if latest > one.at:
                yield Violation("ahead", f"{key} was at {one.offset} before all below had been delivered")


def _highest(commits: list[Commit], before: int) -> int:
    return max((commit.offset for commit in commits if commit.at < before), default=-1)
