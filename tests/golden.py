"""Recorded conversations and stores of a live Apache RocketMQ (`recorded/README.md`)."""

import base64
import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent / "recorded"


@dataclass(frozen=True)
class Recorded:
    """One frame of a session. `raw` is the whole frame, or None where the recording cut it."""

    line: dict[str, Any]

    @property
    def raw(self) -> bytes | None:
        return (
            None
            if self.line.get("cutAt") or "raw64" not in self.line
            else base64.b64decode(self.line["raw64"])
        )


@functools.cache
def sessions() -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in (GOLDEN / "wire").glob("*.jsonl.gz")))


def session(name: str) -> Iterator[Recorded]:
    with gzip.open(GOLDEN / "wire" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield Recorded(json.loads(line))


def whole_frames() -> Iterator[tuple[str, Recorded, bytes]]:
    for name in sessions():
        for recorded in session(name):
            raw = recorded.raw
            if raw is not None:
                yield name, recorded, raw
