"""Whether a regular expression can take more than linear time, and every expression of the code.

The engine backtracks: it is linear where no text can be matched in two ways that go on alike. The expression becomes
an automaton whose states are its characters (Glushkov). It grows if there are states p and q and one text that leads
from p to p, from p to q and from q to q (Weber and Seidl: ambiguity that grows with the text), or an edge that two
repeats make (`(a+)+`). A search also tries each start: it is a repeat of every character before the expression.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

SHORT = 64
"""Repeats of at most so many characters are a constant factor."""
OTHERS = "aZ5_ \t\n-.é漢١\0"
"""Characters of each category, beside those of the expression and their neighbours."""
SEARCHING = ("search", "sub", "subn", "split", "findall", "finditer")
METHODS = (*SEARCHING, "match", "fullmatch")


@dataclass
class Part:
    """States that may begin and end a part, and whether it may be empty."""

    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    empty: bool = True


class Automaton:
    def __init__(self, pattern: str | bytes, flags: int = 0, *, searches: bool = False) -> None:
        tree = parser.parse(pattern, flags)
        self._flags = tree.state.flags
        self._alphabet = sorted(_characters(tree, isinstance(pattern, bytes)))
        self.takes: list[frozenset[str]] = []
        self.follows: dict[int, set[int]] = {}
        self.twice = False
        self._anchored = False
        self._searches = searches
        self._start, self._last = -1, set[int]()
        whole = self._sequence(tree)
        if searches and not self._anchored:
            self._start = self._state(frozenset(self._alphabet))
            self._connect({self._start}, {self._start} | whole.first)
            self._last = whole.last

    def grows(self) -> bool:
        if self.twice:
            return True
        loops = [state for state in self.follows if state in self._reached({state})]
        return any(
            self._pumps(p, q)
            for p, q in product(loops, loops)
            if p != q and q in self._reached({p}) and not (p == self._start and self._may_end(q))
        )

    def _may_end(self, state: int) -> bool:
        """Whether the expression may end in a loop with this state: then a search that got there has succeeded."""
        return any(state in self._reached({last}) for last in self._reached({state}) & self._last)

    def _pumps(self, p: int, q: int) -> bool:
        """Whether some text leads p → p, p → q and q → q."""
        seen, waiting = {(p, p, q)}, [(p, p, q)]
        while waiting:
            for following in product(*(self.follows[state] for state in waiting.pop())):
                if following not in seen and frozenset.intersection(
                    *(self.takes[each] for each in following)
                ):
                    if following == (p, q, q):
                        return True
                    seen.add(following)  # type: ignore[arg-type]
                    waiting.append(following)  # type: ignore[arg-type]
        return False

    def _reached(self, states: set[int]) -> set[int]:
        seen: set[int] = set()
        waiting = list(states)
        while waiting:
            fresh = self.follows[waiting.pop()] - seen
            seen |= fresh
            waiting += fresh
        return seen

    # ---- from the tree to states ----

    def _sequence(self, items: Any) -> Part:  # noqa: ANN401 (sre's tree has no types)
        whole = Part()
        for code, argument in items:
            part = self._part(code, argument)
            self._connect(whole.last, part.first)
            whole.first |= part.first if whole.empty else set()
            whole.last = whole.last | part.last if part.empty else part.last
            whole.empty = whole.empty and part.empty
        return whole

    def _part(self, code: Any, argument: Any) -> Part:  # noqa: ANN401
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            low, high, items = argument
            part = self._sequence(items)
            if high > SHORT:
                self._connect(part.last, part.first)
            part.empty = part.empty or low == 0
            return part
        if code is codes.SUBPATTERN:
            return self._sequence(argument[-1])
        if code is codes.ATOMIC_GROUP:
            return self._sequence(argument)
        if code is codes.BRANCH:
            parts = [self._sequence(branch) for branch in argument[1]]
            return Part(
                set().union(*(part.first for part in parts)),
                set().union(*(part.last for part in parts)),
                any(part.empty for part in parts),
            )
        if code in (codes.ASSERT, codes.ASSERT_NOT):  # read beside what follows
            return Part(self._sequence(argument[1]).first, set(), True)
        if code is codes.AT:
            return self._place(argument)
        state = self._state(frozenset(each for each in self._alphabet if self._takes(code, argument, each)))
        return Part({state}, {state}, False)

    def _place(self, argument: Any) -> Part:  # noqa: ANN401
        """A place in the text. The end is a state that takes nothing: the expression does not end before."""
        if argument in (codes.AT_END, codes.AT_END_STRING):
            state = self._state(frozenset())
            return Part({state}, {state}, False)
        if argument is codes.AT_BEGINNING_STRING or (
            argument is codes.AT_BEGINNING and not self._flags & re.MULTILINE
        ):
            self._anchored = True
        elif argument is codes.AT_BEGINNING and self._searches:  # a search begins after a line break
            state = self._state(frozenset("\n"))
            return Part({state}, {state}, False)
        return Part()

    def _state(self, takes: frozenset[str]) -> int:
        self.takes.append(takes)
        self.follows[len(self.takes) - 1] = set()
        return len(self.takes) - 1

    def _connect(self, before: set[int], after: set[int]) -> None:
        for state in before:
            self.twice = self.twice or any(each in self.follows[state] and self.takes[each] for each in after)
            self.follows[state] |= after

    def _takes(self, code: Any, argument: Any, letter: str) -> bool:  # noqa: ANN401
        if self._flags & re.IGNORECASE and letter.swapcase() != letter:
            return self._takes_exactly(code, argument, letter) or self._takes_exactly(
                code, argument, letter.swapcase()
            )
        return self._takes_exactly(code, argument, letter)

    def _takes_exactly(self, code: Any, argument: Any, letter: str) -> bool:  # noqa: ANN401
        if code is codes.LITERAL:
            return ord(letter) == argument
        if code is codes.NOT_LITERAL:
            return ord(letter) != argument
        if code is codes.ANY:
            return letter != "\n" or bool(self._flags & re.DOTALL)
        if code is codes.RANGE:
            return argument[0] <= ord(letter) <= argument[1]
        if code is codes.CATEGORY:
            kind = str(argument).removeprefix("CATEGORY_").removeprefix("NOT_").lower()
            flags = re.ASCII if self._flags & re.ASCII or not self._flags & re.UNICODE else re.UNICODE
            found = re.match({"digit": r"\d", "space": r"\s", "word": r"\w"}[kind], letter, flags)
            return bool(found) is not str(argument).startswith("CATEGORY_NOT")
        if code is codes.IN:
            negated = argument[0][0] is codes.NEGATE
            return any(self._takes_exactly(*item, letter) for item in argument[negated:]) is not negated
        raise NotImplementedError(f"{code} in a regular expression")


def _characters(tree: Any, of_bytes: bool) -> Iterator[str]:  # noqa: ANN401
    """One of each kind that the expression tells apart, or more."""
    points = {ord(letter) for letter in OTHERS}

    def visit(item: Any) -> None:  # noqa: ANN401
        if isinstance(item, int) and not isinstance(item, bool):
            points.update(point for point in (item - 1, item, item + 1))
        elif isinstance(item, (list, tuple, parser.SubPattern)):
            for each in item:
                visit(each)

    visit(tree)
    return (chr(point) for point in points if 0 <= point < (256 if of_bytes else 0x110000))


class Found(NamedTuple):
    """An expression of the code. `pattern` None: it is not a constant."""

    file: str
    line: int
    pattern: str | bytes | None
    flags: int
    searches: bool


def expressions(root: Path, folders: tuple[str, ...]) -> Iterator[Found]:
    """Of every `re.` call in Python and Cython files. A compiled one searches if some method of its name does."""
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py*"))]
    texts = {path: path.read_text() for path in files if path.suffix in (".py", ".pyx")}
    called = {
        name
        for text in texts.values()
        for name, method in re.findall(r"(?<![\w.])(\w{1,64})\.(\w{1,64})\(", text)
        if method in SEARCHING
    }
    for path, text in texts.items():
        for line, call, name in _calls(path, text):
            pattern, flags = _constant(call)
            searches = call.func.attr in SEARCHING if name is None else name in called  # type: ignore[attr-defined]
            yield Found(str(path.relative_to(root)), line, pattern, flags, searches)


def _calls(path: Path, text: str) -> Iterator[tuple[int, ast.Call, str | None]]:
    """Calls of the module `re` with the name that a compiled expression gets. Of Cython only whole lines are read."""
    if path.suffix == ".pyx":
        pieces = [
            (number, line)
            for number, line in enumerate(text.splitlines(), 1)
            if re.search(r"\bre\.\w{1,20}\(", line)
        ]
    else:
        pieces = [(1, text)] if re.search(r"\bre\.\w{1,20}\(", text) else []
    for first, piece in pieces:
        tree = ast.parse(piece.strip() if first > 1 else piece)
        names = {
            node.value: node.targets[0].id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in (*METHODS, "compile")
            ):
                yield (
                    first + node.lineno - 1,
                    node,
                    names.get(node, "") if node.func.attr == "compile" else None,
                )


def _constant(call: ast.Call) -> tuple[str | bytes | None, int]:
    pattern = call.args[0]
    flags = 0
    for node in [
        each
        for argument in (*call.args[1:], *(word.value for word in call.keywords))
        for each in ast.walk(argument)
    ]:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re":
            flags |= getattr(re, node.attr)
    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str | bytes):
        return pattern.value, flags
    return None, flags
