"""The long run: every workload is recorded with a new seed, round after round, up to a number of states or seconds."""

import argparse
import json
import logging
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.crash import folder, recording
from tests.crash.apache import Compared, compare
from tests.crash.sweep import Failure, Sweep
from tests.crash.workload import WORKLOADS

TOLD_MAX = 10
SWEEP_STATES_MAX = 600
"""Of one recording; then the next one, and in the next round another seed."""


@dataclass(slots=True)
class Summary:
    """`states`: number of states checked; failures are the first that were found."""

    rounds: int = 0
    calls: int = 0
    states: int = 0
    failed: int = 0
    reused: int = 0
    """Segments that were recycled as others."""
    seconds: float = 0.0
    by_workload: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    apache: Compared | None = None


class Run:
    def __init__(self, scratch: Path, *, states: int, seconds: float, seed: int, keep: Path | None) -> None:
        self._scratch = scratch
        self._states = states
        self._until = time.monotonic() + seconds
        self._seed = seed
        self._keep = keep
        self._library = recording.build(scratch)
        self.summary = Summary()

    def run(self, names: list[str]) -> Summary:
        began = time.monotonic()
        share = min(self._states / len(names), SWEEP_STATES_MAX)
        while self.summary.states < self._states and time.monotonic() < self._until:
            for name in names:
                self._sweep(name, self._seed + self.summary.rounds, share)
            self.summary.rounds += 1
        self.summary.seconds = round(time.monotonic() - began, 1)
        return self.summary

    def _sweep(self, name: str, seed: int, share: float) -> None:
        ops = self._recorded(name, seed)
        self.summary.reused += recording.reused(ops)
        per_call = min(max(share / len(ops), 0.01), 12.0)
        left = self._until - time.monotonic()
        focus = recording.reusing(ops)
        tally = Sweep(name, seed, ops, self._scratch, per_call, left, failed=self._note, focus=focus).run()
        self.summary.calls += tally.calls
        self.summary.states += tally.states
        self.summary.by_workload[name] = self.summary.by_workload.get(name, 0) + tally.states
        print(
            f"{name}, seed {seed}: {tally.calls} calls, {tally.states} states, {len(tally.failures)} failed",
            flush=True,
        )

    def compare(self, names: list[str], count: int) -> None:
        """Apache's broker opens `count` states, too, as many of each workload."""
        began = time.monotonic()
        compared = self.summary.apache = Compared()
        for number, name in enumerate(names):
            share = (number + 1) * count // len(names) - number * count // len(names)
            if share:
                compare(self._recorded(name, self._seed), name, self._seed, share, self._scratch, compared)
                differences = f"{len(compared.differences)} differ after us, Apache alone: {compared.alone}"
                print(f"{name}: {compared.states} states so far, {differences}", flush=True)
        self.summary.failed += len(compared.differences)
        self.summary.seconds = round(time.monotonic() - began, 1)

    def _recorded(self, name: str, seed: int) -> list[recording.Op]:
        root = self._scratch / "recorded"
        ops = recording.record(self._library, root, name, seed)
        shutil.rmtree(root)
        root.mkdir()
        return ops

    def _note(self, failure: Failure, root: Path) -> None:
        self.summary.failed += 1
        if len(self.summary.failures) < TOLD_MAX:
            self.summary.failures.append(failure)
            print(f"FAILED {failure}", file=sys.stderr, flush=True)
            if self._keep is not None:
                kept = self._keep / f"{failure.workload}-{failure.seed}-{failure.call}-{failure.number}"
                shutil.copytree(root, kept, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--states", type=int, default=20_000, help="how many at least (20000)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most (3600)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--workload", action="append", choices=sorted(WORKLOADS), help="these only; may be repeated"
    )
    parser.add_argument(
        "--apache",
        type=int,
        default=0,
        metavar="N",
        help="instead: N states are opened by Apache's broker, too",
    )
    parser.add_argument("--keep", type=Path, help="copy the folders of failed states there")
    parser.add_argument("--json", type=Path, help="write the summary there, too")
    given = parser.parse_args()
    logging.getLogger("firearrow").setLevel(logging.CRITICAL)  # findings of thousands of opens are expected
    with folder.scratch() as scratch:
        run = Run(scratch, states=given.states, seconds=given.seconds, seed=given.seed, keep=given.keep)
        if given.apache:
            run.compare(given.workload or list(WORKLOADS), given.apache)
        else:
            run.run(given.workload or list(WORKLOADS))
        summary = asdict(run.summary)
    text = json.dumps(summary, indent=1)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n")
    sys.exit(1 if summary["failed"] else 0)
