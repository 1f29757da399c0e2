"""The parts of README.md and CLIENT.md that are made. `python -m tests.meta.readme` brings them up to date."""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from enum import Enum
from pathlib import Path

from bench import report, results
from firearrow.broker.options import Options, options_by_key, text_of
from firearrow.client.options import (
    ClientOptions,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)

README = Path(__file__).resolve().parents[2] / "README.md"
CLIENT = README.parent / "CLIENT.md"
OURS = {
    "maxTopicNums",
    "maxTopicQueueNums",
    "maxHeldPulls",
    "maxConnectionBytes",
    "maxReplyBytesWaiting",
    "com.rocketmq.remoting.frameMaxLength",
}
FIGURES = (
    "send 64 x 1, 128 B",
    "send 8 x 32, 128 B",
    "SYNC_FLUSH 64 x 1, 128 B",
    "pull 32 x 1 KiB, contiguous",
    "end to end flat out, 128 B",
)
"""The rows of README, of those in BENCHMARKS.md."""
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


def client_options_table() -> str:
    """The client's dataclasses of options, each with the sentence that follows a field in their source."""
    lines = ["| option | default | |", "|---|---|---|"]
    for kind in (
        ClientOptions,
        ProducerOptions,
        PushConsumerOptions,
        PullConsumerOptions,
        PopConsumerOptions,
    ):
        notes = _notes(kind)
        for field in dataclasses.fields(kind):
            if field.name != "generated_name":
                default = "made" if field.default is dataclasses.MISSING else f"`{_shown(field.default)}`"
                lines.append(f"| `{kind.__name__}.{field.name}` | {default} | {notes.get(field.name, '')} |")
    return "\n".join(lines)


def _notes(kind: type) -> dict[str, str]:
    """Field → the text below it, those of base classes, too."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__[:-1]):
        [cls] = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        assert isinstance(cls, ast.ClassDef)
        for field, note in itertools.pairwise(cls.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(note, ast.Expr)
                and isinstance(note.value, ast.Constant)
            ):
                found[ast.unparse(field.target)] = " ".join(str(note.value.value).split()).replace("|", "\\|")
    return found


def _shown(default: object) -> str:
    if isinstance(default, frozenset):
        return ", ".join(map(str, sorted(default)))
    return str(default.value if isinstance(default, Enum) else default)


def figures_table() -> str:
    """`FIGURES` from the newest full run that had Apache's broker in it."""
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
    CLIENT.write_text(
        with_section(CLIENT.read_text("utf-8"), "client options", client_options_table()), "utf-8"
    )
