"""Which code runs beside the loop thread, and how it reads what the loop changes: the tables of docs/ARCHITECTURE.md.

The first table lists each function that another thread calls, with all attributes that it uses; the second says how
each of these may be used. What the source has and the tables have not is an error, and so the other way round.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
STARTS = re.compile(
    r"\b(?:Thread\(|ServiceThread\(|ThreadPoolExecutor\(|to_thread\(|run_in_executor\(|run_in_writer\(|in_thread\()"
)
RULES = ("copied", "replaced", "locked", "number", "own", "fixed")
WALK = (
    r"(?:for\s[^:\]\)]*?\sin|sorted\(|reversed\(|enumerate\(|sum\(|any\(|all\(|max\(|min\()\s*(?:\w+\.)+{0}"
)
WALK += r"(?:\.(?:values|items|keys)\(\))?(?=[\s:\]\)\}},]|$)|(?:list|dict|set|tuple|sorted)\((?:\w+\.)+{0}\.items\(\)"


class Row(NamedTuple):
    path: str
    function: str
    attributes: frozenset[str]


def table(name: str) -> list[list[str]]:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8")
    rows = text.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].strip().splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def rows() -> list[Row]:
    return [
        Row(names(path)[0], function, frozenset(names(attributes)))
        for path, functions, attributes in table("functions of other threads")
        for function in names(functions)
    ]


@cache
def rules() -> dict[str, str]:
    """Attribute → its rule."""
    return {
        name: names(rule)[0] for rule, attributes, _ in table("shared state") for name in names(attributes)
    }


@cache
def body(path: str, function: str) -> str:
    """The source of a function: the lines after its head that are indented more."""
    lines = (ROOT / path).read_text("utf-8").splitlines()
    _, _, name = function.rpartition(".")
    owner = function.rpartition(".")[0]
    start = 0
    if owner:
        start = next(n for n, line in enumerate(lines) if re.match(rf"\s*(?:cdef )?class {owner}\b", line))
    head = re.compile(rf"(\s*)(?:async )?(?:def|cdef|cpdef) [^=]*?\b{name}\(")
    at = next(n for n in range(start, len(lines)) if head.match(lines[n]))
    indent = len(lines[at]) - len(lines[at].lstrip())
    found = [lines[at]]
    for line in lines[at + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= indent and not re.match(r"\s*\)", line):
            break
        found.append(line.partition("  #")[0])
    return re.sub(r'"""[\s\S]*?"""', "", "\n".join(found))


def used(text: str) -> frozenset[str]:
    """Attributes that are no calls of methods: of `self`, and of the objects that these names stand for."""
    return frozenset(re.findall(r"\b(?:self|dispatch|files|context)\.(\w+)\b(?!\()", text))


def modules_with_threads() -> Iterator[str]:
    for folder in ("broker", "_native"):
        for pattern in ("*.py", "*.pyx"):
            for path in (ROOT / folder).rglob(pattern):
                if STARTS.search(path.read_text("utf-8")):
                    yield str(path.relative_to(ROOT))


def test_every_module_that_starts_threads_is_listed() -> None:
    listed = {name for *_, modules in table("threads") for name in names(modules)}
    assert listed == set(modules_with_threads())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.path}:{row.function}")
def test_a_function_of_another_thread_uses_what_the_table_has(row: Row) -> None:
    found = used(body(row.path, row.function))
    assert found <= row.attributes, f"not listed: {sorted(found - row.attributes)}"
    for name in found & {name for name, rule in rules().items() if rule == "copied"}:
        walked = re.search(WALK.format(name), body(row.path, row.function))
        assert walked is None, (
            f"{walked[0] if walked else ''}: copy it first, the loop may change it meanwhile"
        )


def test_the_tables_have_nothing_else() -> None:
    listed: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for row in rows():
        listed.setdefault(row.path, set()).update(row.attributes)
        found.setdefault(row.path, set()).update(used(body(row.path, row.function)))
    assert listed == found
    assert set(rules()) == set().union(*listed.values())
    assert set(rules().values()) <= set(RULES)


def test_a_walk_without_a_copy_is_found() -> None:
    for text in (
        "sum(queue.end > 0 for queue in dispatch.queues.values())",
        "for file in self.queues:",
        "[x for x, y in self.queues.items() if y]",
        "list(self.queues.items())",
        "sorted(self.queues)",
    ):
        assert re.search(WALK.format("queues"), text), text
    for text in ("list(self.queues.values())", "for file in self.queues[:]:", "self.queues.copy().items()"):
        assert not re.search(WALK.format("queues"), text), text
