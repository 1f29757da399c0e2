"""README's table of figures is current (`python -m tests.meta.readme` writes it)."""

from pathlib import Path

from tests.meta.readme import README, figures_table, section


def test_the_figures_are_those_of_the_last_comparison() -> None:
    assert section(Path(README).read_text("utf-8"), "figures") == figures_table()
