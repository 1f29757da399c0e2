"""The house rules that a machine can hold: who imports whom, how long files are, what stands beside what."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("_native", "broker", "client", "spark_tools")
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

BASICS = {
    "errors",
    "clock",
    "config",
    "options",
    "stats",
    "fastjson",
    "properties",
    "messageids",
    "disk_space",
}
ALLOWED: dict[str, set[str]] = {
    "__main__": {"cli"},
    "cli": {"app", "namesrv_app", "config", "options", "errors", "upkeep.commands", "upkeep"},
    "app": {"*"},
    "namesrv_app": {"*"},
    "nameserver": {"handlers", "tables", "peer", *BASICS},
    "server": {"dispatch", "peer", "listener", "crowding", *BASICS},
    "crowding": set(),
    "listener": set(),
    "disk_space": {"options"},
    "dispatch": {"peer", "errors"},
    "durable": {"peer", "services.saver"},
    "config": {"options", "properties"},
    "gates": {"*"},
    "living": {"*"},
    "opening": {"errors", "options"},
    "pops": {"*"},
    "parts": {"*"},
    "state": {"*"},
    "timing": {"*"},
    "messages": set(),
    "handlers": {"tables", "filters", "life", "messages", "peer", *BASICS},
    "life": {
        "tables",
        "filters",
        "life",
        "messages",
        "peer",
        *BASICS,
    },
    "filters": {"filters", "tables", "messages", *BASICS},
    "services": {"tables", "peer", "process", *BASICS},
    "upkeep": {"upkeep", "tables", "life.journal", "life.timers", "config", "options", "fastjson", "errors"},
    "tables": {"peer", "tables", "errors", "clock", "fastjson", "messageids"},
    "peer": set(),
}
"""Room or module of broker → what it may import of broker; nothing imports `app` but `cli`."""


def sources(*patterns: str) -> list[Path]:
    return sorted(path for room in ROOMS for pattern in patterns for path in (ROOT / room).rglob(pattern))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "broker").with_suffix("").parts
    return parts[0]


def allowed(room: str, wanted: str) -> bool:
    may = ALLOWED.get(room, set())
    return "*" in may or any(wanted == name or wanted.startswith(name + ".") for name in may)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "broker").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_broker_imports_follow_the_table(path: Path) -> None:
    own = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for name in imported(path):
        assert not name.startswith(("broker", "client", "_native", "spark_tools")), f"bare import of {name}"
        assert not name.startswith(("firearrow.client", "firearrow.spark_tools")), f"{own} imports {name}"
        if name.startswith("firearrow.broker."):
            wanted = name.removeprefix("firearrow.broker.")
            room = room_of(path)
            assert allowed(room, wanted), f"{own} may not import {wanted}"
            if room == "life":
                nearest = ".".join(own.split(".")[:3] if own.count(".") > 2 else ["broker.life.appender"])
                assert not wanted.startswith("life.") or wanted.startswith(
                    ("life.appender", "life.journal", nearest.removeprefix("broker."))
                ), f"{own} imports another of its room: {wanted}"
            if room in ("handlers", "services"):
                beside = wanted.startswith(room + ".")
                assert not beside, f"{own} imports another of its room: {wanted}"


CLIENT_BASICS = {"clock", "errors", "options", "names", "message", "hooks", "states", "compression"}
CLIENT_ROOMS: dict[str, set[str]] = {
    "link": set(),
    "group": {"link"},
    "inquiry": {"link", "group"},
    "handling": {"link", "group"},
    "pulling": {"link", "group", "handling"},
    "pop": {"link", "group", "handling"},
    "sending": {"link", "handling", "inquiry"},
    "tracing": {"link"},
    "threads": set(),
    "members": {"*"},
}
TAKES_AWAY = {"sending/republisher.py", "tracing/consume_tracing.py", "tracing/produce_tracing.py"}
"""Who needs a Producer of its own."""
CLIENT_NATIVE = ("wire.", "store.record", "store.received", "store.hash")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "client").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_client_imports_follow_the_table(path: Path) -> None:
    inner = path.relative_to(ROOT / "client")
    room = inner.parts[0] if len(inner.parts) > 1 else None
    for name in imported(path):
        assert not name.startswith(("firearrow.broker", "firearrow.spark_tools")), f"{inner} imports {name}"
        if name.startswith("firearrow._native."):
            assert name.removeprefix("firearrow._native.").startswith(CLIENT_NATIVE), (
                f"{inner} imports {name}"
            )
        if room is not None and name.startswith("firearrow.client."):
            wanted = name.split(".")[2]
            may = CLIENT_ROOMS[room] | CLIENT_BASICS | {room}
            known = "*" in may or wanted in may or (wanted == "producer" and inner.as_posix() in TAKES_AWAY)
            assert known, f"{inner} may not import {name}"


SPARK_SMALL = {"errors", "choice", "origin", "predicate", "provenance", "bodies", "room", "worker"}
"""What every room of the Spark tools may know."""
SPARK_ROOMS: dict[str, set[str]] = {
    "offline": set(),
    "live": set(),
    "columns": set(),
    "manifest": set(),
    "pack": set(),
    "submit": set(),
    "plan": {"offline", "live"},
    "audit": {"offline"},
    "message_columns": {"columns"},
    "parquet": {"columns", "manifest"},
    "placing": {"message_columns"},
    "outgoing": {"message_columns", "placing"},
    "datasource": {"plan", "live", "columns", "message_columns", "placing", "outgoing"},
    "sessions": {"datasource", "submit"},
    "discovery": {"datasource"},
    "__init__": {"sessions"},
    "commands": {"submit", "pack"},
    "jobs": {"*"},
}
WITH_SPARK = {"datasource", "sessions", "jobs"}
WITH_ARROW = WITH_SPARK | {"columns", "message_columns", "placing", "outgoing", "parquet"}
FILTERS = ("parser", "expressions", "tokens", "values")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "spark_tools").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_spark_imports_follow_the_table(path: Path) -> None:
    inner = path.relative_to(ROOT / "spark_tools")
    room = inner.parts[0] if len(inner.parts) > 1 else inner.stem
    may = SPARK_ROOMS.get(room, set()) | SPARK_SMALL | {room}
    for name in imported(path):
        if name.startswith("firearrow.spark_tools."):
            assert "*" in may or name.split(".")[2] in may, f"{inner} may not import {name}"
        if name.startswith("firearrow.broker."):
            assert room == "predicate", f"{inner} imports {name}"
            assert name.removeprefix("firearrow.broker.filters.").split(".")[0] in FILTERS, f"{name}"
        if name.split(".")[0] in ("pyspark", "py4j"):
            assert room in WITH_SPARK, f"{inner}: only {sorted(WITH_SPARK)} need a session"
        if name.split(".")[0] == "pyarrow":
            assert room in WITH_ARROW, f"{inner} may not import {name}"


def test_native_rooms_know_their_own_room_only() -> None:
    """And what is below them."""
    below = {"path": ("wire", "store"), "bulk": ("store",)}
    for path in sources("*.pyx", "*.pxd"):
        room = path.relative_to(ROOT / "_native").parts[0]
        for match in re.finditer(r"^\s*(?:from|import)\s+(firearrow[\w.]*)", path.read_text("utf-8"), re.M):
            wanted = match.group(1).removeprefix("firearrow._native.").split(".")[0]
            assert wanted == room or wanted in below.get(room, ()), f"{path}: {match.group(0)}"


NATIVE_PYTHON = {"files": ("files", "bulk", "store"), "audit": ("audit", "files", "bulk", "store")}


@pytest.mark.parametrize("room", NATIVE_PYTHON)
def test_python_rooms_of_native_know_what_is_below_them(room: str) -> None:
    for path in sorted((ROOT / "_native" / room).glob("*.py")):
        for name in imported(path):
            if name.startswith("firearrow."):
                assert name.startswith("firearrow._native."), f"{path} imports {name}"
                assert name.split(".")[2] in NATIVE_PYTHON[room], f"{path} imports {name}"
            assert name.split(".")[0] not in ("numpy", "pyarrow", "pyspark"), f"{path} imports {name}"


@pytest.mark.parametrize(
    "path", sources("*.py", "*.pyx", "*.pxd", "*.h"), ids=lambda p: str(p.relative_to(ROOT))
)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= FILE_LINES_MAX, f"{lines} lines: look for the second noun in it"


@pytest.mark.parametrize("path", sources("*.py"), ids=lambda p: str(p.relative_to(ROOT)))
def test_functions_fit_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name}: {length} lines"


def test_cython_functions_fit_a_screen() -> None:
    for path in sources("*.pyx"):
        starts: list[tuple[int, int, str]] = []
        lines = path.read_text("utf-8").splitlines()
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


def test_every_cython_module_has_its_types_beside_it() -> None:
    for path in sources("*.pyx"):
        assert path.with_suffix(".pyi").exists(), f"{path} has no .pyi"


def test_no_native_return_needs_a_traceback() -> None:
    """Where an `except` returns more than a constant, Cython lets go of a traceback; without memory there is none."""
    left = re.compile(
        r"__Pyx_DECREF\(__pyx_t_\d+\)[^\n]*\n\s*goto __pyx_L\d+_except_(return|continue|break);"
    )
    made = [path.with_suffix(".c") for path in sources("*.pyx")]
    assert not [path.name for path in made if left.search(path.read_text("utf-8"))]


def test_every_module_says_what_it_is() -> None:
    for path in sources("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), f"{path} has no docstring"


def test_no_room_is_called_utils() -> None:
    banned = {"utils", "util", "helpers", "helper", "common", "misc", "impl", "manager"}
    assert not [path for path in sources("*.py", "*.pyx") if path.stem in banned]


def test_package_init_files_hold_no_code() -> None:
    """But for the client's, whose names are loaded when they are asked for."""
    for path in sources("__init__.py"):
        if path == ROOT / "client" / "__init__.py":
            continue
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom | ast.Assign) for node in body), (
            path
        )


def test_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    missing = [
        str(path.relative_to(ROOT))
        for path in sources("*.py", "*.pyx")
        if path.stem not in ("__init__",) and not re.search(rf"\b{re.escape(path.stem)}\b", text)
    ]
    assert not missing
