"""The table of limits: docs/STORAGE.md's is generated from `limits.txt`, with the values of the code.

`python -m tests.hostile.limits` writes it. A constant that ends in MAX and is not there must be in `others.txt`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from firearrow.broker.base.options import Options, options_by_key, text_of
from tests.hostile.code import KINDS, ROOT, constants

STORAGE = ROOT / "docs/STORAGE.md"
BEGIN, END = "<!-- limits: python -m tests.hostile.limits -->\n", "<!-- end of limits -->\n"


@dataclass(frozen=True)
class Limit:
    """`of`: `module.NAME` of the code, or the key of an option. `test` tests its value and one past it."""

    of: str
    what: str
    past: str
    test: str

    @property
    def is_option(self) -> bool:
        return self.of in options_by_key()

    @property
    def value(self) -> int | float:
        if self.is_option:
            return int(text_of(getattr(Options(), options_by_key()[self.of].name)))
        module, _, name = self.of.rpartition(".")
        return constants(module)[name]


def _rows(name: str) -> list[list[str]]:
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    return [[word.strip() for word in line.split(" | ")] for line in lines if not line.startswith("#")]


LIMITS = [Limit(*row) for row in _rows("limits.txt")]
OTHERS = dict(_rows("others.txt"))
"""Constants that are no separate limits → why."""
CACHE = re.compile(r"forgotten|dropped$|counted together|not counted|share one measurement")
"""Outcomes that nothing outside sees: they are in limits.txt alone."""
GROUP_LEAST = 3
"""Limits with one outcome that get a list of their own."""
FOLDERS = ("_native/wire", "_native/http2", "_native/store", "_native/fastpath", "broker")


def shown(limit: Limit) -> str:
    """Bytes in binary units if they are whole numbers of them."""
    value = int(limit.value)
    if "bytes" in limit.what.split(" of ")[0]:
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value and value % (1 << shift) == 0:
                return f"{value >> shift} {unit}"
    return f"{value:,}"


def table() -> str:
    """Markdown: limits with the same outcome under its name, then the others, each with its own."""
    by_outcome: dict[str, list[Limit]] = {}
    for limit in (limit for limit in LIMITS if not CACHE.search(limit.past)):
        by_outcome.setdefault(limit.past, []).append(limit)
    groups = {past: limits for past, limits in by_outcome.items() if len(limits) >= GROUP_LEAST}
    lines = []
    for past, limits in sorted(groups.items(), key=lambda group: -len(group[1])):
        lines += [f"{_outcome(past)}:", "", *(f"- {line(limit)}" for limit in limits), ""]
    rest = [limit for limits in by_outcome.values() if len(limits) < GROUP_LEAST for limit in limits]
    lines += ["With an outcome of their own:", "", *(f"- {line(limit)}; {limit.past}" for limit in rest)]
    return "\n".join(lines) + "\n"


def _outcome(past: str) -> str:
    """A response code, or what happens."""
    return f"Answered with {past}" if past.isdecimal() or past.isupper() else past[:1].upper() + past[1:]


def line(limit: Limit) -> str:
    return f"{limit.what}{f' (`{limit.of}`)' if limit.is_option else ''}: {shown(limit)}"


def written(text: str) -> str:
    """docs/STORAGE.md with the current table. ValueError if the markers are missing."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + table() + text[end:]


def unnamed() -> list[str]:
    """Constants with MAX in their names that are in neither list."""
    named = {limit.of for limit in LIMITS}
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.p*")):
            module = str(Path(folder) / path.relative_to(ROOT / folder).with_suffix(""))
            if path.suffix in KINDS:
                found += [f"{module}.{name}" for name in constants(module) if re.search(r"(^|_)MAX$", name)]
    return sorted(set(found) - named - set(OTHERS))


if __name__ == "__main__":
    STORAGE.write_text(written(STORAGE.read_text("utf-8")), "utf-8")
