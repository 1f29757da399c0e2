"""Compares FireArrow with other servers in one run: `python -m bench.compare`. Ratios are the result.

Peers: floors in C, which do the least work possible; redis; Apache's broker. All run on CPU 0, but are stopped while
others are measured, since they may have background work. The load generator (bench/native) runs on CPU 1. Each row
has servers of its own, which are warmed up until their rates are steady; then follow rounds of random order, and the
best one of each server counts. Samples that other processes disturbed are repeated. A row appends a line to
bench/results.ndjson.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench import results
from bench.grpc_rows import grpc_rows
from bench.measuring import measured, prepared
from bench.peers import started
from bench.replica_rows import replica_rows
from bench.request_rows import request_rows
from bench.results import Outcome, RowResult
from bench.rows import Row, server_of
from bench.whole_rows import whole_rows


def rows() -> list[Row]:
    return [*request_rows(), *whole_rows(), *replica_rows(), *grpc_rows()]


def line(result: RowResult) -> str:
    rates = ", ".join(f"{name} {of['rate']:,.0f}/s" for name, of in result.figures.items())
    mine = result.figures[result.ours]
    figures = f"CPU {mine['cpu_us']:.2f} us, p99 {mine['p99']:,.0f} us, {mine['mb']:.0f} MB"
    resets = [
        f"{name} reset {of['resets']:g} calls" for name, of in result.figures.items() if of.get("resets")
    ]
    return "\n    ".join([result.row, rates, figures, *resets, *map(goal_line, result.goals)])


def goal_line(goal: Outcome) -> str:
    sign = "<=" if goal.at_most else ">="
    return f"{'reached' if goal.met else 'NOT REACHED'}: {goal.text} {goal.value:,g} ({sign} {goal.limit:,g})"


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--part", type=float, default=1, help="fraction of the usual number of requests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--rows", nargs="+", default=[""], help="only rows whose names start with one of these"
    )
    parser.add_argument(
        "--without",
        nargs="+",
        default=[],
        help="leave out peers whose names start with one of these, for example apache",
    )
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.ndjson")
    parser.add_argument("--list", action="store_true", help="list the rows and exit")
    given = parser.parse_args(arguments)
    if not 0 < given.part <= 10 or not 1 <= given.rounds <= 100:
        parser.error("--part must be greater than 0 and at most 10, --rounds 1 to 100")
    return given


def main(arguments: list[str] | None = None) -> list[RowResult]:
    given = parsed(arguments)
    chosen = [row for row in rows() if row.name.startswith(tuple(given.rows))]
    if given.list or not chosen:
        print("\n".join(row.name for row in rows()))
        return []
    return [compared(row, given) for row in chosen]


def compared(row: Row, given: argparse.Namespace) -> RowResult:
    """A row on servers of its own: what other rows have written fills no disk."""
    left_out = tuple(given.without)
    names = {server_of(name) for name in row.work}
    wanted = {name for name in names if not (left_out and name.startswith(left_out))}
    with tempfile.TemporaryDirectory(prefix="firearrow-bench-") as folder, ExitStack() as stack:
        peers = started(stack, wanted, Path(folder), given.part)
        prepared(row, peers, given.part)
        found, warm_up_s = measured(peers, row, given.rounds, given.part)
    result = results.row_result(row, found)
    print(line(result))
    print("    warmed up in s: " + ", ".join(f"{name} {took:.0f}" for name, took in warm_up_s.items()))
    print("    started in s: " + ", ".join(f"{name} {server.ready_s:.2f}" for name, server in peers.items()))
    if not given.no_record:
        results.append_comparison(result, peers, part=given.part, rounds=given.rounds, warm_up_s=warm_up_s)
    return result


if __name__ == "__main__":
    main()
