"""What bench/results.ndjson tells, for people: `python -m bench.report` writes BENCHMARKS.md and bench/history.svg.

Measures nothing. A row shows its newest whole run; what was not measured is said to be so.
"""

import argparse
import datetime
from pathlib import Path

from bench import plot, results
from bench.compare import rows
from bench.plot import Line, Panel
from bench.profile import Profile, verdict
from bench.programs import ROOT
from bench.results import Outcome, Run
from bench.rows import Goal

PAGE = ROOT / "BENCHMARKS.md"
PICTURE = ROOT / "bench" / "history.svg"
HISTORY = 40
"""Runs that are drawn."""
PEERS_DRAWN = 2
RUNS_TOLD = 10
"""Whole runs whose outcomes a goal names beside the newest."""
INTRODUCTION = """# Benchmarks

Made by `python -m bench.report` from `bench/results.ndjson`; nothing here is written by hand.

`python -m bench.compare` measures servers side by side in one run, servers on one CPU and the load on the other, in
rounds of random order; a figure is the median of its rounds (of maxima and memory the most), and samples that others
disturbed are taken again (in runs from `696a5ca` on also those on a CPU that was a fifth slower than at its best, as
a host makes it by what it does beside: `bench/pace.py`). Servers stand still while others are measured, as they may
have something left to do (in the run of `166088b` Apache's alone), and each sample waits until nothing is left to be
written and the machine is idle (in runs up to `2378e02` it did not: synced rows shared the disk with what the row
before had written). Memory is asked of the machine's host before each sample and handed out within it
(`bench/backing.py` says why; in rows of `e48914e` to `ef028b1` it could be gone before it was used, rows before them
paid for all of it).
Ratios are the result; the figures beside them are of one small machine.
The load is native, and checks what it gets: codes, opaques, consecutive queue offsets, CRCs of bodies, and end to end
that each message comes once. `c x d`: connections, and requests on the way on each. Latencies at a given rate count
from the moment at which a message should have begun (coordinated omission); those of the flat-out rows are of half
that rate. Before such a moment the load sleeps (in runs before `b28704a` it spun: with the server that took more time
than the machine's host grants in 100 ms, and all stood still for the rest of them, up to 27 ms). Flat out it looks for
answers for some 50 us before it sleeps (in runs up to `363347f` it slept at once, and servers paid for waking it: end
to end a tenth of their time).
"""
FLOORS = """## Goals

*Its floor*: a bare C server in the same run, which does the least that the row's work needs (`bench/native/floor.c`,
`relay.c`): it appends what came (batches: makes records and queue entries of it), brings it to the disk before it
answers (SYNC_FLUSH), hands it on to who waits (end to end). It has no index, tags, statistics or limits, and one
thread. Where it does not reach a goal, either, it is not the broker's own work that is too slow, but the kernel, the
disk or the host of that hour.

*In the last runs*: the least and the most of the last ten whole runs that measured it, the newest among them, and how
many of them reached what it must be today. Their hosts differ, in kind and in what else they do; what floors and peers
gain or lose by that is not what we do. What limits a row, and what was tried: [bench/LIMITS.md](bench/LIMITS.md).
"""
AGAIN = """## To measure again

On a quiet machine with two CPUs, `taskset` and a C compiler; Java 17 with Maven for Apache's broker, `redis-server` for
redis:

    python -m bench.compare --rounds 3                       # all rows beside all peers
    python -m bench.compare --rounds 3 --without apache      # the same without Java
    python -m bench.profile                                  # where the time goes, row by row
    python -m bench.spark_bench --rounds 5 --record          # the Spark tools beside Spark's ordinary ways
    python -m bench.spark_bench --memory 8 --record          # what a worker takes over a large store
    pytest bench --benchmark-only                            # hot structures alone, whole-broker runs
    python -m bench.report                                   # this page
"""


