"""README's table of figures is current (`python -m tests.meta.readme` writes it)."""

from pathlib import Path

from tests.meta.readme import FIGURES, README, figures_table, section

README_WORDS_MAX = 1_320


def test_the_figures_are_from_the_last_comparison() -> None:
    table = figures_table()
    assert section(Path(README).read_text("utf-8"), "figures") == table
    assert all(f"| {name} | " in table for name in FIGURES)


def test_readme_is_short() -> None:
    assert len(README.read_text("utf-8").split()) <= README_WORDS_MAX
