"""docs/DOCTOR.md: all that `firearrow doctor` finds, with cause and fix. `python -m tests.meta.doctor` writes it."""

import re
from pathlib import Path

from firearrow.client.cli.doctor.checks import Check, Trouble
from firearrow.client.cli.doctor.command import CHECKS

DOCTOR = Path(__file__).resolve().parents[2] / "docs/DOCTOR.md"
TEXT = """# What the doctor finds

The list below is generated from the source: `python -m tests.meta.doctor`. `firearrow doctor` asks the name servers and
all brokers, FireArrow's or Apache's, and changes nothing; `firearrow doctor --store DIR` reads the folder of a store.
It prints each finding with its severity, subject, reason, fix, and the name of its check, then what it could not check.

- **Severity**: CRITICAL: something does not work, or messages are lost. WARNING: nothing is lost yet. NOTE: it may be
  intended. The exit code is 1 for a WARNING or a CRITICAL, 0 if there is none, 3 if no name server answers.
  `--nagios` prints one line and exits as a plugin of Nagios.
- **Brokers that died**: a name server forgets a broker as soon as its connection ends. FireArrow's remember for 7 days
  which ones left without unregistering; the doctor remembers for 7 days which ones it saw, in
  `~/.local/state/firearrow/brokers.json`. After a broker was taken away for good: `firearrow doctor --forget BROKER`.
- **Name servers**: each one of `--namesrv` is asked alone, and those that contexts and brokers name beside them.
- **`--store`** checks a log of up to 64 MiB whole, of a larger one its end and samples, and names what it left out;
  `firearrow store verify DIR` reads everything.
- **Limits of Apache's brokers**: they do not report their machine; such checks are named as not checked.

Words in capitals stand for values. A check with two severities has the second one in bad cases.
"""


def text() -> str:
    return "\n".join([TEXT, *map(_section, CHECKS)])


def _section(check: Check) -> str:
    rows = [_row(trouble) for trouble in check.troubles]
    head = ["| severity | found | why it matters | fix |", "|---|---|---|---|"]
    return "\n".join([f"## {check.name}", "", f"{check.looks_for}.", "", *head, *rows, ""])


def _row(trouble: Trouble) -> str:
    severity = trouble.severity.name
    if trouble.worst is not None:
        severity += f", {trouble.worst.name}"
    texts = (_with_names(each) for each in (trouble.text, trouble.why, trouble.fix))
    return f"| {' | '.join((severity, *texts))} |"


def _with_names(template: str) -> str:
    """Values that may be empty follow a word directly: they are set apart."""
    apart = re.sub(r"(?<=[\w}])\{", " {", template)
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: found[1].upper(), apart).replace("|", "\\|")


def main() -> None:
    DOCTOR.write_text(text(), "utf-8")


if __name__ == "__main__":
    main()
