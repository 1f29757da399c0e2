"""The format of Java's properties files (`key=value` lines): `broker.conf` and config requests."""

TEXT_CHARS_MAX = 1 << 20


def parse(text: str) -> dict[str, str]:
    """Parse a properties text; comments and blank lines are skipped, the last of equal keys wins.

    ValueError when the text is longer than TEXT_CHARS_MAX or a line is not a pair.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"properties text of {len(text)} characters, at most {TEXT_CHARS_MAX}")
    pairs: dict[str, str] = {}
    for number, line in enumerate(text.replace("\\\n", "").splitlines(), 1):
        pair = line.strip()
        if not pair or pair[0] in "#!":
            continue
        ends = [at for at in (pair.find("="), pair.find(":")) if at > 0]
        if not ends:
            raise ValueError(f"line {number} is not `key=value`: {pair[:80]!r}")
        key, value = pair[: min(ends)].strip(), pair[min(ends) + 1 :].strip()
        pairs[key] = value.replace("\\\\", "\\")
    return pairs


def format(pairs: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in pairs.items())
