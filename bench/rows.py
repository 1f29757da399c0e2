"""A row of the comparison: the same load on several servers, and the goals for the figures."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from operator import attrgetter

from bench.load import Load
from bench.servers import Server

Work = Callable[[Server, float], Load]
"""Runs a load on a server, with this fraction of the usual number of requests."""
Prepare = Callable[[Server, float], None]
Beside = Callable[[Server, float], AbstractContextManager[object]]
OURS = "firearrow"


@dataclass(frozen=True, slots=True)
class Sample:
    """One round: messages per second, CPU us per message, latencies in us, peak anonymous memory in MB; calls that
    the server reset."""

    rate: float
    cpu_us: float
    p50: float
    p99: float
    p999: float
    max: float
    mb: float
    resets: int = 0


def figures(samples: list[Sample]) -> Sample:
    """Those of the round with the highest rate; the highest of the maximum latencies and of memory; the resets of all
    rounds."""
    best = max(samples, key=attrgetter("rate"))
    return replace(
        best,
        max=max(each.max for each in samples),
        mb=max(each.mb for each in samples),
        resets=sum(each.resets for each in samples),
    )


Found = Mapping[str, Sample]
"""Server → its figures in one row."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`text` names the result of `value`, which raises KeyError if a peer was not measured."""

    text: str
    limit: float
    at_most: bool
    value: Callable[[Found, str], float]

    def met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit


def of(peer: str, limit: float) -> Goal:
    """Our rate is at least `limit` times the peer's."""
    return Goal(f"of {peer}", limit, False, lambda found, ours: found[ours].rate / found[peer].rate)


def rate(limit: float) -> Goal:
    return Goal("messages/s", limit, False, lambda found, ours: found[ours].rate)


def cpu_of(peer: str, limit: float) -> Goal:
    """The CPU time of a message is at most `limit` times the peer's: the rest is the kernel's, which both pay."""
    text = f"server CPU of {peer}"
    return Goal(text, limit, True, lambda found, ours: found[ours].cpu_us / found[peer].cpu_us)


def more_cpu(peer: str, limit_us: float) -> Goal:
    text = f"server CPU us a message more than {peer}"
    return Goal(text, limit_us, True, lambda found, ours: found[ours].cpu_us - found[peer].cpu_us)


def latency(figure: str, limit_us: float) -> Goal:
    """`figure`: p50, p99, p999 or max."""
    return Goal(f"{figure} us", limit_us, True, lambda found, ours: float(getattr(found[ours], figure)))


def memory(limit_mb: float = 100) -> Goal:
    return Goal("anonymous MB", limit_mb, True, lambda found, ours: found[ours].mb)


@dataclass(frozen=True, slots=True)
class Row:
    """`work`: server → load; names are those of `bench.peers`, or `SERVER: another load on that server`."""

    name: str
    ours: str
    work: Mapping[str, Work]
    goals: tuple[Goal, ...]
    prepare: Prepare | None = None
    """Called once for each server, before all rounds."""
    beside: Mapping[str, Beside] = field(default_factory=dict)
    """A context in which the load of a server runs."""
    rounds_max: int = 100
    floor: str = ""
    """The row's floor: the server that does the least work that the row needs, if there is one."""

    def entered(self, name: str, server: Server, part: float) -> AbstractContextManager[object]:
        beside = self.beside.get(name)
        return nullcontext() if beside is None else beside(server, part)


def server_of(name: str) -> str:
    """The server that `name` in a row's work stands for."""
    return name.partition(":")[0]
