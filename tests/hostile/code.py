"""The values of limits in the source, also those that are visible to C only."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KINDS = (".pxd", ".pyx", ".py")
LINE = re.compile(
    r"^ *(?:cdef (?:object|int64_t) )?(?P<names>[A-Z][A-Z0-9_]*(?:, [A-Z][A-Z0-9_]*)*)(?:: \w+)? = "
    r"(?P<values>[-0-9_(][-0-9a-fA-Fx_ <*+(),.]*?) *(?:#.*)?$",
    re.MULTILINE,
)


def constants(module: str) -> dict[str, int | float]:
    """Named numbers in the files of a module (`_native/protocol/fastjson`)."""
    found: dict[str, int | float] = {}
    for kind in KINDS:
        path = ROOT / f"{module}{kind}"
        for match in LINE.finditer(path.read_text("utf-8")) if path.exists() else ():
            if match["values"] != "(":  # a value that continues in the next lines is not a number
                values = eval(f"({match['values']},)", {"__builtins__": {}})
                found |= zip(match["names"].split(", "), values, strict=False)
    return found


def value_of(module: str, name: str) -> int:
    return int(constants(module)[name])
