"""Every link of every document leads to a file or a heading, and every document that the code names is there."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?<![\w/.-])((?:[\w-]+/)*[\w-]+\.md)\b")
"""A document that a text names without a link: `docs/OPTIONS.md`, from the root or from the folder of the text."""
TEXTS = {".py", ".pyx", ".pxd", ".pyi", ".h", ".c", ".sh", ".toml", ".yaml", ".yml", ".conf", ".txt", ".in"}


@cache
def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def documents() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".md"]


def without_code(text: str) -> str:
    """Of a document: blocks and spans of code have no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *(```+).*?^ *\1", "", text, flags=re.M | re.S))


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub generates them."""
    text = re.sub(r"^ *(```+).*?^ *\1", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]*)\)", without_code(page.read_text("utf-8"))):
        target, _, heading = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link}: no such file"
        assert file.is_relative_to(ROOT), f"{link} leaves the repository"
        assert not heading or heading in anchors(file), f"{link}: no such heading"


def test_documents_link_by_paths_that_git_has() -> None:
    """A link to a file that only this machine has is broken for others."""
    known = {*tracked(), *(parent for path in tracked() for parent in path.parents)}
    for page in documents():
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", without_code(page.read_text("utf-8"))):
            assert (page.parent / target).resolve() in known, f"{page.relative_to(ROOT)}: {target}"


def test_texts_name_documents_by_their_path() -> None:
    """Comments, docstrings, messages and settings: from the root, or a document beside the code."""
    for path in tracked():
        if path.suffix in TEXTS:
            for name in NAMED.findall(re.sub(r"\[[^\]]*\]\([^)]*\)", "", path.read_text("utf-8"))):
                beside = name.endswith("README.md") and any(path.parent.glob(f"**/{name}"))
                assert (ROOT / name).is_file() or beside, f"{path.relative_to(ROOT)} names {name}"


def test_the_root_has_five_documents_and_the_index_has_all_others() -> None:
    root = {path.name for path in documents() if path.parent == ROOT}
    assert root == {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
    assert (ROOT / "LICENSE").is_file()
    index = ROOT / "docs" / "README.md"
    listed = set(re.findall(r"\]\(([A-Z_]+\.md)", index.read_text("utf-8")))
    assert listed | {"README.md"} == {path.name for path in documents() if path.parent == index.parent}


PATHS = re.compile(r"`((?:_native|bench|broker|client|docs|examples|packaging|spark_tools|tests)/[\w./-]*)`")


@pytest.mark.parametrize("page", documents(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_of_the_source_are_there(page: Path) -> None:
    """As `broker/net/dispatch`: a file, a folder, or a module without its ending; also with the name of a constant."""
    for name in PATHS.findall(page.read_text("utf-8")):
        path = ROOT / re.sub(r"\.[A-Z]\w+$", "", name)
        assert path.exists() or any(path.parent.glob(f"{path.name}.*")), f"{name}: no such file"
