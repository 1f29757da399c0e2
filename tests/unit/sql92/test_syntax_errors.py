"""Invalid expressions: Apache's messages say where and what was expected; limits; random input does no harm."""

import random
import time
from contextlib import suppress

import pytest

from firearrow._native.sql92.errors import Incomparable, InvalidExpression
from firearrow._native.sql92.parser import DEPTH_MAX, NODES_MAX, parse
from tests.sql92.generator import NOISE, Generator

PARSE = "org.apache.rocketmq.filter.parser.ParseException: "
LEXICAL = "org.apache.rocketmq.filter.parser.TokenMgrError: Lexical error at "
RUNTIME = "java.lang.RuntimeException: "
OPERANDS = (
    '"NOT"', '"TRUE"', '"FALSE"', '"NULL"', "<DECIMAL_LITERAL>", "<FLOATING_POINT_LITERAL>", "<STRING_LITERAL>", "<ID>",
    '"("', '"-"', '"+"',
)  # fmt: skip


def why(text: str) -> str:
    with pytest.raises(InvalidExpression) as raised:
        parse(text)
    return str(raised.value)


def expecting(*names: str) -> str:
    many = "" if len(names) == 1 else " one of"
    return f"\nWas expecting{many}:\n    " + "".join(f"{name} ...\n    " for name in names)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a IS BETWEEN",
            'Encountered " "BETWEEN" "BETWEEN "" at line 1, column 6.' + expecting('"NOT"', '"NULL"'),
        ),
        ("", 'Encountered "<EOF>" at line 0, column 0.' + expecting(*OPERANDS)),
        ("a =", 'Encountered "<EOF>" at line 1, column 3.' + expecting(*OPERANDS)),
        ("a\n=\t\t)", 'Encountered " ")" ") "" at line 2, column 17.' + expecting(*OPERANDS)),
        (
            "a IN (5)",
            'Encountered " <DECIMAL_LITERAL> "5 "" at line 1, column 7.' + expecting("<STRING_LITERAL>"),
        ),
        (
            "a IN ('x' 'y')",
            'Encountered " <STRING_LITERAL> "\\\'y\\\' "" at line 1, column 11.' + expecting('","', '")"'),
        ),
        ("a BETWEEN 1 OR 2", 'Encountered " "OR" "OR "" at line 1, column 13.' + expecting('"AND"')),
        ("5", "Expression will not result in a boolean value: 5"),
        ("-a", "Expression will not result in a boolean value: (- a)"),
        ("'x' AND a = 1", "Expression will not result in a boolean value: 'x'"),
    ],
)
def test_a_parse_error_says_what_was_expected_where(text: str, said: str) -> None:
    assert why(text) == PARSE + said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a != 5", 'line 1, column 3.  Encountered: "!" (33), after : ""'),
        ("a = 'x", 'line 1, column 7.  Encountered: <EOF> after : "\\\'x"'),
        ("a\r\n\r= #1", 'line 3, column 3.  Encountered: "#" (35), after : ""'),
        ("a = .x 1", 'line 1, column 6.  Encountered: "x" (120), after : "."'),
        ("a = é ", 'line 1, column 5.  Encountered: "\\u00e9" (233), after : ""'),
    ],
)
def test_a_lexical_error_says_which_character_where(text: str, said: str) -> None:
    assert why(text) == LEXICAL + said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a > 'x'", RUNTIME + "Value ''x'' cannot be compared."),
        ("a > TRUE", RUNTIME + "Value 'TRUE' cannot be compared."),
        ("1 < a < 2", RUNTIME + "Value '(1 < a)' cannot be compared."),
        ("a = NULL", RUNTIME + "'NULL' cannot be compared."),
        ("TRUE = 'x'", RUNTIME + "'TRUE' cannot be compared with ''x''"),
        ("5 IN ('x')", RUNTIME + "Expected a property for In expression, got: 5"),
        ("a BETWEEN NULL AND 5", RUNTIME + "Illegal values of between, values can not be null!"),
        (
            "a BETWEEN 6 AND 2.0e10 AND a BETWEEN 2.0e10 AND 6",
            RUNTIME
            + "Illegal values of between, left value(2.0E10) must less than or equal to right value(6)",
        ),
        (
            "a = 9223372036854775808",
            'java.lang.NumberFormatException: For input string: "9223372036854775808"',
        ),
        ("a = 0.0", RUNTIME + "0.0 is less than 4.9E-324"),
        ("a = 1e999", RUNTIME + "1e999 is greater than 1.7976931348623157E308"),
    ],
)
def test_what_cannot_be_compared_is_refused_at_once(text: str, said: str) -> None:
    assert why(text) == said