def page(runs: list[Run]) -> str:
    parts = [INTRODUCTION, _machine(runs), _goals(runs), _figures(runs), _spark(runs), _micro(runs)]
    parts += [
        "## History\n\nMessages a second, by run; the scale is logarithmic.\n\n![history](bench/history.svg)\n"
    ]
    return "\n".join(part for part in [*parts, _profiles(runs), AGAIN] if part)


def _date(run: Run) -> str:
    return f"{datetime.datetime.fromtimestamp(run.at, datetime.UTC):%Y-%m-%d}"


def _machine(runs: list[Run]) -> str:
    whole = [run for run in runs if run.kind == "compare" and run.whole]
    if not whole:
        return "No whole run of the comparison has been recorded yet.\n"
    run = whole[-1]
    told = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    started = ", ".join(f"{name} {seconds:.2f}" for name, seconds in run.ready_s.items())
    return f"Newest run: {_date(run)}, commit `{run.commit}`; {told}.\nTo the first answer, s: {started}.\n"


def _goals(runs: list[Run]) -> str:
    measured = results.measured_goals(runs)
    lines = [
        FLOORS,
        "| work | goal | must be | is | of its floor | | in the last runs | commit |",
        "|---|---|--:|--:|--:|---|---|---|",
    ]
    met = beyond = count = 0
    for row in rows():
        for goal in row.goals:
            start = f"| {row.name} | {goal.text} | {'≤' if goal.at_most else '≥'} {goal.limit:,g} |"
            count += 1
            if (row.name, goal.text) not in measured:
                lines.append(f"{start} | | not measured | | |")
                continue
            last = measured[row.name, goal.text][-RUNS_TOLD:]
            run, found = last[-1]
            reached = goal.met(found.value)
            out_of_reach = not reached and found.floor is not None and not goal.met(found.floor)
            met += reached
            beyond += out_of_reach
            word = "reached" if reached else "**not reached**"
            word += ", nor by the floor" if out_of_reach else ""
            floor = "" if found.floor is None else f"{found.floor:,g}"
            lines.append(
                f"{start} {found.value:,g} | {floor} | {word} | {_spread(goal, last)} | `{run.commit}` |"
            )
    told = f"{met} of {count} goals are reached; {beyond} of the others the floor does not reach, either."
    return "\n".join([*lines, "", told, ""])


def _spread(goal: Goal, last: list[tuple[Run, Outcome]]) -> str:
    values = [outcome.value for _, outcome in last]
    reached = sum(map(goal.met, values))
    return f"{min(values):,.3g} to {max(values):,.3g}, {reached} of {len(values)}"


