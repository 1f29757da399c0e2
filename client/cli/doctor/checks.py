"""Checks: each yields findings about a subject, such as `group billing`, or what it could not check. Pure.

What a check can find is a `Trouble`: docs/DOCTOR.md lists them all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.cli.doctor.facts import Facts


class NotChecked(NamedTuple):
    """What a check could not see: of `subject`, or of everything if that is empty."""

    reason: str
    subject: str = ""


Found = Iterable[Finding[str] | NotChecked]
Look = Callable[[Facts], Found]


class Trouble(NamedTuple):
    """One thing that a check can find: what it is, why it matters, and what fixes it. `{name}` in a text stands for a
    value. `worst`: its severity where it is worse than `severity`."""

    severity: Severity
    text: str
    why: str
    fix: str
    worst: Severity | None = None

    def of(self, subject: str, *, is_worst: bool = False, **values: Any) -> Finding[str]:  # noqa: ANN401
        """KeyError: a value is missing."""
        severity = self.worst if is_worst and self.worst is not None else self.severity
        texts = (text.format_map(values) for text in (self.text, self.why, self.fix))
        return Finding(severity, subject, *texts)


class Check(NamedTuple):
    """`name`: as users see it. `looks_for`: one line. `troubles`: all that it can find."""

    name: str
    looks_for: str
    run: Look
    troubles: tuple[Trouble, ...]


class Examined(NamedTuple):
    """`findings`: the worst first; their kind is the name of their check. `skipped`: with the name of their check."""

    checks: int
    findings: list[Finding[str]]
    skipped: list[tuple[str, NotChecked]]

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.findings), default=Severity.NOTE)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def finds(*troubles: Trouble) -> Callable[[Look], Check]:
    """Makes a function a check. Its name is that of the function; what it looks for is the first line of its
    docstring."""

    def made(function: Look) -> Check:
        line = (function.__doc__ or "").partition("\n")[0]
        return Check(function.__name__.replace("_", "-"), line, function, troubles)

    return made


def run(checks: Sequence[Check], facts: Facts) -> Examined:
    found = [(check.name, each) for check in checks for each in check.run(facts)]
    findings = [replace(each, kind=name) for name, each in found if isinstance(each, Finding)]
    skipped = [(name, each) for name, each in found if isinstance(each, NotChecked)]
    skipped += [("facts", NotChecked(reason)) for reason in facts.unasked]
    findings.sort(key=lambda finding: -finding.severity)
    return Examined(len(checks), findings, skipped)


def shortened(texts: Iterable[str], at_most: int = 5) -> str:
    """`a, b, c and 4 more`"""
    listed = list(texts)
    more = len(listed) - at_most
    return ", ".join(listed[:at_most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, one: str, many: str = "") -> str:
    """`1 message`, `1,200 messages`"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