@pytest.mark.parametrize(("begin", "end"), [("(", ")"), ("-", ""), ("+", ""), ("NOT ", "")])
def test_depth_is_bounded(begin: str, end: str) -> None:
    inner = "a = 1 OR TRUE" if begin == "(" else "b"
    tail = " = 1" if begin in "-+" else ""
    most = (DEPTH_MAX - 1) // (1 if begin in "(+" else 2)
    parse(begin * most + inner + end * most + tail)
    for much in (DEPTH_MAX + 1, 30_000):
        assert f"{DEPTH_MAX} deep" in why(begin * much + inner + end * much + tail)


def test_the_depth_of_operations_without_parentheses_is_bounded() -> None:
    assert f"{DEPTH_MAX} deep" in why("a" + " = b" * (DEPTH_MAX + 1))


def test_parts_are_bounded() -> None:
    most = (NODES_MAX - 1) // 3
    assert parse(" OR ".join(["a = 1"] * most)).evaluate({}) is None
    assert f"{NODES_MAX} parts" in why(" OR ".join(["a = 1"] * (most + 1)))


def test_a_long_list_counts_once() -> None:
    texts = ",".join(f"'{n}'" for n in range(8000))
    assert parse(f"a IN ({texts})").evaluate({"a": "7999"}) is True


HARD = {
    "minus signs": "a = 1 OR b = " + "--1 OR b = " * 5900,
    "minus signs, a line below": "\n" + "a = 1 OR " * 20 + "b = --" * 9000,
    "quotes": "'" * 65_535,
    "quotes and text": "a = '" + "''x" * 21_800,
    "open comment": "a = /*" + "*" * 65_000,
    "digits": "a = " + "9" * 65_000,
    "fraction": "a = 1." + "0" * 65_000 + "x'",
    "exponent": "a = 1e" + "9" * 65_000,
    "names": "x" * 65_536,
    "blanks": " \t" * 32_000 + "!",
    "breaks": "\r\n" * 32_000 + "!",
    "brackets": "(" * 65_536,
    "list": "a IN (" + "'x'," * 16_000,
    "chain": "a=" * 32_000,
}


@pytest.mark.parametrize("name", HARD)
def test_the_hardest_expression_is_fast(name: str) -> None:
    """At most 0.1 s; what compares each character with each takes longer than 4."""
    begun = time.process_time()
    with suppress(InvalidExpression):
        assert parse(HARD[name]).evaluate({}) is None
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    "value", ["9" * 32_000, "0" * 32_000, " " * 32_000, "1e" + "9" * 32_000, "1." * 16_000]
)
def test_the_hardest_value_is_fast(value: str) -> None:
    expressions = [
        parse(text) for text in ("a = 5", "a = 5000000000", "a > 1.5", "a > b", "a CONTAINS '99x'")
    ]
    begun = time.process_time()
    for expression in expressions:
        try:
            assert expression.evaluate({"a": value, "b": value}) in (True, False)
        except Incomparable:
            pass
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("seed", range(8))
def test_random_text_is_valid_or_refused(seed: int) -> None:
    generator = Generator(seed)
    pick = random.Random(seed)
    kinds = set()
    for _ in range(400):
        noise = "".join(
            pick.choice((*NOISE, " ", "a", "'x'", chr(pick.randrange(1, 0xD800)))) for _ in range(9)
        )
        for text in (generator.expression(), noise):
            try:
                kinds.add(type(parse(text).evaluate(generator.properties())))
            except (InvalidExpression, Incomparable) as error:
                kinds.add(type(error))
    assert {bool, type(None), InvalidExpression, Incomparable} <= kinds
