"""README's table of figures is current (`python -m tests.meta.readme` writes it)."""

import re
from pathlib import Path

from tests.meta.readme import FIGURES, README, figures_table, section

README_WORDS_MAX = 1_200


def test_the_figures_are_from_the_last_comparison() -> None:
    table = figures_table()
    assert section(Path(README).read_text("utf-8"), "figures") == table
    assert all(f"| {name} | " in table for name in FIGURES)


def test_readme_is_short() -> None:
    assert len(README.read_text("utf-8").split()) <= README_WORDS_MAX


def test_links_lead_to_files_and_headings() -> None:
    """In every document at the top, bench/LIMITS.md and packaging/README.md, with the headings that they name."""
    more = (README.parent / "bench" / "LIMITS.md", README.parent / "packaging" / "README.md")
    for page in (*README.parent.glob("*.md"), *more):
        for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8")):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            assert not heading or heading in anchors(file), f"{page.name}: {target}#{heading}"


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
