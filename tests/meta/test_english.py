"""The English of comments, docstrings and texts: words that CONTRIBUTING.md advises against become fewer.

A limit is the number of places where a word stands today. It is lowered with them, never raised.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache

import pytest

from tests.meta.test_layout import sources

TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
LIMITS = {
    r"\bsaid\b": 0,
    r"\bsays?\b": 48,
    r"\b(told|tells?)\b": 7,
    r"\b(hears?|heard)\b": 3,
    r"\banew\b": 0,
    r"\b(nobody|somebody)\b": 2,
    r"\bwhoever\b": 1,
    r"\b(rooms?|lanes?|crews?)\b": 12,
    r"\bmend(s|ed)?\b": 0,
    r"\bfor want of\b": 0,
    r"\bso many\b": 2,
    r"\blet(s|ting)? go of\b": 0,
    r"\b(is|are|was|were|has|have) gone\b": 11,
    r"\bof ours\b": 2,
    r"\bbegins? again\b": 3,
    r", too\b(?! (long|small|large|many|far|short|old|much|late|early|few|slow|big)\b)": 17,
    r"(?<!there )\b(is|are) no (?!longer|more|less)": 17,
    r"\bas they should\b": 0,
}
"""A word or phrase, as a pattern, and in how many places it may stand."""


@cache
def texts() -> str:
    files = sources("*.py", "*.pyx", "*.pxd")
    pieces = (piece for path in files for piece in texts_of(path.read_text("utf-8")))
    return re.sub(r"\s+", " ", " ".join(pieces)).lower()


def texts_of(source: str) -> Iterator[str]:
    """Comments and literals; after something that Python's tokenizer does not know, none."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in TEXTS:
                yield token.string
    except (tokenize.TokenError, IndentationError):
        return


@pytest.mark.parametrize("pattern", LIMITS)
def test_odd_words_become_fewer(pattern: str) -> None:
    found = [
        texts()[max(match.start() - 40, 0) : match.end() + 20] for match in re.finditer(pattern, texts())
    ]
    assert len(found) <= LIMITS[pattern], found
