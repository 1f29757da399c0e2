"""Expressions: what a parsed filter asks of the properties of a message. Immutable values; any thread.

`evaluate` gives True, False or None (unknown), as Apache's classes of `filter.expression` do; Incomparable ends the
whole evaluation. `str` is Apache's, for errors. `depth` counts nodes in each other, so that the parser can bound it.
"""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce

from firearrow.broker.filters.values import Value, compare, double, shown

Properties = Mapping[str, str]


class Expression:
    """`boolean`: it may be joined by AND, OR and NOT, and not be compared by size."""

    __slots__ = ("depth", "parts")
    boolean = True

    def __init__(self, *parts: "Expression") -> None:
        self.parts: Sequence[Expression] = parts
        self.depth: int = 1 + max((part.depth for part in parts), default=0)

    def evaluate(self, properties: Properties) -> Value:
        raise NotImplementedError


class Constant(Expression):
    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value

    @property
    def boolean(self) -> bool:  # type: ignore[override]
        return self.value is None or type(self.value) is bool

    def evaluate(self, properties: Properties) -> Value:
        return self.value

    def __str__(self) -> str:
        return shown(self.value)


class Property(Expression):
    __slots__ = ("name",)
    boolean = False

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def evaluate(self, properties: Properties) -> Value:
        return properties.get(self.name)

    def __str__(self) -> str:
        return self.name


class Negate(Expression):
    """Unary minus: of a number its negative, of anything else unknown."""

    __slots__ = ()
    boolean = False

    def evaluate(self, properties: Properties) -> Value:
        value = self.parts[0].evaluate(properties)
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def __str__(self) -> str:
        return f"(- {self.parts[0]})"


class Cast(Expression):
    """A property as a condition: properties are texts, and a text is not true."""

    __slots__ = ()

    def evaluate(self, properties: Properties) -> Value:
        return None if self.parts[0].evaluate(properties) is None else False

    def __str__(self) -> str:
        return str(self.parts[0])


class Not(Expression):
    __slots__ = ()

    def evaluate(self, properties: Properties) -> Value:
        value = self.parts[0].evaluate(properties)
        return None if value is None else not value

    def __str__(self) -> str:
        return f"(NOT {self.parts[0]})"


class Both(Expression):
    """AND of two or more, from the left, until one is false."""

    __slots__ = ()
    sign, ends = "&&", False

    def evaluate(self, properties: Properties) -> Value:
        unknown, ends = False, self.ends
        for part in self.parts:
            value = part.evaluate(properties)
            if value is ends:
                return ends
            unknown = unknown or value is None
        return None if unknown else not ends

    def __str__(self) -> str:
        return reduce(lambda left, right: f"({left} {self.sign} {right})", map(str, self.parts))


class Either(Both):
    """OR of two or more, from the left, until one is true."""

    __slots__ = ()
    sign, ends = "||", True


class Equal(Expression):
    """`=`; nothing equals nothing, a value beside nothing is unequal, nothing beside a value is unknown."""

    __slots__ = ("left", "right")

    def __init__(self, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.left, self.right = left, right

    def evaluate(self, properties: Properties) -> Value:
        left, right = self.left.evaluate(properties), self.right.evaluate(properties)
        if left is None:
            return True if right is None else None
        if right is None:
            return False
        return compare(left, right) == 0

    def __str__(self) -> str:
        return f"({self.left} == {self.right})"


class Order(Expression):
    """`<`, `<=`, `>`, `>=`: two texts are compared as numbers."""

    __slots__ = ("holds", "left", "right", "sign")
    SIGNS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}  # noqa: RUF012

    def __init__(self, sign: str, left: Expression, right: Expression) -> None:
        super().__init__(left, right)
        self.sign, self.left, self.right = sign, left, right
        self.holds = self.SIGNS[sign]

    def evaluate(self, properties: Properties) -> Value:
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if type(left) is str and type(right) is str:
            left, right = double(left), double(right)
        return bool(self.holds(compare(left, right), 0))

    def __str__(self) -> str:
        return f"({self.left} {self.sign} {self.right})"


class In(Expression):
    __slots__ = ("given", "negated", "property", "texts")

    def __init__(self, subject: Property, given: list[str], *, negated: bool) -> None:
        super().__init__(subject)
        self.property, self.given, self.texts, self.negated = subject, given, frozenset(given), negated

    def evaluate(self, properties: Properties) -> Value:
        value = properties.get(self.property.name)
        return None if value is None else (value in self.texts) is not self.negated

    def __str__(self) -> str:
        return f"{self.property} {'NOT IN' if self.negated else 'IN'} ( {', '.join(self.given)} )"


class Search(Expression):
    """CONTAINS, STARTSWITH, ENDSWITH: false, negated or not, for what is no text and for an empty search."""

    __slots__ = ("found", "name", "negated", "text")
    NAMES = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}  # noqa: RUF012

    def __init__(self, name: str, subject: Expression, text: str, *, negated: bool) -> None:
        super().__init__(subject)
        self.name, self.text, self.negated = name, text, negated
        self.found = self.NAMES[name]

    def evaluate(self, properties: Properties) -> Value:
        if not self.text:
            return False
        value = self.parts[0].evaluate(properties)
        return isinstance(value, str) and self.found(value, self.text) is not self.negated

    def __str__(self) -> str:
        return f"({'NOT ' if self.negated else ''}{self.name} {self.parts[0]})"
