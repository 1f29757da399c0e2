"""The generated part of README.md: the table of figures. `python -m tests.meta.readme` brings it up to date."""

import re
from pathlib import Path

from bench import compare, results

README = Path(__file__).resolve().parents[2] / "README.md"


def figures_table() -> str:
    """Each row of `python -m bench.compare` from the last whole run that had Apache's broker beside ours in it."""
    newest = results.newest_figures(results.read())
    lines = ["| messages/s | FireArrow | Apache 5.5.0 | ratio |", "|---|---|---|---|"]
    for row in compare.rows():
        for apache in (name for name in row.work if name.startswith("apache") and (row.name, name) in newest):
            run, figures = newest[row.name, apache]
            [mine] = (told.figures[row.ours]["rate"] for told in run.rows if told.row == row.name)
            theirs = figures["rate"]
            lines.append(f"| {row.name} | {mine:,.6g} | {theirs:,.6g} | **{mine / theirs:.3g}** |")
    return "\n".join(lines)


def section(text: str, name: str) -> str:
    match = re.search(rf"<!-- {name} -->\n(.*?)\n?<!-- /{name} -->", text, re.S)
    assert match is not None, f"README has no section {name}"
    return match[1]


def with_section(text: str, name: str, content: str) -> str:
    return re.sub(
        rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
        lambda match: f"{match[1]}{content}\n{match[2]}",
        text,
        flags=re.S,
    )


if __name__ == "__main__":
    README.write_text(with_section(README.read_text("utf-8"), "figures", figures_table()), "utf-8")
