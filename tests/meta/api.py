"""The API reference, one page for each public module, from its docstrings: `python -m tests.meta.api [FOLDER]`.

pdoc writes HTML to FOLDER, by default `build/api`; open `index.html`.
"""

import sys
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pdoc
import pdoc.render

FOLDER = Path(__file__).resolve().parents[2] / "build" / "api"
MODULES = (
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
)
"""All that programs import."""


def loaded(name: str) -> ModuleType:
    """The module with all its names, which it otherwise loads on first use; pdoc looks for them in its `vars`."""
    module = import_module(name)
    for exported in getattr(module, "__all__", ()):
        setattr(module, exported, getattr(module, exported))
    if hasattr(module, "__all__"):
        module.__all__ = list(module.__all__)
    return module


def write(folder: Path) -> None:
    for name in MODULES:
        loaded(name)
    pdoc.render.configure(show_source=False, footer_text=f"FireArrow {version('firearrow')}")
    with warnings.catch_warnings():
        # PySpark's listener and FastStream have types that their modules only import for type checkers
        found = r"firearrow\.(spark_tools\.GroupFollows|client\.integrations\.faststream)"
        warnings.filterwarnings("ignore", f"Error parsing type annotation .* for {found}")
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
