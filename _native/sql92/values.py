"""How values are compared: Java's rules for Boolean, Integer, Long, Double and String, as Apache's filters use them.

A value is None, bool, int, float or str. An int is an Integer if it fits, else a Long; strings are parsed
accordingly.
"""

import math
import re
from functools import lru_cache

from firearrow._native.sql92.errors import Incomparable

Known = bool | int | float | str
Value = None | Known

INTEGER_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
LONG_DIGITS, SHORT = 19, 10
DOUBLE_MIN, DOUBLE_MAX = 5e-324, 1.7976931348623157e308
BLANKS = "".join(map(chr, range(33)))
DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)


EMPTY = "java.lang.RuntimeException: java.lang.NumberFormatException: empty String"
NO_CAST = (
    "java.lang.ClassCastException: class java.lang.Boolean cannot be cast to class java.lang.String "
    "(java.lang.Boolean and java.lang.String are in module java.base of loader 'bootstrap')"
)


def _no_number(text: str) -> Incomparable:
    return Incomparable(
        f'java.lang.RuntimeException: java.lang.NumberFormatException: For input string: "{text}"'
    )


def compare(left: Known, right: Known) -> int:
    """Below 0, 0, above 0. A string compared with a number is parsed as that kind of number."""
    of, other = type(left), type(right)
    if of is not other:
        if of is str:
            left = _as(str(left), right)
        elif of is bool:
            if other is str:
                raise Incomparable(NO_CAST)
            return -1
        elif other is str:
            right = _as(str(right), left)
        elif other is bool:
            return -1
        else:
            left, right = float(left), float(right)
    if type(left) is float:
        return _order(left, float(right))
    return (left > right) - (left < right)  # type: ignore[operator]


@lru_cache(maxsize=64)
def double(text: str) -> float:
    """Double.valueOf. An expression may compare one long property a thousand times."""
    trimmed = text.strip(BLANKS)
    if DECIMAL.fullmatch(trimmed):
        return float(trimmed.rstrip("fFdD") if trimmed[-1] in "fFdD" else trimmed)
    match = HEXADECIMAL.fullmatch(trimmed)
    if match is None:
        raise _no_number(trimmed) if trimmed else Incomparable(EMPTY)
    try:
        return float.fromhex(match.group(1))
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def whole(text: str, low: int, high: int) -> int:
    """Integer.valueOf or Long.valueOf: a sign and decimal digits of any script."""
    if len(text) < SHORT and text.isascii() and text.isdecimal():
        return int(text)
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not digits.isdecimal() or not (digits.isascii() or max(digits) <= "\uffff"):
        raise _no_number(text)
    if len(digits) > LONG_DIGITS:
        digits = digits.lstrip("0") or "0"
        if len(digits) > LONG_DIGITS:
            raise _no_number(text)
    number = -int(digits) if text[0] == "-" else int(digits)
    if not low <= number <= high:
        raise _no_number(text)
    return number


def shown(value: Value) -> str:
    """As Apache shows a constant."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return shown_double(value) if isinstance(value, float) else str(value)


def shown_double(value: float) -> str:
    """Double.toString, which has two digits at least."""
    if abs(value) == DOUBLE_MIN:
        return f"{'-' if value < 0 else ''}4.9E-324"
    if 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e") if "e" in repr(value) else (*_scientific(value),)
    return f"{mantissa}{'' if '.' in mantissa else '.0'}E{int(exponent)}"


def _scientific(value: float) -> tuple[str, str, str]:
    digits = repr(value).replace(".", "").replace("-", "").strip("0") or "0"
    exponent = math.floor(math.log10(abs(value)))
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}", "e", str(exponent)


def _as(text: str, like: Known) -> bool | int | float:
    if type(like) is float:
        return double(text)
    if type(like) is bool:
        return text.lower() == "true"
    if -INTEGER_MAX <= int(like) <= INTEGER_MAX:
        return whole(text, -INTEGER_MAX - 1, INTEGER_MAX)
    return whole(text, -LONG_MAX - 1, LONG_MAX)


def _order(left: float, right: float) -> int:
    """Double.compareTo: NaN is above all and equals itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0:
        return 0
    ranks = [
        (math.isnan(number), math.copysign(1.0, number) if number == 0 else 0) for number in (left, right)
    ]
    return (ranks[0] > ranks[1]) - (ranks[0] < ranks[1])
