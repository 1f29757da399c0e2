"""SQL92 text → expression: the grammar of Apache's SelectorParser.jj with its text for every error.

As there, an expression ends where no more tokens fit; text after it is not read. Any thread.
"""

import math
from collections.abc import Iterator

from firearrow._native.sql92.errors import Incomparable, InvalidExpression
from firearrow._native.sql92.expressions import (
    Cast,
    Chain,
    Constant,
    Equal,
    Expression,
    In,
    Negate,
    Not,
    Order,
    Property,
    Search,
)
from firearrow._native.sql92.tokens import (
    IMAGES,
    Kind,
    Token,
    Tokens,
    escaped,
    line_and_column,
)
from firearrow._native.sql92.values import (
    DOUBLE_MAX,
    DOUBLE_MIN,
    LONG_MAX,
    Value,
    compare,
    shown,
    shown_double,
)

DEPTH_MAX = 100
"""Of nested parentheses and signs, and of nested operations."""
NODES_MAX = 1000
"""Constants, properties and operations; a list after IN counts once."""

ORDERS = {Kind.ABOVE: ">", Kind.ABOVE_OR_EQUAL: ">=", Kind.BELOW: "<", Kind.BELOW_OR_EQUAL: "<="}
SEARCHES = (Kind.CONTAINS, Kind.STARTSWITH, Kind.ENDSWITH)
NEGATABLE = (*SEARCHES, Kind.BETWEEN, Kind.IN)
LITERALS = (Kind.TRUE, Kind.FALSE, Kind.NULL, Kind.DECIMAL, Kind.FLOAT, Kind.TEXT)
PARSE_ERROR = "org.apache.rocketmq.filter.parser.ParseException: "
FIXED = {Kind.TRUE: True, Kind.FALSE: False, Kind.NULL: None}


class Unexpected(InvalidExpression):
    """A token that the grammar does not allow there."""


def parse(text: str) -> Expression:
    """The expression of a text. InvalidExpression states what was expected where."""
    return Parser(text).condition()


