"""Prints the result of `verify`: lines for people, an object for programs.

`EXPLANATIONS` states for each kind of finding what it means for messages, and what `repair` does about it.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from firearrow._native.audit.findings import Finding, Kind
from firearrow.broker.maintenance.dump import printable
from firearrow.broker.maintenance.verify import VerifyResult


class Explanation(NamedTuple):
    """`derived`: nothing is lost, because it can be rebuilt from the log."""

    text: str
    repair: str
    derived: bool


REBUILD = "repair rebuilds it from the log"
DROP = "repair does nothing without --drop-damaged, which replaces it by a filler record"
EXPLANATIONS = {
    Kind.MISSING_SEGMENT: Explanation("a file of the log is missing, with its messages", DROP, False),
    Kind.CUT_FILE: Explanation("a file of the log is shorter than the others", DROP, False),
    Kind.TORN: Explanation("messages at this position cannot be read", DROP, False),
    Kind.TORN_TAIL: Explanation("the last write is incomplete", "repair truncates it", False),
    Kind.HOLE: Explanation("messages at this position were never written, or are lost", DROP, False),
    Kind.BAD_CRC: Explanation("the body of a message is not what was sent", DROP, False),
    Kind.NO_ENTRY: Explanation("consumers do not receive the message", REBUILD, True),
    Kind.WRONG_ENTRY: Explanation("consumers receive another message, or none", REBUILD, True),
    Kind.WRONG_TAGS: Explanation("tag filters miss the message, or accept it wrongly", REBUILD, True),
    Kind.LOST_RECORD: Explanation("the queue refers to a message that is not in the log", REBUILD, True),
    Kind.QUEUE_GAP: Explanation("the queue has no message at an offset", REBUILD, True),
    Kind.QUEUE_ORDER: Explanation("the queue is not in the order of the log", REBUILD, True),
    Kind.NO_KEY: Explanation("a query by key does not find the message", REBUILD, True),
    Kind.WRONG_KEY: Explanation("a query by key reads a wrong message", REBUILD, True),
    Kind.INDEX_CHAIN: Explanation("queries by key may end too early", REBUILD, True),
    Kind.INDEX_SLOT: Explanation("queries by key may end too early", REBUILD, True),
    Kind.INDEX_ORDER: Explanation("queries by time and key may end too early", REBUILD, True),
    Kind.INDEX_FILE: Explanation("queries by key cannot use the file", REBUILD, True),
    Kind.OFFSET_BEYOND: Explanation(
        "the group waits for messages that do not exist",
        "repair --reset-offsets moves it to the end",
        False,
    ),
    Kind.CHECKPOINT: Explanation(
        "recovery after a kill may read too little of the log", "repair rewrites it", True
    ),
    Kind.CONFIG: Explanation(
        "topics, groups or offsets may be lost", "repair restores it from a valid .bak", False
    ),
    Kind.TIMER: Explanation(
        "timer messages may be late until the next start",
        "the next start, if need be after repair, restores pending messages",
        False,
    ),
    Kind.JOURNAL: Explanation(
        "the last progress before a kill may be repeated", "the broker ignores it", False
    ),
    Kind.UNREADABLE: Explanation(
        "it cannot be checked",
        "repair removes it if it can be rebuilt from the log, else does nothing",
        False,
    ),
}


SHOWN_MAX = 50
"""Findings that are printed for people; JSON has all that are listed."""


def print_json(value: object) -> None:
    """Print one line of JSON on stdout."""
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
    """Replace what is not UTF-8, such as the folder name of a damaged topic."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_utf8(key): _utf8(each) for key, each in value.items()}
    return [_utf8(each) for each in value] if isinstance(value, list | tuple) else value


def show(verified: VerifyResult) -> None:
    """Print counts, notes, then each finding: what, where, what it means, what repair does."""
    seen, numbers = verified.seen, verified.seen.numbers
    print(
        f"{seen.store.root}: {numbers['records']} records, {verified.bytes / 1e6:.1f} MB "
        f"in {seen.segments} files, {len(seen.queues)} queues, "
        f"{numbers['index entries']} index entries, {verified.seconds:.2f} s"
    )
    for note in seen.state:
        print(f"  note: {note}")
    for each in verified.findings[:SHOWN_MAX]:
        meaning = EXPLANATIONS[each.kind]
        print(printable(f"  {each.kind}: {each.file} at {each.position}: {each.text}"))
        print(f"      {meaning.text}; {meaning.repair}")
    more = len(verified.findings) - SHOWN_MAX
    if more > 0:
        print(f"  and {more} more; use --json to list them")
    totals = ", ".join(f"{count} x {kind}" for kind, count in sorted(seen.findings.totals.items()))
    print("clean" if verified.clean else f"findings: {totals}")
