"""The layout that a machine can check: which package imports which, length of files, what is documented where.

The table of imports is the one in docs/ARCHITECTURE.md (section *Packages*); nothing else states it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TOP = ("_native", "broker", "client", "spark_tools")
INTEGRATIONS = "client.integrations"
OF_DJANGO = ("apps", "models", "migrations.0001_initial")
"""Modules that Django prescribes."""
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
SMALL_LINES = 60
SMALL_MODULES_MAX = 68
ENTRY_POINTS = {
    "broker": {"__init__", "__main__", "cli"},
    "client": {"__init__", "blocking", "local_broker", "public", "pytest_plugin", "store"},
    "spark_tools": {"__init__", "commands", "pack", "sessions", "submit"},
}
"""Everything that the root of a package may contain."""
REPLICATION_FLOORS = (
    "log",
    "session",
    "tables",
    "wires",
    "wires.apache",
    "wires.firearrow",
    "failover",
    "controller",
)
"""The packages of broker/replication, lowest first; what is composed of them is in its root."""
BUILD_HANDLERS = ("broker.handlers.access_routes", "broker.handlers.broker_routes")
"""Modules of the handlers that import others of them."""
CLIENT_NATIVE = (
    "wire.",
    "base.",
    "protocol.",
    "store.log.record",
    "store.log.received_message",
    "store_checks.findings",
)
"""What of `_native` the client may import."""
READ_STORES = ("client.store", "client.cli.doctor.store_files", "client.cli.doctor.store_samples")
"""Modules of the client that also read a store's files; only Linux has them."""
WITH_SPARK = {"spark_tools.datasource", "spark_tools.jobs", "spark_tools.jobs.audit", "spark_tools"}
WITH_ARROW = WITH_SPARK | {
    "spark_tools.arrow",
    "spark_tools.lake",
    "spark_tools.tables",
    "client.cli.transfer",
}
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]*)|c?import[ \t]+(firearrow[\w.]*))",
    re.M,
)


def sources(*patterns: str) -> list[Path]:
    return sorted(path for top in TOP for pattern in patterns for path in (ROOT / top).rglob(pattern))


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


class Parsed(NamedTuple):
    """What the tests ask of a file's tree, which is large. `imports`: level and names of each."""

    docstring: str | None
    imports: list[tuple[int, list[str]]]
    functions: list[tuple[str, int]]


