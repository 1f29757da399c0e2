"""Java's properties text (`key=value` lines), as `broker.conf` and the config requests carry it. Knows no key."""

TEXT_CHARS_MAX = 1 << 20


def parse(text: str) -> dict[str, str]:
    """The pairs of a properties text; comments and blank lines are skipped, the last of equal keys wins.

    ValueError when the text is over a million characters or a line is no pair.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"properties text of {len(text)} characters, at most {TEXT_CHARS_MAX}")
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.replace("\\\n", "").splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        ends = [at for at in (line.find("="), line.find(":")) if at > 0]
        if not ends:
            raise ValueError(f"line {number} is not `key=value`: {line[:80]!r}")
        key, value = line[: min(ends)].strip(), line[min(ends) + 1 :].strip()
        pairs[key] = value.replace("\\\\", "\\")
    return pairs


def format(pairs: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in pairs.items())
