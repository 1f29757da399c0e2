"""Attributes are born in `__init__`: who reads it, or the class body, knows all that an object has.

One that another method is the first to assign exists on some objects only, and no type shows that it is read too early.
Fields of dataclasses, named tuples and Protocols count, and what base classes have; compiled ones by their stubs.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.meta.test_layout import ROOT, sources

CONSTRUCTORS = ("__init__", "__new__", "__post_init__")
WITH_FIELDS = {"dataclass", "NamedTuple", "Protocol"}
Method = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def methods(of: ast.ClassDef) -> list[Method]:
    return [node for node in of.body if isinstance(node, Method)]


def assigned(method: Method) -> dict[str, int]:
    """The attributes of its first argument that a method assigns, each with a line."""
    arguments = [*method.args.posonlyargs, *method.args.args]
    return {
        node.attr: node.lineno
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and arguments
        and node.value.id == arguments[0].arg
    }


def found(name: str, path: Path) -> tuple[ast.ClassDef, Path] | None:
    """The class of this name in a module, or where that imports it from; None: it is not of ours."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, path
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("firearrow."):
            origin = next((each.name for each in node.names if (each.asname or each.name) == name), None)
            module = ROOT.joinpath(*(node.module or "").split(".")[1:])
            if origin is not None:
                return found(origin, next(p for p in map(module.with_suffix, (".py", ".pyi")) if p.exists()))
    return None


def born(of: ast.ClassDef, path: Path) -> set[str]:
    """What each object of the class has once it is made."""
    attributes = {method.name for method in methods(of)}
    has_fields = path.suffix == ".pyi" or bool(
        WITH_FIELDS & set().union(*map(names, [*of.decorator_list, *of.bases]))
    )
    for node in of.body:
        if isinstance(node, ast.Assign) or (
            isinstance(node, ast.AnnAssign) and (has_fields or node.value is not None)
        ):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                attributes |= names(target)
    for method in methods(of):
        if method.name in CONSTRUCTORS:
            attributes |= assigned(method).keys()
    for base in of.bases:
        known = found(ast.unparse(base).partition("[")[0], path)
        if known is not None:
            attributes |= born(*known)
    return attributes


def born_late(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            attributes = born(node, path)
            for method in methods(node):
                for name, line in assigned(method).items():
                    if name not in attributes:
                        yield f"{path.name}:{line}: {node.name}.{name} is born in {method.name}"


def test_attributes_are_born_in_the_constructor() -> None:
    assert not [late for path in sources("*.py") for late in born_late(path)]


def test_an_attribute_that_is_born_late_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from firearrow.broker.services.timers import Periodic\n"
        "class Base:\n"
        "    kind = 'base'\n"
        "    later: int\n"
        "    def __init__(self): self.one = self.two = 1\n"
        "class Derived(Base, Periodic):\n"
        "    @property\n"
        "    def three(self): return 3\n"
        "    def start(self):\n"
        "        self.kind, self.one, self._timers = 'derived', 2, {}\n"
        "        self.two += 1\n"
        "        for self.four in (): pass\n"
        "        with self.one as self.five: self.later = 1\n"
    )
    late = ["12: Derived.four", "13: Derived.five", "13: Derived.later"]
    assert list(born_late(path)) == [f"module.py:{each} is born in start" for each in late]
