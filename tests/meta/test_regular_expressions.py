"""No regular expression of the code takes more than linear time, whatever text it gets: one request must not hold up
all others. The check itself is tested with expressions that are known to grow."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.meta.growing_patterns import Automaton, Found, expressions

ROOT = Path(__file__).resolve().parents[2]
NOT_CONSTANT = {
    "client/base/errors.py",  # _HINTS, below
    "client/cli/messages/message_view.py",  # the user's own, in the user's process
    "client/integrations/kombu/temporary_queues.py",  # kombu's, of the user's own binding keys
    "spark_tools/plan/option_parsing.py",  # the user's own, compiled to be checked
    "spark_tools/plan/topics.py",  # the user's own, of names of topics
}


@cache
def all_expressions() -> list[Found]:
    """Not when the file is imported, which each worker does."""
    return list(expressions(ROOT, ("broker", "_native", "client", "spark_tools")))


def grows(found: Found) -> bool:
    return (
        found.pattern is not None and Automaton(found.pattern, found.flags, searches=found.searches).grows()
    )


def test_no_expression_grows() -> None:
    assert not [f"{found.file}:{found.line}: {found}" for found in all_expressions() if grows(found)]


def test_all_files_are_read() -> None:
    assert {"broker/http/messages.py", "_native/store/log/key_index.pyx", "spark_tools/submit.py"} <= {
        found.file for found in all_expressions()
    }
    assert {found.file for found in all_expressions() if found.pattern is None} == NOT_CONSTANT


def test_hints_of_refused_requests_do_not_grow() -> None:
    from firearrow.client.base.errors import _HINTS  # noqa: PLC0415

    assert not [pattern for pattern, _ in _HINTS if Automaton(pattern).grows()]


GROWING = (
    rb"[ \t]*([\t\x20-\x7e]*?)[ \t]*",
    r"[0-9a-f]+\.?[0-9a-f]*[pP]",
    r"\s*(x?)\s*y",
    r"(a+)+b",
    r"(a*)*b",
    r"(aa|a)*b",
    r"[ \t]*(\S*)[ \t]*x",
    r"(?:a|ab|b)*c",
    r"(\w+\s?)*:",
    r".*a.*b",
    r"(?i)a*A*b",
    r"a{0,300}a{0,300}b",
)
LINEAR = (
    r"[ \t]*(\S+)[ \t]*x",
    r"[0-9a-f]+(?:\.[0-9a-f]*)?[pP]",
    r"(?:,?a)*b",
    r"(a+b)+c",
    r"(?:''|[^'])*'",
    r'"(?:[^"\\]|\\.)*"',
    r"[0-9]{1,19}[0-9]{1,19}x",
    r".*?\*/",
)


@pytest.mark.parametrize("pattern", GROWING)
def test_expressions_that_grow_are_found(pattern: str | bytes) -> None:
    assert Automaton(pattern).grows()


@pytest.mark.parametrize("pattern", LINEAR)
def test_linear_expressions_are_not_refused(pattern: str) -> None:
    assert not Automaton(pattern).grows()
    assert re.compile(pattern)


@pytest.mark.parametrize("pattern", [r"a+b", r'"(?:[^"\\]|\\.)*"', r"\s+$"])
def test_a_search_that_fails_at_each_start_grows(pattern: str) -> None:
    assert Automaton(pattern, searches=True).grows()
    assert not Automaton(pattern).grows()


def test_a_search_that_always_ends_does_not() -> None:
    assert not Automaton(r"[^a-z]+", searches=True).grows()
    assert not Automaton(r"(?m)^(\w*Error: )", searches=True).grows()
