"""Evaluation of expressions: three-valued logic, numbers in strings, and Apache's quirks."""

import pytest

from firearrow._native.sql92.errors import Incomparable
from firearrow._native.sql92.parser import parse
from firearrow._native.sql92.values import double, shown_double, whole

MESSAGE = {
    "a": "5", "b": "7.5", "s": "hangzhou", "n": "-3", "big": "3000000000", "t": "TRUE", "q": "it's", "nan": "NaN",
    "five": "5.0", "TAGS": "t1", "$x_1": "1", "zero": "-0",
}  # fmt: skip

TRUE = """
a = 5 | a = '5' | 5 = a | a <> 6 | a > 4 | a >= 5 | a < 6 | a <= 5 | a < 5.5 | 4 < a | n = -3 | n < -2 | b = 7.5
a BETWEEN 5 AND 5 | a BETWEEN 2 AND 6 | a NOT BETWEEN 6 AND 9 | a NOT BETWEEN 9 AND 6 | n BETWEEN -4 AND -2
s = 'hangzhou' | s <> 'x' | s IN ('x', 'hangzhou') | s NOT IN ('x') | s NOT IN ('a','b','c','d','e','f')
s CONTAINS 'ngz' | s NOT CONTAINS 'xx' | s STARTSWITH 'han' | s NOT STARTSWITH 'zhou' | s ENDSWITH 'zhou'
s NOT ENDSWITH 'x'
missing IS NULL | a IS NOT NULL | NULL IS NULL | missing = nothing | q = 'it''s' | t = TRUE | t = true
TRUE | NOT FALSE
missing = 1 OR a = 5 | a = 5 OR missing = 1 | NOT (missing = 1 AND a = 6) | NOT missing = 1 IS NULL
big > 2147483648 | big = 3000000000 | b = 7.5 | b > 7.0 | five = 5.0 | a = 5L | a = 5l | five = 5.
b > a | a < b | five >= a | nan > 1.5 | zero = 0 | TAGS = 't1' | $x_1 = 1 | a=5 AND(s='hangzhou')
a = 5 -- to the end of the line{n} | a /* in * between */ = 5 | A IS NULL | a{n}={t}5 | a iS nOt nUlL | (((a))) = ((5))
a = 5 what follows is not looked at ~ | a <> missing | (a = 5) = TRUE | (a = 6) = (s = 'x') | 5 CONTAINS 'x' = FALSE
1 = 1.0 | 'a' = 'a' | + a = + 5 | a = 5 AND b = 7.5 AND s = 'hangzhou' | a = 6 OR n = 6 OR s = 'hangzhou'
"""
FALSE = """
a = 6 | a <> 5 | a > 5 | s IN ('x') | s NOT IN ('hangzhou') | a | missing IS NOT NULL | a IS NULL | FALSE | NOT TRUE
s CONTAINS '' | s NOT CONTAINS '' | missing CONTAINS 'x' | missing NOT CONTAINS 'x' | a = missing | nan = 1.5 | zero = 1
missing = 1 AND a = 6 | a = 6 AND missing = 1 | 5 = (a = 5) | a CONTAINS '5' = FALSE | a BETWEEN 6 AND 7
-a = 5 AND FALSE | 'x' = TRUE | s STARTSWITH 'HAN' | a NOT BETWEEN 1 AND 9
NOT s = 1 | nOt a iS nUlL
"""
UNKNOWN = """
missing = 1 | missing <> 1 | missing > 1 | missing IN ('x') | missing NOT IN ('x') | missing | NOT missing | NULL
missing = 1 AND a = 5 | missing = 1 OR a = 6 | missing BETWEEN 1 AND 2 | a > -'x' | - a = 5 | missing = 'x'
"""
FAILED = """
s = 5 | s > 5 | s > a | b = 7 | big = 5 | a = 5.0 AND s < 1 | TRUE = a | (a = 5) = 'x' | s > 1 OR a = 5 | NOT (s = 1)
b BETWEEN 7 AND 8
"""


def each(table: str) -> list[str]:
    texts = (text.strip() for row in table.split("\n") for text in row.split(" | "))
    return [text.replace("{n}", "\n").replace("{t}", "\t") for text in texts if text]


@pytest.mark.parametrize("text", each(TRUE))
def test_true(text: str) -> None:
    assert parse(text).evaluate(MESSAGE) is True


@pytest.mark.parametrize("text", each(FALSE))
def test_false(text: str) -> None:
    assert parse(text).evaluate(MESSAGE) is False


@pytest.mark.parametrize("text", each(UNKNOWN))
def test_unknown(text: str) -> None:
    assert parse(text).evaluate(MESSAGE) is None


@pytest.mark.parametrize("text", each(FAILED))
def test_what_cannot_be_compared_ends_the_evaluation(text: str) -> None:
    with pytest.raises(Incomparable):
        parse(text).evaluate(MESSAGE)


def test_a_chain_stops_when_its_result_is_known() -> None:
    assert parse("a = 5 OR s > 1").evaluate(MESSAGE) is True
    assert parse("a = 6 AND s > 1").evaluate(MESSAGE) is False


@pytest.mark.parametrize(
    ("text", "value"), [("+5", 5), ("-5", -5), ("٣", 3), ("0" * 5000 + "7", 7), ("-0", 0)]
)
def test_whole_numbers_in_strings(text: str, value: int) -> None:
    assert whole(text, -(1 << 31), (1 << 31) - 1) == value


@pytest.mark.parametrize(
    "text", ["", "+", "-", "5.0", " 5", "5 ", "1_0", "0x5", "5L", "2147483648", "9" * 5000, "𝟓"]
)
def test_no_whole_numbers(text: str) -> None:
    with pytest.raises(Incomparable):
        whole(text, -(1 << 31), (1 << 31) - 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 7.5\t", 7.5), ("7f", 7), ("7D", 7), (".5", 0.5), ("5.", 5), ("1e3", 1000), ("-Infinity", float("-inf")),
        ("0x1.8p1", 3), ("0x1p9999", float("inf")), ("-0x1p9999", float("-inf")), ("1e999", float("inf")),
    ],
)  # fmt: skip
def test_doubles_in_strings(text: str, value: float) -> None:
    assert double(text) == value


@pytest.mark.parametrize(
    "text", ["", " ", "inf", "nan", "infinity", "1_0", "0x10", "1e", ".", "٣.5", "5L", "- 5"]
)
def test_no_doubles(text: str) -> None:
    with pytest.raises(Incomparable):
        double(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (1e7, "1.0E7"),
        (123456.789, "123456.789"),
        (1.5e300, "1.5E300"),
        (5e-324, "4.9E-324"),
        (-12345678.5, "-1.23456785E7"),
        (1e-4, "1.0E-4"),
    ],
)
def test_doubles_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert shown_double(value) == text
