"""Finding and NotChecked: what a check has to say; `run` runs all checks. Pure."""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from firearrow.client.cli.doctor.facts import Facts


class Severity(IntEnum):
    """A NOTE is no trouble: it may be as it should be."""

    NOTE = 0
    WARNING = 1
    CRITICAL = 2


class Finding(NamedTuple):
    """`subject`: what it is about, such as `group billing`. `fix`: the command that fixes it, or what to do."""

    severity: Severity
    subject: str
    found: str
    why: str
    fix: str


class NotChecked(NamedTuple):
    """What a check could not see: of `subject`, or of everything if that is empty."""

    reason: str
    subject: str = ""


Said = Iterable[Finding | NotChecked]


class Check(NamedTuple):
    """`name`: as users see it. `looks_for`: one line."""

    name: str
    looks_for: str
    run: Callable[[Facts], Said]


class Examined(NamedTuple):
    """`findings` and `skipped`: with the name of their check, the worst finding first."""

    checks: int
    findings: list[tuple[str, Finding]]
    skipped: list[tuple[str, NotChecked]]

    @property
    def worst(self) -> Severity:
        return max((finding.severity for _, finding in self.findings), default=Severity.NOTE)


def check_of(function: Callable[[Facts], Said]) -> Check:
    """The name of a check is that of its function; what it looks for is the first line of its docstring."""
    line = (function.__doc__ or "").partition("\n")[0]
    return Check(function.__name__.replace("_", "-"), line, function)


def run(checks: Sequence[Check], facts: Facts) -> Examined:
    said = [(check.name, each) for check in checks for each in check.run(facts)]
    findings = [(name, each) for name, each in said if isinstance(each, Finding)]
    skipped = [(name, each) for name, each in said if isinstance(each, NotChecked)]
    skipped += [("facts", NotChecked(reason)) for reason in facts.unasked]
    findings.sort(key=lambda pair: -pair[1].severity)
    return Examined(len(checks), findings, skipped)


def shortened(texts: Iterable[str], at_most: int = 5) -> str:
    """`a, b, c and 4 more`"""
    listed = list(texts)
    more = len(listed) - at_most
    return ", ".join(listed[:at_most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `1,200 messages`"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
