"""Random expressions and properties: the same results and the same error messages as Apache's own filter.

A longer run: `FIREARROW_FILTER_CASES=500000 FIREARROW_FILTER_SEED=7 pytest tests/sql92/test_against_apache.py`.
"""

import os
import re

import pytest

from firearrow._native.sql92.errors import Incomparable, InvalidExpression
from firearrow._native.sql92.parser import parse
from tests.interop.toolchain import missing
from tests.sql92.apache_filter import Case, apache_results
from tests.sql92.generator import Generator

CASES = int(os.environ.get("FIREARROW_FILTER_CASES", "6000"))
SEED = int(os.environ.get("FIREARROW_FILTER_SEED", "92"))
SETS = 6
BATCH = 50_000
LETTERS = {True: "T", False: "F", None: "N"}
HASHED = re.compile(r" IN \( ([^)]*, ){4}")
"""A list of five or more, which Apache prints in the order of a HashMap."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3000)]

DOUBLE = re.compile(r"-?\d+\.\d+E-?\d+")
"""Java before 19 gives some doubles a digit too many."""


def ours(text: str, sets: list[dict[str, str]]) -> str:
    try:
        expression = parse(text)
    except InvalidExpression as wrong:
        return f"! {wrong}"
    truths = ""
    for properties in sets:
        try:
            truths += LETTERS[expression.evaluate(properties)]  # type: ignore[index]
        except Incomparable:
            truths += "X"
    return truths


def agree(text: str, ours: str, theirs: str) -> bool:
    """Messages may differ only for such lists, and after a plus (Apache blames the plus first)."""
    if ours == theirs:
        return True
    both_wrong = ours.startswith("! ") and theirs.startswith("! ")
    return both_wrong and (
        HASHED.search(theirs + ours) is not None
        or "+" in text
        or DOUBLE.sub("", ours) == DOUBLE.sub("", theirs)
    )


@pytest.mark.skipif(
    missing("java", "javac", "mvn") is not None and os.environ.get("FIREARROW_INTEROP") != "required",
    reason="needs Java 17 with Maven",
)
def test_every_result_equals_apaches() -> None:
    generator = Generator(SEED)
    seen = {"T": 0, "F": 0, "N": 0, "X": 0, "!": 0}
    for begin in range(0, CASES, BATCH):
        cases: list[Case] = [
            (generator.expression(), [generator.properties() for _ in range(SETS)])
            for _ in range(min(BATCH, CASES - begin))
        ]
        for (text, sets), theirs in zip(cases, apache_results(cases), strict=True):
            said = ours(text, sets)
            assert agree(text, said, theirs), f"{text!r} of {sets}: {said!r}, Apache {theirs!r}"
            for letter in theirs[:1] if theirs.startswith("!") else theirs:
                seen[letter] += 1
    assert all(count > CASES // 50 for count in seen.values()), seen
