"""The generated part of README.md: the table of figures. `python -m tests.meta.readme` updates it."""

import re
from pathlib import Path

from bench import report, results

README = Path(__file__).resolve().parents[2] / "README.md"
FIGURES = (
    "send 64 x 1, 128 B",
    "send 64 x 1, 1 KiB",
    "send 8 x 32, 128 B",
    "send 8 x 32, 1 KiB",
    "send batches of 32 x 128 B",
    "SYNC_FLUSH 64 x 1, 128 B",
    "pull 32 x 1 KiB, contiguous",
    "end to end flat out, 128 B",
    "end to end flat out, 1 KiB",
)
"""The rows of README, of those in docs/BENCHMARKS.md: measured with warm peers."""


def figures_table() -> str:
    """`FIGURES` from the newest full run that included Apache's broker."""
    return report.apache_table(results.read(), FIGURES)


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
