"""Sweep: one recorded run, state by state. Seeded: a state is identified by workload, seed, call and number."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash import folder
from tests.crash.cuts import Cut, drawn, every, extremes, image_of
from tests.crash.disk import Disk
from tests.crash.expected import ExpectedState, WrittenLog
from tests.crash.pending_checker import PendingChecker
from tests.crash.recording import Op
from tests.crash.store_checker import StoreChecker

FOCUS_STATES = 12
LATER_MS = 600_000
"""Everything recorded is due."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A state that is not as promised, and how to reproduce it."""

    workload: str
    seed: int
    call: int
    number: int
    op: str
    cut: str
    faults: list[str]

    def __str__(self) -> str:
        where = f"{self.workload}, seed {self.seed}, call {self.call} ({self.op}), state {self.number}: {self.cut}"
        return "\n  ".join((where, *self.faults))


@dataclass(slots=True)
class Tally:
    """`states` were checked; those seen before are not counted."""

    calls: int = 0
    states: int = 0
    failures: list[Failure] = field(default_factory=list)


@dataclass(slots=True)
class Sweep:
    """`per_call` states on average at each call, 0 < per_call; at those of `focus` at least FOCUS_STATES."""

    workload: str
    seed: int
    ops: list[Op]
    scratch: Path
    per_call: float
    seconds: float = float("inf")
    failures_max: int = 1000
    failed: Callable[[Failure, Path], None] = lambda failure, root: None
    focus: frozenset[int] = frozenset()

    def run(self) -> Tally:
        written_log = WrittenLog.of(self.ops)
        checker = StoreChecker(written_log)
        pending = PendingChecker(written_log.settings, time.time_ns() // 1_000_000 + LATER_MS)
        disk, expected, tally = Disk(), ExpectedState(written_log.options["segment_bytes"]), Tally()
        seen: set[int] = set()
        root = self.scratch / "state"
        until = time.monotonic() + self.seconds
        for call, op in enumerate(self.ops):
            if time.monotonic() > until or len(tally.failures) >= self.failures_max:
                break
            disk.apply(op)
            expected.apply(op)
            tally.calls += 1
            for number, cut in enumerate(self._cuts(disk, call)):
                image = image_of(disk, cut)
                print_of = hash(
                    (expected.synced, expected.written if cut.name == "kill" else -1, *_file_hashes(image))
                )
                if print_of in seen:
                    continue
                seen.add(print_of)
                tally.states += 1
                folder.make(root, image)
                kill = cut.name == "kill"
                faults = checker.faults(root, expected, kill=kill, again_clean=number % 2 == 0)
                if not faults and expected.promises:
                    folder.make(root, image)
                    faults = pending.faults(root, expected.promises, kill=kill, steps=call * 7 + number)
                if faults:
                    failure = Failure(
                        self.workload, self.seed, call, number, str(op), _described(cut), faults
                    )
                    tally.failures.append(failure)
                    folder.make(root, image)
                    self.failed(failure, root)
        return tally

    def _cuts(self, disk: Disk, call: int) -> Iterator[Cut]:
        draw = random.Random(f"{self.workload} {self.seed} {call}")
        count = int(self.per_call) + (draw.random() < self.per_call % 1)
        if call in self.focus:
            count = max(count, FOCUS_STATES)
        if not count:
            return
        if count > 4:
            yield from every(disk) or ()
        fixed = list(extremes(disk))
        draw.shuffle(fixed)
        yield from fixed[: max(count // 3, draw.random() < 0.4)]
        for _ in range(count):
            yield drawn(disk, draw)


def _described(cut: Cut) -> str:
    named = [f"{kind} {number}.{part}={version}" for (kind, number, part), version in cut.versions.items()]
    return f"{cut.name}, the rest {'newest' if cut.newest else 'as synced'}: {', '.join(named)}"[:400]


def _file_hashes(image: dict[str, tuple[int, dict[int, bytes]] | None]) -> Iterator[int]:
    for path, content in image.items():
        yield hash((path, content and (content[0], tuple(content[1].items()))))
