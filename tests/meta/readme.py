"""The parts of README.md that are made, not written. `python -m tests.meta.readme` brings them up to date."""

import json
import re
from pathlib import Path

from firearrow.broker.options import Options, options_by_key, text_of

README = Path(__file__).resolve().parents[2] / "README.md"
RESULTS = README.parent / "bench" / "results.ndjson"
OURS = {
    "maxTopicNums",
    "maxTopicQueueNums",
    "maxHeldPulls",
    "maxReplyBytesWaiting",
    "com.rocketmq.remoting.frameMaxLength",
}
COMPUTED = {"brokerName": "the host's name", "storePathRootDir": "~/firearrow/store"}


def options_table() -> str:
    lines = ["| key | default | |", "|---|---|---|"]
    defaults = Options()
    for key, field in sorted(options_by_key().items()):
        default = COMPUTED.get(key) or text_of(getattr(defaults, field.name))
        notes = ["running"] if field.metadata["change"] == "running" else []
        notes += ["ours"] if key in OURS else []
        lines.append(f"| `{key}` | {default} | {', '.join(notes)} |")
    return "\n".join(lines)


def figures_table() -> str:
    """The last run of `python -m bench.compare` that had Apache's broker beside ours."""
    runs = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    run = [run for run in runs if any("apache" in row for row in run["rows"])][-1]
    lines = ["| | FireArrow | Apache 5.5.0 | ratio |", "|---|---|---|---|"]
    lines += [
        f"| {row['row']} | {row['firearrow']:,} | {row['apache']:,} | **{row['ratio']}** |"
        for row in run["rows"]
    ]
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
    text = with_section(README.read_text("utf-8"), "options", options_table())
    README.write_text(with_section(text, "figures", figures_table()), "utf-8")