@cache
def parsed(path: Path) -> Parsed:
    tree = ast.parse(text_of(path))
    found = Parsed(ast.get_docstring(tree), [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.imports.append((0, [alias.name for alias in node.names]))
        elif isinstance(node, ast.ImportFrom):
            found.imports.append((node.level, [node.module or ""]))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            found.functions.append((node.name, node.end_lineno - node.lineno + 1))
    return found


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def packages() -> frozenset[str]:
    """The packages below `client.integrations` count as one: each has its own third party, and none imports another."""
    found = {module_of(path) for path in sources("__init__.py")}
    return frozenset(name for name in found if not name.startswith(f"{INTEGRATIONS}."))


@cache
def modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in sources("*.py", "*.pyx", "*.pxd"))


def package_of(module: str) -> str:
    if module.startswith(f"{INTEGRATIONS}."):
        return INTEGRATIONS
    return module if module in packages() else module.rpartition(".")[0]


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports or cimports, without the leading `firearrow.`."""
    for match in IMPORT.finditer(text_of(path)):
        origin = match[1] or match[3]
        if not origin.startswith("firearrow"):
            continue
        base = origin.removeprefix("firearrow").lstrip(".")
        if base in modules() and base not in packages():
            yield base
            continue
        for name in re.findall(r"\w+(?: as \w+)?", match[2] or ""):
            inner = f"{base}.{name.split()[0]}".lstrip(".")
            yield inner if inner in modules() else base


@cache
def edges() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sources("*.py", "*.pyx", "*.pxd"):
        found[module_of(path)] |= set(imported(path)) - {module_of(path)}
    return found


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """The modules that remain after all modules were removed that import no remaining one."""
    left = {node: set(targets) - {node} for node, targets in graph.items()}
    while True:
        free = {node for node in left if not left[node] & left.keys()}
        if not free:
            return sorted(left)
        left = {node: targets for node, targets in left.items() if node not in free}


@cache
def table_of_packages() -> str:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8")
    return text.partition("<!-- packages -->")[2].partition("<!-- /packages -->")[0]


@cache
def allowed() -> dict[str, set[str]]:
    """Package → what it may import, from docs/ARCHITECTURE.md; `x.*` is x and all packages in it."""
    table: dict[str, set[str]] = {}
    for name, targets in re.findall(r"^\| `([\w.]+)` \|[^|]*\| (.*) \|$", table_of_packages(), re.M):
        may: set[str] = {name}
        for target in re.findall(r"`([\w.]+(?:\.\*)?)`", targets):
            stem = target.removesuffix(".*")
            assert stem in packages(), f"docs/ARCHITECTURE.md: {name} → {target}: no such package"
            may |= (
                {stem} if stem == target else {p for p in packages() if p == stem or p.startswith(stem + ".")}
            )
        table[name] = may
    return table


def test_every_package_is_in_the_table() -> None:
    missing = packages() - allowed().keys()
    assert not missing, f"docs/ARCHITECTURE.md does not have {sorted(missing)}"
    assert not allowed().keys() - packages()


def test_imports_follow_the_table() -> None:
    wrong = [
        f"{module} imports {target}"
        for module, targets in edges().items()
        for target in targets
        if package_of(target) not in allowed()[package_of(module)]
    ]
    assert not wrong


def test_the_table_has_no_unused_import() -> None:
    used: dict[str, set[str]] = defaultdict(set)
    for module, targets in edges().items():
        used[package_of(module)] |= {package_of(target) for target in targets}
    for name, targets in re.findall(r"^\| `([\w.]+)` \|[^|]*\| (.*) \|$", table_of_packages(), re.M):
        for target in re.findall(r"`([\w.]+(?:\.\*)?)`", targets):
            stem = target.removesuffix(".*")
            hit = any(p == stem or (target != stem and p.startswith(stem + ".")) for p in used[name])
            assert hit, f"{name} does not import {target}"


def test_modules_have_no_cycle() -> None:
    assert not cycles(edges())


def test_folders_have_no_cycle() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for module, targets in edges().items():
        graph[package_of(module)] |= {package_of(target) for target in targets}
    assert not cycles(graph)


def test_replication_has_floors() -> None:
    """No area of replication is in a ring: each imports itself and lower floors only, and no wire another one."""
    floors = [f"broker.replication.{name}" for name in REPLICATION_FLOORS]
    wires = {name for name in floors if ".wires." in name}
    assert set(floors) == {name for name in packages() if name.startswith("broker.replication.")}
    for module, targets in edges().items():
        area = package_of(module)
        if area in floors:
            banned = {"broker.replication", *floors[floors.index(area) + 1 :]}
            banned |= wires - {area} if area in wires else set()
            wrong = [target for target in targets if package_of(target) in banned]
            assert not wrong, f"{module} imports {wrong}"


def test_replication_is_composed_not_inherited() -> None:
    """No class of replication is the base of another one: wires, sessions and rules meet protocols."""
    classes = [
        node
        for path in (ROOT / "broker" / "replication").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    names = {node.name for node in classes}
    for node in classes:
        assert not [base for base in node.bases if isinstance(base, ast.Name) and base.id in names], node.name


def test_roots_hold_entry_points_only() -> None:
    for top, names in ENTRY_POINTS.items():
        assert {path.stem for path in (ROOT / top).glob("*.py")} <= names
    assert {path.name for path in (ROOT / "_native").iterdir() if path.is_file()} <= {
        "__init__.py",
        "py.typed",
    }


def test_handlers_and_services_do_not_import_each_other() -> None:
    for module, targets in edges().items():
        package = package_of(module)
        if package in ("broker.handlers", "broker.services") and module not in BUILD_HANDLERS:
            assert not [target for target in targets if package_of(target) == package], module


def test_the_client_knows_brokers_only_by_the_wire() -> None:
    for module, targets in edges().items():
        if module.startswith("client.") and module not in READ_STORES:
            native = [target.removeprefix("_native.") for target in targets if target.startswith("_native.")]
            assert all(name.startswith(CLIENT_NATIVE) for name in native), f"{module}: {native}"


def import_faults(path: Path) -> Iterator[str]:
    package = package_of(module_of(path))
    for level, names in parsed(path).imports:
        if level:
            yield "a relative import"
        for name in names:
            first = name.partition(".")[0]
            if first in TOP:
                yield f"a bare import of {name}"
            spark = WITH_SPARK | {"spark_tools.discovery"}
            if (
                (first in ("pyspark", "py4j") and package not in spark)
                or (first == "pyarrow" and package not in WITH_ARROW)
                or (first == "rich" and package not in WITH_SPARK)
                or first in ("typer", "click")  # `_native.base.verbs` declares commands
                or (first in ("numpy", "pyarrow", "pyspark") and package.startswith("_native"))
            ):
                yield f"an import of {name}, which does not belong there"


def test_imports_are_absolute_and_optional_packages_stay_where_they_belong() -> None:
    assert not [f"{path}: {fault}" for path in sources("*.py") for fault in import_faults(path)]


# ---- sizes ----


def test_files_are_not_too_long() -> None:
    paths = sources("*.py", "*.pyx", "*.pxd", "*.h")
    lines = {path: len(text_of(path).splitlines()) for path in paths}
    assert not {path: count for path, count in lines.items() if count > FILE_LINES_MAX}


def test_few_modules_are_very_small() -> None:
    lines: dict[str, int] = defaultdict(int)
    for path in sources("*.py", "*.pyx", "*.pxd"):
        lines[module_of(path)] += len(text_of(path).splitlines())
    roots = {module_of(path) for path in sources("__init__.py")}
    roots |= {f"{INTEGRATIONS}.django.{name}" for name in OF_DJANGO}
    small = sorted(name for name, count in lines.items() if count < SMALL_LINES and name not in roots)
    assert len(small) <= SMALL_MODULES_MAX, f"{len(small)} modules under {SMALL_LINES} lines: {small}"


def test_functions_fit_a_screen() -> None:
    lengths = [(path, *function) for path in sources("*.py") for function in parsed(path).functions]
    assert not [each for each in lengths if each[2] > FUNCTION_LINES_MAX]


def test_cython_functions_fit_a_screen() -> None:
    for path in sources("*.pyx"):
        starts: list[tuple[int, int, str]] = []
        lines = text_of(path).splitlines()
        for number, line in enumerate(lines):
            match = re.match(r"(\s*)(?:def|cdef inline|cpdef|cdef) (?!class ).*\(.*", line)
            if match and (line.rstrip().endswith((":", "(", ","))):
                starts.append((number, len(match.group(1)), line.strip()))
        for number, indent, head in starts:
            end = number + 1
            while end < len(lines) and (
                not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > indent
            ):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            assert end - number <= FUNCTION_LINES_MAX, f"{path.name}: {head}: {end - number} lines"


# ---- stubs and docstrings ----


def test_every_cython_module_has_a_stub() -> None:
    for path in sources("*.pyx"):
        assert path.with_suffix(".pyi").exists(), f"{path} has no .pyi"


def test_no_native_return_needs_a_traceback() -> None:
    """If an `except` returns more than a constant, Cython creates a traceback, which needs memory."""
    left = re.compile(
        r"__Pyx_DECREF\(__pyx_t_\d+\)[^\n]*\n\s*goto __pyx_L\d+_except_(return|continue|break);"
    )
    made = [path.with_suffix(".c") for path in sources("*.pyx")]
    assert not [path.name for path in made if left.search(path.read_text("utf-8"))]


def test_every_module_has_a_docstring() -> None:
    for path in sources("*.py"):
        assert parsed(path).docstring, f"{path} has no docstring"


def test_every_package_lists_its_modules() -> None:
    """In the docstring of its `__init__.py`."""
    for name in sorted(packages()):
        folder = ROOT / name.replace(".", "/")
        text = parsed(folder / "__init__.py").docstring or ""
        stems = {path.stem for pattern in ("*.py", "*.pyx", "*.pxd") for path in folder.glob(pattern)}
        missing = sorted(stem for stem in stems - {"__init__"} if not re.search(rf"\b{stem}\b", text))
        assert not missing, f"{name}: {missing}"


def test_no_module_is_called_utils() -> None:
    banned = {"utils", "util", "helpers", "helper", "common", "misc", "impl", "manager"}
    assert not [path for path in sources("*.py", "*.pyx") if path.stem in banned]


def test_package_init_files_hold_no_code() -> None:
    """Except those whose names are loaded at first use."""
    lazy = {ROOT / folder / "__init__.py" for folder in ("client", "spark_tools", "spark_tools/names")}
    for path in set(sources("__init__.py")) - lazy:
        body = ast.parse(text_of(path)).body
        plain = (ast.Expr, ast.Import, ast.ImportFrom, ast.Assign)
        assert all(isinstance(node, plain) for node in body), path
