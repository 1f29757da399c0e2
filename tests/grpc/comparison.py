"""Compares what Apache's proxy sent with what we sent, field by field. Which differences are allowed is decided
elsewhere.

Where two statuses have different codes, that is one difference: what else the answers have follows from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

ABSENT = None
Answer = dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Difference:
    """`request`: what the client sent last on the call, as it was recorded. `their_answer`: recorded. `path` leads
    from the answer to the value; ABSENT where one side has none."""

    recording: str
    rpc: str
    request: Answer
    their_answer: Answer
    our_answer: Answer
    path: Path
    theirs: Any
    ours: Any

    @property
    def leaf(self) -> str | int:
        return self.path[-1]

    @property
    def codes(self) -> tuple[str, str] | None:
        """Theirs and ours, of different statuses."""
        if self.leaf == "status" and self.theirs is not ABSENT and self.ours is not ABSENT:
            return self.theirs.get("code", ""), self.ours.get("code", "")
        return None

    @property
    def texts(self) -> tuple[str, str]:
        """Theirs and ours, of different statuses with the same code."""
        if isinstance(self.theirs, str) and isinstance(self.ours, str):
            return self.theirs, self.ours
        return "", ""

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        values = f"{str(self.theirs)[:300]!r} / {str(self.ours)[:300]!r}"
        return f"{self.recording} {self.rpc}: {path}: {values}"


def compared(theirs: Any, ours: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:  # noqa: ANN401
    """Path and values of each difference."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if _code(theirs) != _code(ours):
            yield (*path, "status"), theirs.get("status"), ours.get("status")
            return
        for key in sorted(theirs.keys() | ours.keys()):
            yield from compared(theirs.get(key, ABSENT), ours.get(key, ABSENT), (*path, key))
    elif isinstance(theirs, list) and isinstance(ours, list):
        for n, (one, other) in enumerate(zip_longest(theirs, ours, fillvalue=ABSENT)):
            yield from compared(one, other, (*path, n))
    elif theirs != ours:
        yield path, theirs, ours


def _code(value: dict[str, Any]) -> Any:  # noqa: ANN401
    return value.get("status", {}).get("code")
