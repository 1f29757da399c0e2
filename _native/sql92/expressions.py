"""Expressions: evaluate a parsed filter on the properties of a message. Immutable values; any thread.

`evaluate` is a closure over those of the parts. It returns True, False or None (unknown), as Apache's classes of
`filter.expression` do; Incomparable ends the whole evaluation. `str` is Apache's, for errors.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from firearrow._native.sql92.values import Known, Value, compare, double, shown

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Expression:
    """`boolean`: allowed as an operand of AND, OR and NOT, not of `<` or `>`. `depth`: of nested nodes."""

    __slots__ = ("boolean", "depth", "evaluate", "parts")

    def __init__(self, evaluate: Evaluate, *parts: "Expression", boolean: bool = True) -> None:
        self.evaluate = evaluate
        self.boolean = boolean
        self.parts: Sequence[Expression] = parts
        self.depth: int = 1 + max((part.depth for part in parts), default=0)


class Constant(Expression):
    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__(lambda properties: value, boolean=value is None or type(value) is bool)
        self.value = value

    def __str__(self) -> str:
        return shown(self.value)


class Property(Expression):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(operator.methodcaller("get", name), boolean=False)
        self.name = name

    def __str__(self) -> str:
        return self.name


class Negate(Expression):
    """Unary minus: of a number its negative, of anything else unknown."""

    __slots__ = ()

    def __init__(self, part: Expression) -> None:
        operand = part.evaluate

        def evaluate(properties: Properties) -> Value:
            value = operand(properties)
            return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

        super().__init__(evaluate, part, boolean=False)

    def __str__(self) -> str:
        return f"(- {self.parts[0]})"


class Cast(Expression):
    """A property as a condition: properties are strings, and a string is not true."""

    __slots__ = ()

    def __init__(self, part: Property) -> None:
        operand = part.evaluate
        super().__init__(lambda properties: None if operand(properties) is None else False, part)

    def __str__(self) -> str:
        return str(self.parts[0])


class Not(Expression):
    __slots__ = ()

    def __init__(self, part: Expression) -> None:
        operand = part.evaluate

        def evaluate(properties: Properties) -> Value:
            value = operand(properties)
            return None if value is None else not value

        super().__init__(evaluate, part)

    def __str__(self) -> str:
        return f"(NOT {self.parts[0]})"


class Chain(Expression):
    """Two or more operands of AND or OR: evaluated from the left until one is false, or true."""

    __slots__ = ("sign",)

    def __init__(self, sign: str, *parts: Expression) -> None:
        ends = sign == "||"
        operands = [part.evaluate for part in parts]

        def evaluate(properties: Properties) -> Value:
            unknown = False
            for operand in operands:
                value = operand(properties)
                if value is ends:
                    return ends
                unknown = unknown or value is None
            return None if unknown else not ends

        super().__init__(evaluate, *parts)
        self.sign = sign

    def __str__(self) -> str:
        return reduce(lambda left, right: f"({left} {self.sign} {right})", map(str, self.parts))


class Equal(Expression):
    """`=`; null = null is true, value = null is false, null = value is unknown."""

    __slots__ = ()

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(_equal(left, right), left, right)

    def __str__(self) -> str:
        return f"({self.parts[0]} == {self.parts[1]})"


class Order(Expression):
    """`<`, `<=`, `>`, `>=`: two strings are compared as numbers."""

    __slots__ = ("sign",)

    def __init__(self, sign: str, left: Expression, right: Expression) -> None:
        super().__init__(_order(sign, left, right), left, right)
        self.sign = sign

    def __str__(self) -> str:
        return f"({self.parts[0]} {self.sign} {self.parts[1]})"


class In(Expression):
    __slots__ = ("given", "negated")

    def __init__(self, part: Property, given: list[str], *, negated: bool) -> None:
        operand, texts = part.evaluate, frozenset(given)

        def evaluate(properties: Properties) -> Value:
            value = operand(properties)
            return None if value is None else (value in texts) is not negated

        super().__init__(evaluate, part)
        self.given, self.negated = given, negated

    def __str__(self) -> str:
        return f"{self.parts[0]} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.given)} )"


SEARCHES = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}


class Search(Expression):
    """CONTAINS, STARTSWITH, ENDSWITH: false, negated or not, for a non-string value and for an empty search."""

    __slots__ = ("name",)

    def __init__(self, name: str, part: Expression, text: str, *, negated: bool) -> None:
        operand, found = part.evaluate, SEARCHES[name]

        def evaluate(properties: Properties) -> Value:
            value = operand(properties)
            return isinstance(value, str) and found(value, text) is not negated

        super().__init__(evaluate if text else lambda properties: False, part)
        self.name = f"NOT {name}" if negated else name

    def __str__(self) -> str:
        return f"({self.name} {self.parts[0]})"


def _equal(left: Expression, right: Expression) -> Evaluate:
    operand, other = left.evaluate, right.evaluate
    if isinstance(right, Constant) and right.value is not None:
        if isinstance(left, Property) and isinstance(right.value, str):
            return _is_text(operand, right.value)
        return _equal_to(operand, right.value)

    def evaluate(properties: Properties) -> Value:
        one, two = operand(properties), other(properties)
        if one is None:
            return True if two is None else None
        return False if two is None else compare(one, two) == 0

    return evaluate


def _equal_to(operand: Evaluate, constant: Known) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        one = operand(properties)
        return None if one is None else compare(one, constant) == 0

    return evaluate


def _is_text(operand: Evaluate, text: str) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        one = operand(properties)
        return None if one is None else one == text

    return evaluate


ORDERS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _order(sign: str, left: Expression, right: Expression) -> Evaluate:
    operand, other, holds = left.evaluate, right.evaluate, ORDERS[sign]
    if isinstance(right, Constant) and right.value is not None:
        return _order_to(operand, right.value, holds)

    def evaluate(properties: Properties) -> Value:
        one = operand(properties)
        if one is None:
            return None
        two = other(properties)
        if two is None:
            return None
        if isinstance(one, str) and isinstance(two, str):
            return holds(compare(double(one), double(two)), 0)
        return holds(compare(one, two), 0)

    return evaluate


def _order_to(operand: Evaluate, constant: Known, holds: Callable[[int, int], bool]) -> Evaluate:
    """The parser has rejected string constants."""

    def evaluate(properties: Properties) -> Value:
        one = operand(properties)
        return None if one is None else holds(compare(one, constant), 0)

    return evaluate


def names_read(expression: Expression) -> set[str]:
    """The properties that the expression reads."""
    found: set[str] = set()
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Property):
            found.add(node.name)
        waiting.extend(node.parts)
    return found
