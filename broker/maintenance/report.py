"""What a verification says: lines for people, an object for programs. Prints; knows no folder.

What each kind of finding means for messages, and what `repair` would do about it. Text only.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from firearrow._native.audit.findings import Finding, Kind
from firearrow.broker.maintenance.dump import printable
from firearrow.broker.maintenance.verify import VerifyResult


class Explanation(NamedTuple):
    """`derived`: nothing is lost, it can be made again from the log."""

    text: str
    repair: str
    derived: bool


BUILD = "repair builds it anew from the log"
DROP = "repair leaves it unless --drop-damaged is given; then a filler stands in its place"
EXPLANATIONS = {
    Kind.MISSING_SEGMENT: Explanation("a file of the log is gone with its messages", DROP, False),
    Kind.CUT_FILE: Explanation("a file of the log is shorter than the others", DROP, False),
    Kind.TORN: Explanation("messages there cannot be read", DROP, False),
    Kind.TORN_TAIL: Explanation("the last write did not reach the disk whole", "repair cuts it off", False),
    Kind.HOLE: Explanation("messages there were never written, or are gone", DROP, False),
    Kind.BAD_CRC: Explanation("a message's body is not what was sent", DROP, False),
    Kind.NO_ENTRY: Explanation("consumers do not get the message", BUILD, True),
    Kind.WRONG_ENTRY: Explanation("consumers get another message, or none", BUILD, True),
    Kind.WRONG_TAGS: Explanation("filters by tag miss the message, or take it wrongly", BUILD, True),
    Kind.LOST_RECORD: Explanation("the queue shows a message that is not in the log", BUILD, True),
    Kind.QUEUE_GAP: Explanation("the queue shows nothing at an offset", BUILD, True),
    Kind.QUEUE_ORDER: Explanation("the queue's order is not the log's", BUILD, True),
    Kind.NO_KEY: Explanation("a query by key does not find the message", BUILD, True),
    Kind.WRONG_KEY: Explanation("a query by key looks at a wrong message", BUILD, True),
    Kind.INDEX_CHAIN: Explanation("queries by key may end too early", BUILD, True),
    Kind.INDEX_SLOT: Explanation("queries by key may end too early", BUILD, True),
    Kind.INDEX_ORDER: Explanation("queries by time and key may end too early", BUILD, True),
    Kind.INDEX_FILE: Explanation("queries by key cannot use the file", BUILD, True),
    Kind.OFFSET_BEYOND: Explanation(
        "the group waits for messages that do not exist",
        "repair moves it to the end with --reset-offsets",
        False,
    ),
    Kind.CHECKPOINT: Explanation(
        "a start after a kill may look at too little of the log", "repair writes it anew", True
    ),
    Kind.CONFIG: Explanation(
        "topics, groups or offsets may be lost", "repair puts a good .bak in its place", False
    ),
    Kind.TIMER: Explanation(
        "timer messages may be late until the next start",
        "the broker's start, or repair and a start, lays anew what waits",
        False,
    ),
    Kind.JOURNAL: Explanation(
        "the last progress before a kill may be repeated", "the broker passes it over", False
    ),
    Kind.UNREADABLE: Explanation(
        "nothing is known of it", "repair moves a derived file away, and leaves others", False
    ),
}


SHOWN_MAX = 50
"""Findings for people; programs get all that are listed."""


def print_json(value: object) -> None:
    """One line on stdout."""
    sys.stdout.buffer.write(orjson.dumps(_utf8(value), option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def as_object(verified: VerifyResult) -> dict[str, Any]:
    seen = verified.seen
    return {
        "store": seen.store.root,
        "clean": verified.clean,
        "seconds": round(verified.seconds, 3),
        "notes": seen.state,
        "segments": seen.segments,
        "log": {"start": seen.log.start, "end": seen.log.end, "bytes": verified.bytes},
        "numbers": dict(sorted(seen.numbers.items())),
        "queues": len(seen.queues),
        "totals": dict(seen.findings.totals),
        "findings": [_finding(each) for each in verified.findings],
    }


def _finding(each: Finding) -> Mapping[str, Any]:
    meaning = EXPLANATIONS[each.kind]
    return {**each.as_row(), "means": meaning.text, "repair": meaning.repair}


def _utf8(value: object) -> object:
    """The same in text that is such: the name of a damaged topic's folder may be none."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_utf8(key): _utf8(each) for key, each in value.items()}
    return [_utf8(each) for each in value] if isinstance(value, list | tuple) else value


def show(verified: VerifyResult) -> None:
    """Counts, notes, then each finding: what, where, what it means, what repair would do."""
    seen, numbers = verified.seen, verified.seen.numbers
    print(
        f"{seen.store.root}: {numbers['records']} records, {verified.bytes / 1e6:.1f} MB in {seen.segments} files, "
        f"{len(seen.queues)} queues, {numbers['index entries']} index entries, {verified.seconds:.2f} s"
    )
    for note in seen.state:
        print(f"  note: {note}")
    for each in verified.findings[:SHOWN_MAX]:
        meaning = EXPLANATIONS[each.kind]
        print(printable(f"  {each.kind}: {each.file} at {each.position}: {each.text}"))
        print(f"      {meaning.text}; {meaning.repair}")
    more = len(verified.findings) - SHOWN_MAX
    if more > 0:
        print(f"  and {more} more; --json names them")
    totals = ", ".join(f"{count} x {kind}" for kind, count in sorted(seen.findings.totals.items()))
    print("clean" if verified.clean else f"findings: {totals}")