def _figures(runs: list[Run]) -> str:
    newest = results.newest_figures(runs)
    head = "| work | server | messages/s | CPU us a message |"
    head += " p50 us | p99 us | p99.9 us | max us | anonymous MB | commit |"
    lines = ["## Figures", "", head, "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for row in rows():
        for name in row.work:
            if (row.name, name) in newest:
                run, of = newest[row.name, name]
                numbers = (of[key] for key in ("rate", "cpu_us", "p50", "p99", "p999", "max", "mb"))
                shown = " | ".join(f"{number:,.6g}" for number in numbers)
                lines.append(f"| {row.name} | {name} | {shown} | `{run.commit}` |")
    return "\n".join([*lines, ""]) if len(lines) > 4 else ""


def _spark(runs: list[Run]) -> str:
    measured = [run for run in runs if run.kind == "spark"]
    if not measured:
        return ""
    run = measured[-1]
    lines = [
        f"## In Spark\n\n1 GiB of 1-KiB messages, `local[2]`, {_date(run)}, commit `{run.commit}`.",
        "Medians; what is compared ran one behind the other, and a ratio is the median of theirs. What a row reads is",
        "locked in the cache (in runs before `760b3b1` the machine's host could take it away meanwhile).\n",
    ]
    lines += ["| work | s | messages/s | at best | CPU us a message |", "|---|--:|--:|--:|--:|"]
    for row in run.spark:
        if "s" in row:
            rates = f"{row['messages/s']:,} | {row['messages/s at best']:,}"
            lines.append(f"| {row['row']} | {row['s']} | {rates} | {row['cpu us/message']} |")
    lines += ["", "| times as fast | must be | is | in CPU time |", "|---|--:|--:|--:|"]
    for row in run.spark:
        if "ratio" in row:
            must = f"≥ {row['goal']:g}" if row["goal"] else ""
            lines.append(f"| {row['row']} | {must} | {row['ratio']} | {row['of cpu']} |")
    return "\n".join([*lines, "", *_memory(runs)])


def _memory(runs: list[Run]) -> list[str]:
    """Of a worker, by size of the store."""
    measured = [run for run in runs if run.kind == "memory"]
    if not measured:
        return []
    run = measured[-1]
    sizes = sorted({row["store GiB"] for row in run.spark})
    most = {(row["row"], row["store GiB"]): row["worker MiB at most"] for row in run.spark}
    lines = [
        f"Anonymous memory of a Python worker at most, MiB, {_date(run)}, commit `{run.commit}`. Workers stay",
        "from one row to the next, from the smaller store to the larger one, too, with what they took before.\n",
    ]
    lines += ["| work | " + " | ".join(f"over {size} GiB" for size in sizes) + " |"]
    lines += ["|---" + "|--:" * len(sizes) + "|"]
    for name in dict.fromkeys(row["row"] for row in run.spark):
        lines.append(f"| {name} | " + " | ".join(str(most[name, size]) for size in sizes) + " |")
    return [*lines, ""]


def _micro(runs: list[Run]) -> str:
    found: dict[str, tuple[float, Run]] = {
        name: (ns, run) for run in runs if run.kind == "micro" for name, ns in run.micro.items()
    }
    if not found:
        return ""
    lines = [
        "## Parts alone",
        "",
        "Median of one operation, without a socket; of whole-broker runs (`test_broker`) of a message.",
        "",
    ]
    lines += ["| benchmark | ns | commit |", "|---|--:|---|"]
    lines += [f"| {name} | {ns:,g} | `{run.commit}` |" for name, (ns, run) in sorted(found.items())]
    return "\n".join([*lines, ""])


def _profiles(runs: list[Run]) -> str:
    found: dict[str, tuple[Run, Profile]] = {
        run.profile["row"]: (run, Profile(**run.profile)) for run in runs if run.kind == "profile"
    }
    parts = ["## Where the time goes", "", "Samples of our server's process while the row's load runs.", ""]
    for row in rows():
        parts.append(f"**{row.name}**")
        if row.name not in found:
            parts += ["not profiled yet.", ""]
            continue
        run, profile = found[row.name]
        parts.append(f"{verdict(profile)} (`{run.commit}`, {profile.samples} samples)")
        parts += ["", *_top(profile), ""]
    return "\n".join(parts)


def _top(profile: Profile) -> list[str]:
    modules = ", ".join(f"{name} {share:.1%}" for name, share in profile.modules.items() if share >= 0.01)
    symbols = ", ".join(f"`{name}` {share:.1%}" for name, share in profile.top)
    return [f"- by module: {modules}", f"- by symbol: {symbols}"] if profile.top else []


def panels(runs: list[Run]) -> list[Panel]:
    """One for each row, of all runs that tell a rate of it."""
    found = []
    for row in rows():
        of = [
            (run, told)
            for run in runs if run.kind in ("compare", "early") and run.whole
            for told in run.rows if told.row == row.name
        ][-HISTORY:]  # fmt: skip
        peers = [name for name in row.work if name != row.ours]
        drawn = [row.ours, *sorted(peers, key=lambda name: not name.startswith("apache"))[:PEERS_DRAWN]]
        lines = [Line(name, [told.rate(name) for _, told in of]) for name in drawn]
        found.append(Panel(row.name, lines, [f"{_date(run)} {run.commit}" for run, _ in of]))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--results", type=Path, default=results.RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    given = parser.parse_args(arguments)
    runs = results.read(given.results)
    given.page.write_text(page(runs), "utf-8")
    given.picture.write_text(plot.picture(panels(runs)), "utf-8")


if __name__ == "__main__":
    main()
