"""The table in docs/PROTOCOL.md of what each request code needs, from the broker's rules.

`python -m tests.auth.rules_table` writes it.
"""

from collections import defaultdict
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.auth.request_rights import CLOSED, RULES

PROTOCOL = Path(__file__).resolve().parents[2] / "docs/PROTOCOL.md"
DEFAULT = "Cluster Update"
"""What a code needs that is not listed."""
BEGIN, END = "<!-- rules -->\n", "<!-- /rules -->"


def table() -> str:
    codes = defaultdict(list)
    for code, rule in RULES.items():
        mark = "*" if code in CLOSED else ""
        codes[rule.text].append(f"{mark}{RequestCode(code).name}{mark}")
    opened = [name for name in codes.pop(DEFAULT) if name.startswith("*")]
    lines = [f"- **{text}**: {', '.join(named)}" for text, named in codes.items()]
    return "\n".join([*lines, f"- **{DEFAULT}**: all others, among them {', '.join(opened)}"]) + "\n"


def document() -> str:
    text = PROTOCOL.read_text("utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + table() + text[end:]


if __name__ == "__main__":
    PROTOCOL.write_text(document(), "utf-8")
