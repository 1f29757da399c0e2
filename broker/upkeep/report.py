"""What a verification says: lines for people, an object for programs. Prints; knows no folder."""

import sys
from collections.abc import Mapping
from typing import Any

import orjson

from firearrow._native.audit.findings import Finding
from firearrow.broker.upkeep.dump import printable
from firearrow.broker.upkeep.meaning import EXPLANATIONS
from firearrow.broker.upkeep.verify import VerifyResult

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