class Parser:
    """Parses one text. `_expected`: the kinds tried for the next token, for the error."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._expected: set[Kind] = set()
        self._expected_last: list[Kind] = []
        self._depth = 0
        self._nodes = 0

    def condition(self) -> Expression:
        return self._boolean(self._either())

    # ---- the grammar, from the loosest to the tightest ----

    def _either(self) -> Expression:
        left = self._both()
        if not self._next_is(Kind.OR):
            return left
        parts = [left]
        while self._next_is(Kind.OR):
            self._take()
            parts.append(self._both())
            parts[-2:] = map(self._boolean, parts[-2:])
        return self._made(Chain("||", *parts))

    def _both(self) -> Expression:
        left = self._equality()
        if not self._next_is(Kind.AND):
            return left
        parts = [left]
        while self._next_is(Kind.AND):
            self._take()
            parts.append(self._equality())
            parts[-2:] = map(self._boolean, parts[-2:])
        return self._made(Chain("&&", *parts))

    def _equality(self) -> Expression:
        left = self._comparison()
        while self._next_is(Kind.EQUAL, Kind.UNEQUAL, Kind.IS):
            kind = self._take().kind
            if kind is Kind.IS:
                left = self._is_null(left)
            else:
                equal = self._equal(left, self._comparison())
                left = equal if kind is Kind.EQUAL else self._made(Not(equal))
        return left

    def _is_null(self, left: Expression) -> Expression:
        equal = self._made(Equal(left, Constant(None)))
        self._expected_last = [Kind.NULL]
        if self._tokens.peek().kind is Kind.NULL:
            self._take()
            return equal
        self._need(Kind.NOT)
        self._need(Kind.NULL)
        return self._made(Not(equal))

    def _comparison(self) -> Expression:
        left = self._unary()
        while self._next_is(*ORDERS, *NEGATABLE, Kind.NOT):
            negated = self._tokens.peek().kind is Kind.NOT
            if negated:
                if self._tokens.peek(1).kind not in NEGATABLE:
                    self._expected.update((*ORDERS, *NEGATABLE))
                    raise self._unexpected(self._tokens.peek())
                self._take()
            left = self._compared(left, self._take().kind, negated=negated)
        return left

    def _compared(self, left: Expression, kind: Kind, *, negated: bool) -> Expression:
        if kind in ORDERS:
            return self._order(ORDERS[kind], left, self._unary())
        if kind in SEARCHES:
            return self._made(Search(kind.name, left, self._text(), negated=negated))
        if kind is Kind.IN:
            return self._in(left, negated=negated)
        low = self._unary()
        self._need(Kind.AND)
        high = self._unary()
        if negated:
            return self._made(Chain("||", self._order("<", left, low), self._order(">", left, high)))
        _check_range(low, high)
        return self._made(Chain("&&", self._order(">=", left, low), self._order("<=", left, high)))

    def _in(self, left: Expression, *, negated: bool) -> Expression:
        self._need(Kind.OPEN)
        texts = [self._text()]
        while self._next_is(Kind.COMMA):
            self._take()
            texts.append(self._text())
        self._need(Kind.CLOSE)
        if not isinstance(left, Property):
            raise _runtime(f"Expected a property for In expression, got: {left}")
        return self._made(In(left, texts, negated=negated))

    def _unary(self) -> Expression:
        self._descend()
        kind = self._tokens.peek().kind
        if kind is Kind.PLUS:
            made = self._plus()
        elif self._next_is(Kind.MINUS, Kind.NOT):
            self._take()
            value = self._unary()
            made = self._made(Negate(value) if kind is Kind.MINUS else Not(self._boolean(value)))
        else:
            made = self._primary()
        self._depth -= 1
        return made

    def _plus(self) -> Expression:
        """Apache looks ahead over the whole operand of a plus, and reports errors in it at the plus."""
        plus = self._take()
        try:
            return self._unary()
        except Unexpected:
            self._expected = {Kind.MINUS, Kind.NOT, Kind.OPEN, Kind.NAME, *LITERALS}
            self._expected_last = []
            raise self._unexpected(plus) from None

    def _primary(self) -> Expression:
        if self._next_is(Kind.OPEN):
            self._take()
            inner = self._either()
            self._need(Kind.CLOSE)
            return inner
        if self._next_is(Kind.NAME):
            return self._made(Property(self._take().text))
        if not self._next_is(*LITERALS):
            self._expected_last = [Kind.PLUS]
            raise self._unexpected(self._tokens.peek())
        token = self._take()
        return self._made(Constant(FIXED[token.kind] if token.kind in FIXED else _literal(token)))

    def _text(self) -> str:
        return _unquoted(self._need(Kind.TEXT).text)

    # ---- checks of operands ----

    def _boolean(self, value: Expression) -> Expression:
        if isinstance(value, Property):
            return self._made(Cast(value))
        if value.boolean:
            return value
        raise InvalidExpression(f"{PARSE_ERROR}Expression will not result in a boolean value: {value}")

    def _equal(self, left: Expression, right: Expression) -> Expression:
        for operand in (left, right):
            if isinstance(operand, Constant) and operand.value is None:
                raise _runtime(f"'{operand}' cannot be compared.")
        if isinstance(left, Constant) and isinstance(right, Constant) and left.boolean and not right.boolean:
            raise _runtime(f"'{left}' cannot be compared with '{right}'")
        return self._made(Equal(left, right))

    def _order(self, sign: str, left: Expression, right: Expression) -> Expression:
        for operand in (left, right):
            if operand.boolean or (isinstance(operand, Constant) and isinstance(operand.value, str)):
                raise _runtime(f"Value '{operand}' cannot be compared.")
        return self._made(Order(sign, left, right))

    # ---- tokens and bounds ----

    def _next_is(self, *kinds: Kind) -> bool:
        if self._tokens.peek().kind in kinds:
            return True
        self._expected.update(kinds)
        return False

    def _need(self, kind: Kind) -> Token:
        if not self._next_is(kind):
            raise self._unexpected(self._tokens.peek())
        return self._take()

    def _take(self) -> Token:
        self._expected.clear()
        self._expected_last.clear()
        return self._tokens.take()

    def _made(self, node: Expression) -> Expression:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise InvalidExpression(f"the expression has more than {NODES_MAX} parts{self._here()}")
        if node.depth > DEPTH_MAX:
            raise InvalidExpression(f"operations are more than {DEPTH_MAX} deep in each other{self._here()}")
        return node

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidExpression(f"parentheses and signs are more than {DEPTH_MAX} deep{self._here()}")

    def _here(self) -> str:
        line, column = self._line_and_column(self._tokens.peek())
        return f" at line {line}, column {column}"

    def _line_and_column(self, token: Token) -> tuple[int, int]:
        return line_and_column(self._tokens.text, min(token.start, len(self._tokens.text) - 1))

    def _unexpected(self, token: Token) -> "Unexpected":
        line, column = self._line_and_column(token)
        name = IMAGES[token.kind]
        met = name if token.kind is Kind.END else f' {name} "{escaped(token.text)} "'
        expected = list(self._expectations())
        many = "" if len(expected) == 1 else " one of"
        return Unexpected(
            f'{PARSE_ERROR}Encountered "{met}" at line {line}, column {column}.\n'
            f"Was expecting{many}:\n    " + "".join(f"{IMAGES[kind]} ...\n    " for kind in expected)
        )

    def _expectations(self) -> Iterator[Kind]:
        yield from sorted(self._expected)
        yield from (kind for kind in self._expected_last if kind not in self._expected)


def _check_range(low: Expression, high: Expression) -> None:
    """Two constants after BETWEEN must be in order."""
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return
    if low.value is None or high.value is None:
        raise _runtime("Illegal values of between, values can not be null!")
    try:
        ordered = compare(high.value, low.value) >= 0
    except Incomparable as error:
        raise InvalidExpression(str(error)) from None
    if not ordered:
        left, right = _plain(low.value), _plain(high.value)
        raise _runtime(
            f"Illegal values of between, left value({left}) must less than or equal to right value({right})"
        )


def _plain(value: Value) -> str:
    """A constant without quotes."""
    return value if isinstance(value, str) else shown(value).lower() if type(value) is bool else shown(value)


def _literal(token: Token) -> str | int | float:
    if token.kind is Kind.TEXT:
        return _unquoted(token.text)
    if token.kind is Kind.DECIMAL:
        digits = token.text.rstrip("lL")
        number = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
        if number > LONG_MAX:
            raise InvalidExpression(f'java.lang.NumberFormatException: For input string: "{digits}"')
        return number
    value = float(token.text)
    if math.isinf(value):
        raise _runtime(f"{token.text} is greater than {shown_double(DOUBLE_MAX)}")
    if value == 0:
        raise _runtime(f"{token.text} is less than {shown_double(DOUBLE_MIN)}")
    return value


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _runtime(text: str) -> InvalidExpression:
    return InvalidExpression(f"java.lang.RuntimeException: {text}")
