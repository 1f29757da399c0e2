"""The format of Java's properties files, as java.util.Properties reads it: `broker.conf` and config requests.

Keys and values are ASCII. Java reads other bytes as ISO 8859-1, which is hardly what their author meant, so they
are refused, except in comments, where any encoding is allowed. `\\uXXXX` is a UTF-16 unit, as in Java.
"""

TEXT_CHARS_MAX = 1 << 20
BLANKS = " \t\f"
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {char: f"\\{letter}" for letter, char in _CONTROLS.items()} | {"\\": "\\\\"}


def parse(text: str | bytes) -> dict[str, str]:
    """Parse a properties text; the last of equal keys wins. Values are stripped, as Apache does for strings.

    ValueError when the text is longer than TEXT_CHARS_MAX, or cannot be what its author meant.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"properties text of {len(text)} characters, at most {TEXT_CHARS_MAX}")
    pairs: dict[str, str] = {}
    characters = _decoded(text) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    for number, line in _logical_lines(characters):
        try:
            key, value = _pair(line)
        except ValueError as error:
            raise ValueError(f"line {number} {error}") from None
        if "\0" in key or "\0" in value:
            raise ValueError(f"line {number} has a NUL character")
        pairs[key] = value.strip()
    return pairs


def format(pairs: dict[str, str]) -> str:
    """`key=value` lines, as Apache's broker writes them, with escapes only where a reader needs them."""
    return "".join(f"{_escaped(key, '=: #!')}={_escaped(value)}\n" for key, value in pairs.items())


def _decoded(text: bytes) -> str:
    if text.startswith(_UTF16_MARKS):
        raise ValueError("the text is in UTF-16: save it as ASCII")
    return text.removeprefix(_UTF8_MARK).decode("iso-8859-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not blank or comments, with their numbers. A line that ends with an odd number of
    backslashes is continued by the next one, without its leading blanks."""
    found: list[tuple[int, str]] = []
    begun: str | None = None
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            start, begun = number, ""
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if continued else line
        if not continued:
            if begun:
                found.append((start, begun))
            begun = None
    if begun:
        found.append((start, begun))
    return found


def _pair(line: str) -> tuple[str, str]:
    """Key and value: separated by `=`, `:` or blanks, whichever is first and not escaped."""
    if not line.isascii():
        raise ValueError(f"has characters beyond ASCII: write them as \\uXXXX, or correct {line[:80]!a}")
    end, escaped = 0, False
    while end < len(line) and (escaped or line[end] not in f"=:{BLANKS}"):
        escaped = line[end] == "\\" and not escaped
        end += 1
    value = line[end:].lstrip(BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(BLANKS)
    return _unescaped(line[:end]), _unescaped(value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    units, at = [], 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            char = text[at]
            at += 1
            if char == "u":
                digits = text[at : at + 4]
                if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                    raise ValueError(f"has \\u without four hexadecimal digits: {text[:80]!r}")
                char = chr(int(digits, 16))
                at += 4
            else:
                char = _CONTROLS.get(char, char)
        elif char == "\\":
            continue
        units.append(char)
    try:
        return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(f"has half of a surrogate pair: {text[:80]!r}") from None


def _escaped(text: str, more: str = "") -> str:
    escaped = []
    for at, char in enumerate(text):
        if char in _ESCAPES:
            escaped.append(_ESCAPES[char])
        elif char in more or (char == " " and at == 0):
            escaped.append(f"\\{char}")
        elif char.isascii():
            escaped.append(char)
        else:
            units = char.encode("utf-16-be")
            escaped += [f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)]
    return "".join(escaped)
