"""Documents and examples use public modules only, and only names that these export."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from tests.meta.test_links import ROOT, documents

PUBLIC = {
    "firearrow",
    "firearrow.client",
    "firearrow.client.blocking",
    "firearrow.client.integrations.django",
    "firearrow.client.integrations.dramatiq",
    "firearrow.client.integrations.fastapi",
    "firearrow.client.integrations.opentelemetry",
    "firearrow.client.integrations.outbox.django",
    "firearrow.client.integrations.outbox.sqlalchemy",
    "firearrow.client.integrations.taskiq",
    "firearrow.client.integrations.topic_names",
    "firearrow.client.integrations.kombu",
    "firearrow.client.integrations.faststream",
    "firearrow.client.integrations.faststream.fastapi",
    "firearrow.client.integrations.faststream.opentelemetry",
    "firearrow.client.integrations.faststream.prometheus",
    "firearrow.client.pytest_plugin",
    "firearrow.client.store",
    "firearrow.spark_tools",
}
IMPORT = re.compile(r"^ *(from firearrow[\w.]* import (?:\([^)]*\)|.*)|import firearrow.*)$", re.M)
DOTTED = re.compile(r"\bfirearrow\.(?:_native|broker|client|spark_tools)(?:\.\w+)*")
PAGES = [page for page in documents() if page.stem not in ("CONTRIBUTING", "ARCHITECTURE")]
"""Those for users; the others show how the code is built."""
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def imports() -> Iterator[tuple[str, str, str]]:
    """File, module and name of each import; the name is empty for `import module`."""
    for path in (*PAGES, *EXAMPLES):
        where = path.relative_to(ROOT).as_posix()
        for text in IMPORT.findall(path.read_text("utf-8")):
            for node in ast.parse(text.strip()).body:
                if isinstance(node, ast.ImportFrom):
                    yield from ((where, node.module or "", alias.name) for alias in node.names)
                elif isinstance(node, ast.Import):
                    yield from ((where, alias.name, "") for alias in node.names)


def test_documents_and_examples_import_from_public_modules() -> None:
    found = list(imports())
    assert len(found) > 50
    assert not [each for each in found if each[1] not in PUBLIC]


def test_documents_and_examples_name_public_modules() -> None:
    """Also in the text, as in `firearrow.client.blocking`."""
    for path in (*PAGES, *EXAMPLES):
        for name in DOTTED.findall(path.read_text("utf-8")):
            module, _, last = name.rpartition(".")
            is_exported = module in PUBLIC and last in exported(module)
            assert name in PUBLIC or is_exported, f"{path.relative_to(ROOT)} names {name}"


@pytest.mark.parametrize(("where", "module", "name"), sorted(set(imports())), ids=str)
def test_each_imported_name_is_exported(where: str, module: str, name: str) -> None:
    if name and module in PUBLIC:
        assert name in exported(module) or f"{module}.{name}" in PUBLIC


def exported(module: str) -> set[str]:
    if module == "firearrow":
        return {"client", "spark_tools"}
    found = import_module(module)
    names = getattr(found, "__all__", None)
    return set(names or (name for name in vars(found) if not name.startswith("_")))


@pytest.mark.parametrize("module", sorted(PUBLIC - {"firearrow"}))
def test_each_exported_name_is_there(module: str) -> None:
    for name in exported(module):
        assert getattr(import_module(module), name) is not None
    assert not hasattr(import_module(module), "no_such_name")


@pytest.mark.parametrize(
    ("module", "most"), [("firearrow.client", {"client"}), ("firearrow.spark_tools", {"sessions"})]
)
def test_a_root_loads_its_names_on_first_use(module: str, most: set[str]) -> None:
    program = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("firearrow.")}
    assert loaded <= {module, *(f"{module}.{name}" for name in most)}
    assert not {"pyspark", "numpy", "pyarrow", "typer", "asyncio"} & set(done.stdout.split())


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_dir_lists_public_names_only(module: str) -> None:
    """What `help` shows and shells complete: the exported names and public modules, and nothing that they import."""
    submodules = {name.rpartition(".")[2] for name in PUBLIC if name.rpartition(".")[0] == module}
    listed = set(dir(import_module(module)))
    assert set(import_module(module).__all__) <= listed
    assert listed - {"__version__"} <= set(import_module(module).__all__) | submodules
    for name in listed:
        assert getattr(import_module(module), name) is not None


LACKING = """
import pydoc, rlcompleter, sys
from importlib import import_module
for name in ("pyarrow", "pyspark", "polars", "duckdb", "numpy", "pytest"):
    sys.modules[name] = None
for last in ("", ".client", ".client.blocking", ".client.store", ".spark_tools"):
    name = "firearrow" + last
    text = pydoc.plain(pydoc.render_doc(import_module(name)))
    complete = rlcompleter.Completer({"firearrow": import_module("firearrow")}).complete
    print(name, "Producer" in text, *(complete(f"{name}.", at) for at in range(200)))
"""


def test_help_and_completion_work_without_the_extras() -> None:
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, check=True)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert lines["firearrow"][1:4] == ["firearrow.client", "firearrow.spark_tools", "None"]
    assert lines["firearrow.client"][0] == lines["firearrow.client.blocking"][0] == "True"
    assert "firearrow.client.Producer(" in lines["firearrow.client"]
    assert "firearrow.client.blocking" in lines["firearrow.client"]
    assert not [
        name for words in lines.values() for name in words if "._" in name and "__version__" not in name
    ]


def test_a_root_without_a_name_says_so() -> None:
    with pytest.raises(AttributeError, match=r"'firearrow\.spark_tools' has no attribute 'cluster_of'"):
        import_module("firearrow.spark_tools").cluster_of  # noqa: B018
