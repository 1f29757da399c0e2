"""The rounds of a row: each server is warmed up, then they run in random order; disturbed samples are repeated.

Reads /proc.
"""

import os
import random
import sys
import time
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from types import TracebackType

from bench.load import LoadError
from bench.pace import Pace
from bench.rows import OURS, Found, Row, Sample, figures, server_of
from bench.servers import Server
from bench.watch import Watch

DISTURBED = 0.12
"""A sample is disturbed if other processes took more than this fraction of the machine."""
SLOWED = 0.2
"""A sample is disturbed if the CPU was slower by more than this fraction before or after it."""
TRIES_MAX = 3
LONG_S = 20
"""Samples longer than this are not repeated."""
WATCH_S = 0.05
QUIET_S = 0.25
QUIET_CHECKS_MAX = 60
CATCH_UP_S = 1
"""How long a server that was stopped may catch up before it is measured."""
WARM_WINDOWS, WARM_SPREAD, PLATEAU_WINDOWS = 3, 0.05, 6
"""A server is warm when the rates of WARM_WINDOWS in a row differ by no more than WARM_SPREAD, or when the last
PLATEAU_WINDOWS did not exceed the best one before them: on a noisy machine no three windows may be alike."""
WARM_UP_S = 180
"""The longest warm-up of a server for a row. JIT compilers of a JVM need tens of seconds."""


class MemoryWatch(Watch):
    """`peak_mb`: the server's peak anonymous memory while this context was entered."""

    def __init__(self, server: Server) -> None:
        super().__init__(WATCH_S)
        self.peak_mb = 0.0
        self._server = server

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, value, trace)
        self.look()

    def look(self) -> None:
        self.peak_mb = max(self.peak_mb, self._server.anonymous_mb())


def busy_s() -> float:
    """The CPU time of all processes of the machine, including time that the host took (steal)."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def quiet() -> None:
    """Wait until the machine has finished the background work of the last sample: writeback, JIT compilation,
    freeing of memory.
    """
    os.sync()
    for _ in range(QUIET_CHECKS_MAX):
        before = busy_s()
        time.sleep(QUIET_S)
        if busy_s() - before < QUIET_S / 5:
            return


def sample(row: Row, name: str, server: Server, part: float, pace: Pace) -> Sample:
    """Take a sample, again if it was disturbed; the least disturbed one."""
    tries: list[tuple[float, Sample]] = []
    for _ in range(TRIES_MAX):
        server.tidy()
        if part >= 1:
            quiet()
        lag = pace.lag()
        with (
            server.awake(CATCH_UP_S * min(1, part)),
            row.entered(name, server, part),
            MemoryWatch(server) as memory,
        ):
            mine, busy, began, loads = server.cpu_s(), busy_s(), time.perf_counter(), os.times()
            slave = server.slave_cpu_s()
            done = row.work[name](server, part)
            used, seconds = server.cpu_s() - mine, time.perf_counter() - began
            now = os.times()
            load_s = now.children_user + now.children_system - loads.children_user - loads.children_system
        others = (busy_s() - busy - used - load_s - (server.slave_cpu_s() - slave)) / seconds
        disturbance = max(others / DISTURBED, lag / SLOWED, pace.lag() / SLOWED)
        cpu_us = used / (done.messages + done.besides) * 1e6
        latencies = done.p50, done.p99, done.p999, done.max
        figures = Sample(done.rate, cpu_us, *latencies, memory.peak_mb, done.resets)
        tries.append((disturbance, figures))
        if disturbance < 1 or seconds > LONG_S:
            break
    return min(tries, key=itemgetter(0))[1]


def prepared(row: Row, peers: Mapping[str, Server], part: float) -> None:
    if row.prepare is not None:
        for name in dict.fromkeys(map(server_of, row.work)):
            if name in peers:
                with peers[name].awake():
                    row.prepare(peers[name], part)


def steady(rates: list[float]) -> bool:
    """Whether a server with these rates of its windows is warm."""
    last, before = rates[-WARM_WINDOWS:], rates[:-PLATEAU_WINDOWS]
    if len(last) == WARM_WINDOWS and min(last) >= (1 - WARM_SPREAD) * max(last):
        return True
    return bool(before) and max(rates[-PLATEAU_WINDOWS:]) <= max(before)


def warmed_up(row: Row, name: str, server: Server, part: float) -> float:
    """Run the row's load until the rate is steady, or for WARM_UP_S; the seconds that this took. LoadError."""
    began, rates = time.monotonic(), list[float]()
    while time.monotonic() - began < WARM_UP_S * min(1, part):
        server.tidy()
        with server.awake(CATCH_UP_S * min(1, part)), row.entered(name, server, part):
            rates.append(row.work[name](server, part).rate)
        if steady(rates):
            break
    return time.monotonic() - began


def measured(
    peers: Mapping[str, Server], row: Row, rounds: int, part: float
) -> tuple[Found, dict[str, float]]:
    """Server → figures of its best round, and server → seconds of warm-up.

    A peer that fails is left out; LoadError: FireArrow failed.
    """
    found: dict[str, list[Sample]] = {name: [] for name in row.work if server_of(name) in peers}
    warm_up_s: dict[str, float] = {}
    pace = Pace()
    for number in range(min(rounds, row.rounds_max)):
        names = list(found)
        random.Random(number).shuffle(names)
        for name in names:
            server, line = peers[server_of(name)], f"round {number + 1}/{rounds}: {row.name}, {name}"
            print(f"\r{line:79}", end="", file=sys.stderr, flush=True)
            try:
                if name not in warm_up_s:
                    warm_up_s[name] = warmed_up(row, name, server, part)
                found[name].append(sample(row, name, server, part, pace))
            except LoadError as error:
                if server_of(name).startswith(OURS):
                    raise
                print(f"\n{row.name} goes on without {name}: {error}", file=sys.stderr)
                del found[name]
    print(file=sys.stderr)
    return {name: figures(samples) for name, samples in found.items()}, warm_up_s
