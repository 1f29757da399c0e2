"""The API reference is complete: a page for each public module, and on it each exported name with a docstring."""

import inspect
import re
from pathlib import Path

import pytest

from tests.meta import api
from tests.meta.test_public_modules import PUBLIC


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    api.write(folder)
    return folder


def test_each_public_module_has_a_page() -> None:
    assert {"firearrow", *api.MODULES} == PUBLIC


@pytest.mark.parametrize("name", api.MODULES)
def test_a_page_has_each_exported_name(pages: Path, name: str) -> None:
    module = api.loaded(name)
    text = (pages / name.replace(".", "/")).with_suffix(".html").read_text("utf-8")
    assert (module.__doc__ or "").partition("\n")[0].split()[0] in text
    shown = set(re.findall(r'id="([\w.]+)"', text))
    for exported in module.__all__:
        assert exported in shown, exported
        assert inspect.getdoc(getattr(module, exported)), f"{name}.{exported} has no docstring"


def test_types_and_docstrings_are_on_the_page(pages: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (pages / "firearrow" / "client.html").read_text("utf-8"))
    assert "send_timeout_s: float" in text
    assert "One received message; fields are decoded on first use." in text
    assert "Timeout of a call with all its attempts." in text
