"""Fuzzers of every parser of input from outside: valid bytes, mutated, until time is up.

`python -m tests.hostile.fuzz [--minutes M] [--target NAME]... [--seed S] [--growth]`. A parser may raise an error of
its kind, or accept the bytes; in time, without growing. Inputs that make it do anything else are kept as
`corpus/TARGET/*.bin`, which every run reads first. `--growth` repeats pieces of the bytes and measures the time, which
may not grow faster than the input (growth.py).
"""

import argparse
import functools
import hashlib
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.mutation import mutated

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 2.0
"""Inputs of these sizes must not take longer, on any machine."""
GROWTH_KIB = 256 << 10


@dataclass(frozen=True)
class Target:
    """`seeds()`: valid bytes. `read(data)` raises one of `refusals` for bytes that it refuses."""

    name: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (ValueError,)


class Found(AssertionError):
    """A parser did what none may; the text says what, and where the bytes are kept."""


def kept(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))]


def check(target: Target, data: bytes) -> bool:
    """Whether the parser accepted it. Raises Found."""
    begun = time.monotonic()
    fault, taken = "", False
    try:
        target.read(data)
        taken = True
    except target.refusals:
        pass
    except Exception as error:
        fault = f"raised {type(error).__name__}: {error}"
    took = time.monotonic() - begun
    if not fault and took > SLOW_S:
        fault = f"took {took:.1f} s"
    if fault:
        path = CORPUS / target.name / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        raise Found(f"{target.name} {fault}; {len(data)} bytes in {path.name}")
    return taken


def run(target: Target, seconds: float, seed: int) -> tuple[int, int]:
    """How many inputs were tried, and how many of them accepted. Raises Found."""
    draw = random.Random(f"{target.name} {seed}")
    seeds = target.seeds()
    for data in seeds:
        if not check(target, data):
            raise Found(f"{target.name} refuses what is right: {data[:100]!r}")
    for data in kept(target.name):
        check(target, data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    until = time.monotonic() + seconds
    tried = taken = 0
    while time.monotonic() < until:
        taken += check(target, mutated(draw, draw.choice(seeds), seeds))
        tried += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > GROWTH_KIB:
        raise Found(f"{target.name} grew by {grown >> 10} MiB, seed {seed}")
    return tried, taken


def measure_growth(names: list[str], for_s: float, seed: int) -> int:
    """Half of the time for the parsers, half for requests to a broker. Returns how many were found to grow."""
    from tests.hostile import growth  # noqa: PLC0415 (it imports this module)
    from tests.hostile.targets import TARGETS  # noqa: PLC0415

    broken = 0
    each_s = for_s / 2 / len(names)
    works = {name: functools.partial(growth.run, TARGETS[name], each_s, seed) for name in names}
    for name, work in (works | {"requests": functools.partial(growth.run_requests, for_s / 2, seed)}).items():
        try:
            print(f"{name:20} {work():9} shapes", flush=True)
        except growth.Found as fault:
            broken += 1
            print(f"{name:20} FOUND: {fault}", flush=True)
    return broken


def main(arguments: list[str]) -> int:
    from tests.hostile.targets import FROM_OUTSIDE, TARGETS  # noqa: PLC0415 (targets import this module)

    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.hostile.fuzz")
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFF)
    parser.add_argument("--growth", action="store_true", help="how the time grows with the input")
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}", flush=True)
    if given.growth:
        return 1 if measure_growth(given.target or FROM_OUTSIDE, given.minutes * 60, given.seed) else 0
    names = given.target or list(TARGETS)
    broken = 0
    for name in names:
        try:
            tried, taken = run(TARGETS[name], given.minutes * 60 / len(names), given.seed)
            print(f"{name:20} {tried:9} inputs, {taken} accepted", flush=True)
        except Found as fault:
            broken += 1
            print(f"{name:20} FOUND: {fault}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
