"""Prints the result of `verify`: lines for people, an object for programs."""

import sys
from typing import Any

import orjson

from firearrow._native.store_checks.findings import as_row
from firearrow.broker.maintenance.dump import printable
from firearrow.broker.maintenance.verify import VerifyResult

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
        "findings": [
            {**as_row(each), "means": each.meaning, "repair": each.repair} for each in verified.findings
        ],
    }


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
        print(printable(f"  {each.kind}: {each.where.file} at {each.where.position}: {each.text}"))
        print(f"      {each.severity.name}: {each.meaning}; {each.repair}")
    more = len(verified.findings) - SHOWN_MAX
    if more > 0:
        print(f"  and {more} more; use --json to list them")
    totals = ", ".join(f"{count} x {kind}" for kind, count in sorted(seen.findings.totals.items()))
    print("clean" if verified.clean else f"findings: {totals}")
