"""The .pyi files, which the build makes from the .pyx (packaging/stubs.py), agree with the compiled modules."""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging"))

from stubs import StubError, stub_of  # noqa: E402 - found by the line before

STUBS = sorted((ROOT / "_native").rglob("*.pyi"))
ONLY_TYPES = ("Protocol", "TypeVar", "NamedTuple", "TypeAlias")

SOURCE = '''"""A module."""
# type: Queue = tuple[str, int]
# type: class Peer(Protocol):
# type:     def close(self) -> None: ...

LIMIT = 1 << 20  # type: int
"""Bytes at most."""


cdef class Base:
    cdef readonly int64_t size  # In bytes.
    cdef public object loop  # type: asyncio.AbstractEventLoop
    cdef public dict hidden

    # type: extra: int
    def __init__(self, int64_t size, *, loop):
        # type: (int, asyncio.AbstractEventLoop) -> None
        self.size = size

    cpdef bytes take(self, Py_ssize_t at, str name=None):
        # type: (...) -> bytes | None
        """The bytes."""

    def put(
        self,
        peer,  # type: Peer
        bint waits=True,
        *others,
    ):
        # type: (Peer, bool, *Queue) -> Iterator[Queue]
        pass

    def unseen(self, thing):
        pass

    async def settled(self):
        # type: (...) -> None
        pass
'''
STUB = '''# Made from the .pyx beside it; see packaging/stubs.py.
"""A module."""
from collections.abc import Iterator
from typing import Protocol
import asyncio

Queue = tuple[str, int]
class Peer(Protocol):
    def close(self) -> None: ...

LIMIT: int
"""Bytes at most."""
class Base:
    extra: int
    @property
    def size(self) -> int:
        """In bytes."""
    loop: asyncio.AbstractEventLoop
    def __init__(self, size: int, *, loop: asyncio.AbstractEventLoop) -> None: ...
    def take(self, at: int, name: str | None = None) -> bytes | None:
        """The bytes."""
    def put(self, peer: Peer, waits: bool = True, *others: Queue) -> Iterator[Queue]: ...
    async def settled(self) -> None: ...
'''


def stub_from(folder: Path, source: str) -> str:
    path = folder / "_native" / "module.pyx"
    path.parent.mkdir(exist_ok=True)
    path.write_text(source, "utf-8")
    return stub_of(path, folder)


def test_a_stub_has_what_type_comments_and_c_types_say(tmp_path: Path) -> None:
    assert stub_from(tmp_path, SOURCE) == STUB


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(a, b):\n    # type: (int) -> int\n    pass\n", "module.pyx:1: the type of b is missing"),
        ("def f(list a):\n    # type: (...) -> int\n    pass\n", "module.pyx:1: the type of a is missing"),
        (
            "def f():\n    # type: (...) -> Absent\n    pass\n",
            "Absent is not imported here, and defined in no module",
        ),
    ],
)
def test_a_type_that_is_missing_fails_the_build(tmp_path: Path, source: str, reason: str) -> None:
    with pytest.raises(StubError, match=reason):
        stub_from(tmp_path, source)


def test_every_module_has_the_stub_of_today() -> None:
    modules = sorted((ROOT / "_native").rglob("*.pyx"))
    assert [path.with_suffix("") for path in modules] == [path.with_suffix("") for path in STUBS]
    old = [
        path.name for path in modules if stub_of(path, ROOT) != path.with_suffix(".pyi").read_text("utf-8")
    ]
    assert not old, f"python setup.py build_ext --inplace makes {old} again"


def is_only_for_types(node: ast.stmt) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(isinstance(base, ast.Name) and base.id in ONLY_TYPES for base in node.bases)
    return not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign)


def functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Without properties, and without methods of slots, of which Python knows no parameters."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            names = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
            if "property" not in names and not any(
                isinstance(each, ast.Attribute) for each in node.decorator_list
            ):
                yield node


def shown(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, str, bool]]:
    """Name, kind and whether there is a default, of each parameter but self."""
    program = f"def {node.name}({ast.unparse(ast.fix_missing_locations(without_types(node.args)))}): ..."
    scope: dict[str, object] = {}
    exec(program, scope)
    return parameters(scope[node.name])


def without_types(arguments: ast.arguments) -> ast.arguments:
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    for defaults in (arguments.defaults, arguments.kw_defaults):
        defaults[:] = [each and ast.Constant(...) for each in defaults]
    return arguments


def parameters(function: object) -> list[tuple[str, str, bool]]:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return [
        (each.name, each.kind.name, each.default is not each.empty)
        for each in found
        if each.name not in ("self", "cls")
    ]


@pytest.mark.parametrize("path", STUBS, ids=lambda path: str(path.relative_to(ROOT / "_native")))
def test_a_stub_agrees_with_its_module(path: Path) -> None:
    """Each name that it declares is there, with these parameters."""
    name = "firearrow." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    module = importlib.import_module(name)
    body = [node for node in ast.parse(path.read_text("utf-8")).body if not is_only_for_types(node)]
    for function in functions(body):
        assert parameters(getattr(module, function.name)) == shown(function), function.name
    for node in body:
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            assert hasattr(module, node.target.id), node.target.id
        if isinstance(node, ast.ClassDef):
            found = getattr(module, node.name)
            for function in functions(node.body):
                assert parameters(getattr(found, function.name)) == shown(function), (
                    f"{node.name}.{function.name}"
                )
            for member in node.body:
                if (
                    isinstance(member, ast.FunctionDef) and member.name != "__buffer__"
                ):  # known since Python 3.12
                    assert hasattr(found, member.name), f"{node.name}.{member.name}"
