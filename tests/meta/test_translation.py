"""Which modules the build translates again after a change, and which C files change thereby (packaging/translation.py).

The files are those of this tree, changed in memory; nothing is compiled.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging"))

import translation as module  # noqa: E402 - found by the line before
from translation import Translation, declarations, headers  # noqa: E402

SETTINGS = "as in this test"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, all of them translated."""
    root = tmp_path_factory.mktemp("tree")
    kept = shutil.ignore_patterns("*.c", "*.so", "*.py", "__pycache__")
    shutil.copytree(ROOT / "_native", root / "_native", ignore=kept)
    translate(root, modules(root), SETTINGS)
    return root


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """A build reads each file once."""
    yield
    forget()


def forget() -> None:
    for read in (module.text_of, module.cimported, module.statements):
        read.cache_clear()


def modules(root: Path) -> list[Path]:
    return sorted((root / "_native").rglob("*.pyx"))


def translate(root: Path, paths: list[Path], settings: str, of: str = "") -> None:
    """What Cython would write: here the text of the .pyx, without comments, and `of`."""

    def cython() -> None:
        for path in paths:
            lines = path.read_text("utf-8").splitlines()
            kept = "\n".join(line for line in lines if not line.startswith("#"))
            path.with_suffix(".c").write_text(f"{kept}\n{of}\n", "utf-8")

    Translation(root, settings).run(paths, cython)


def stale_after(root: Path, name: str, old: str, new: str, settings: str = SETTINGS) -> set[str]:
    """The modules that a change of one file makes stale; the file is as before then."""
    path = root / "_native" / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    forget()
    try:
        return {
            str(each.relative_to(root / "_native"))
            for each in Translation(root, settings).stale(modules(root))
        }
    finally:
        path.write_text(text, "utf-8")
        forget()


def test_nothing_is_stale_without_a_change_whatever_the_times(tree: Path) -> None:
    (tree / "_native/base/endian.pxd").touch()
    (tree / "_native/wire/poller.pyx").touch()
    assert not Translation(tree, SETTINGS).stale(modules(tree))


def test_a_module_is_stale_after_any_change_of_its_own(tree: Path) -> None:
    """Also of a comment: tracebacks name lines."""
    assert stale_after(tree, "wire/frame.pyx", "\n\n", "\n# a comment\n\n") == {"wire/frame.pyx"}


def test_a_function_counts_for_those_that_name_it(tree: Path) -> None:
    name = "base/endian.pxd"
    head = "cdef inline int16_t get_i16("
    assert not stale_after(
        tree, name, head, "cdef inline int16_t fresh(int16_t at) noexcept nogil:\n    return at\n\n\n" + head
    )
    assert not stale_after(tree, name, head, "# A comment.\n" + head)
    users = {
        str(path.relative_to(tree / "_native"))
        for path in modules(tree)
        if any(
            "get_i16" in each.read_text("utf-8")
            for each in [path, *declarations(path, tree)]
            if each.stem != "endian"
        )
    }
    changed = stale_after(
        tree, name, "return <int16_t> fa_swap16(raw)", "return <int16_t> fa_swap16(raw + 1)"
    )
    assert changed == users
    assert 0 < len(changed) < 20


def test_a_class_counts_for_all_that_cimport_its_file(tree: Path) -> None:
    changed = stale_after(tree, "wire/buffer_pool.pxd", "cdef list buffers", "cdef list kept")
    assert {"wire/buffer_pool.pyx", "wire/connection.pyx", "fastpath/fast_connection.pyx"} <= changed
    assert "store/log/commit_log.pyx" not in changed


def test_settings_make_all_stale(tree: Path) -> None:
    assert len(Translation(tree, "with bounds checks").stale(modules(tree))) == len(modules(tree))


def test_a_c_file_that_stays_the_same_keeps_its_time(tree: Path) -> None:
    one, other = (tree / "_native" / name for name in ("wire/frame.pyx", "wire/header.pyx"))
    before = {path: path.with_suffix(".c").stat().st_mtime_ns for path in (one, other)}
    translate(tree, [one], SETTINGS)
    translate(tree, [other], SETTINGS, of="/* another */")
    assert one.with_suffix(".c").stat().st_mtime_ns == before[one]
    assert other.with_suffix(".c").stat().st_mtime_ns > before[other]
    translate(tree, [one], "with bounds checks")
    assert one.with_suffix(".c").stat().st_mtime_ns > before[one]
    translate(tree, [one, other], SETTINGS)


def test_headers_are_found_through_declarations(tree: Path) -> None:
    found = {path.name for path in headers(tree / "_native/store/log/record.pyx", tree)}
    assert {"platform.h", "crc32.h"} <= found
    everything = {path for module in modules(tree) for path in headers(module, tree)}
    assert everything
    assert all(path.exists() for path in everything)


def test_declarations_are_those_that_cython_finds() -> None:
    from Cython.Build.Dependencies import create_dependency_tree  # noqa: PLC0415 - takes a second
    from Cython.Compiler.Main import Context  # noqa: PLC0415
    from Cython.Compiler.Options import CompilationOptions  # noqa: PLC0415

    shape = ROOT / "build" / "shape"
    finder = create_dependency_tree(
        Context.from_options(CompilationOptions(include_path=[str(shape)])), quiet=True
    )
    for name in ("fastpath/send_message", "store/message_store", "wire/tls_session", "columnar/row_encoder"):
        path = ROOT / "_native" / f"{name}.pyx"
        found = {Path(each).resolve() for each in finder.all_dependencies(str(path))}
        native = {each for each in found if each.is_relative_to(ROOT / "_native")}
        assert native == {path, *declarations(path, ROOT)}
