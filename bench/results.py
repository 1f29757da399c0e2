"""bench/results.ndjson: one line of JSON for each run (commit, machine, figures); append only."""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.programs import ROOT
from bench.rows import Found, Goal, Row
from bench.servers import Server

RESULTS = ROOT / "bench" / "results.ndjson"
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one goal.

    `value`: as measured; `floor`: the same for the row's floor, if that was measured.
    """

    text: str
    limit: float
    at_most: bool
    value: float
    met: bool
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of one run. `figures`: server → its figures; early runs have only rates."""

    row: str
    ours: str
    figures: dict[str, dict[str, float]]
    goals: tuple[Outcome, ...]

    def rate(self, name: str) -> float | None:
        return self.figures[name]["rate"] if name in self.figures else None


@dataclass(frozen=True, slots=True)
class Run:
    """`kind`: compare, micro, profile, clients, footprint, spark, spark-commands, memory, or early (comparisons of
    an older form)."""

    at: int
    commit: str
    machine: dict[str, Any]
    kind: str
    rows: tuple[RowResult, ...]
    ready_s: dict[str, float]
    part: float
    warm: bool
    """Whether each server was warmed up until its rate was steady; comparisons before did not, and are only drawn."""
    profile: dict[str, Any]
    """See bench.profile."""
    spark: tuple[dict[str, Any], ...]
    """Rows and ratios, as bench.spark_bench reports them."""
    footprint: dict[str, float]
    """See bench.footprint."""

    @property
    def whole(self) -> bool:
        return self.part >= 1

    @property
    def counts(self) -> bool:
        """Whether the report shows its figures."""
        return self.kind == "compare" and self.whole and self.warm


def outcomes(row: Row, found: Found) -> list[Outcome]:
    """The outcomes of the goals whose peers were measured."""
    reached = []
    for goal in row.goals:
        value, floor = _value(goal, found, row.ours), _value(goal, found, row.floor)
        if value is not None:
            reached.append(
                Outcome(
                    goal.text,
                    goal.limit,
                    goal.at_most,
                    rounded(value),
                    goal.met(value),
                    None if floor is None else rounded(floor),
                )
            )
    return reached


def _value(goal: Goal, found: Found, of: str) -> float | None:
    """None: a server that the goal compares was not measured."""
    try:
        return goal.value(found, of)
    except KeyError:
        return None


def row_result(row: Row, found: Found) -> RowResult:
    of = {name: {key: rounded(value) for key, value in asdict(each).items()} for name, each in found.items()}
    return RowResult(row.name, row.ours, of, tuple(outcomes(row, found)))


def rounded(value: float) -> float:
    """Rounded to the significant digits of a measurement."""
    return float(f"{value:.{DIGITS}g}")


def append(kind: str, *, path: Path = RESULTS, **figures: object) -> None:
    line = {"at": int(time.time()), "commit": commit(), "machine": machine(), "kind": kind, **figures}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def append_comparison(
    result: RowResult,
    peers: Mapping[str, Server],
    *,
    part: float,
    rounds: int,
    warm_up_s: Mapping[str, float],
    path: Path = RESULTS,
) -> None:
    append(
        "compare",
        path=path,
        part=part,
        rounds=rounds,
        warm_up_s={name: round(took, 1) for name, took in warm_up_s.items()},
        ready_s={name: round(server.ready_s, 3) for name, server in peers.items()},
        rows=[asdict(result)],
    )


def read(path: Path = RESULTS) -> list[Run]:
    return [_run(json.loads(line)) for line in path.read_text("utf-8").splitlines() if line]


def _run(line: dict[str, Any]) -> Run:
    machine = line["machine"] if isinstance(line["machine"], dict) else {"system": line["machine"]}
    kind = line.get("kind") or line.get("bench") or ("clients" if "clients" in line else "early")
    raw_rows = tuple(line.get("rows", ()))
    of_spark = kind in ("spark", "spark-commands", "memory")
    rows = (
        () if of_spark else tuple(_row_result(row) if kind == "compare" else _early(row) for row in raw_rows)
    )
    return Run(
        line["at"],
        line["commit"],
        machine,
        kind,
        rows,
        line.get("ready_s", {}),
        line.get("part", 1),
        "warm_up_s" in line,
        line.get("profile", {}),
        raw_rows if of_spark else (),
        line.get("footprint", {}),
    )


def _row_result(row: dict[str, Any]) -> RowResult:
    return RowResult(row["row"], row["ours"], row["figures"], tuple(Outcome(**goal) for goal in row["goals"]))


def _early(row: dict[str, Any]) -> RowResult:
    """A row of an early run: rates under the servers' names."""
    rates = {
        name: {"rate": float(value)}
        for name, value in row.items()
        if isinstance(value, int | float) and not name.startswith(("ratio", "of ", "cpu", "p99"))
    }
    return RowResult(row["row"].removesuffix(", messages/s"), "firearrow", rates, ())


def measured_goals(runs: list[Run]) -> dict[tuple[str, str], list[tuple[Run, Outcome]]]:
    """Row and goal → the runs that count and measured it, the newest last."""
    found: dict[tuple[str, str], list[tuple[Run, Outcome]]] = {}
    for run in runs:
        if run.counts:
            for result in run.rows:
                for goal in result.goals:
                    found.setdefault((result.row, goal.text), []).append((run, goal))
    return found


def newest_figures(runs: list[Run]) -> dict[tuple[str, str], tuple[Run, dict[str, float]]]:
    """Row and server → the last run that counts and measured it."""
    return {
        (result.row, name): (run, figures)
        for run in runs
        if run.counts
        for result in run.rows
        for name, figures in result.figures.items()
    }


def commit() -> str:
    git = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return git.stdout.strip()


def machine() -> dict[str, Any]:
    """The machine's properties on which figures depend, without its host name."""
    cpu = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return {
        "system": platform.platform(),
        "cpu": cpu[1] if cpu else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gib": round(int(memory[1]) / (1 << 20), 1) if memory else 0,
        "python": platform.python_version(),
    }
