"""Which .pyx files have to be translated to C again, and which of the C files change thereby.

A C file ends with two comments: the settings, and a digest of them and of all sources that it was made from. Files with
the digest of today are not translated, whatever their time; one that becomes what it was keeps its time, so that the C
compiler skips it. A function that a .pxd declares or defines counts for those modules only that name it.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from pathlib import Path

CIMPORT = re.compile(r"^[ \t]*from[ \t]+firearrow\.([\w.]+)[ \t]+cimport[ \t]+(\([^)]*\)|[^\n]*)", re.M)
HEADER = re.compile(r'^cdef extern from "([^<"]+)"', re.M)
COMMENT = re.compile(r"^[ \t]*# .*\n|[ \t]+# [^\"'\n]*$", re.M)
FUNCTION = re.compile(r"cdef (?:inline )?[\w. *]*?(\w+)\(")
WORD = re.compile(r"\w+")
MARK = re.compile(rb"/\* sources (\w+) \*/\n\Z")


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def cimported(path: Path, root: Path) -> frozenset[Path]:
    """The .pxd files that a file names, its own among them. `root`: the folder that is the package `firearrow`."""
    found = {path.with_suffix(".pxd")}
    for module, names in CIMPORT.findall(text_of(path)):
        place = root / module.replace(".", "/")
        found.add(place.with_suffix(".pxd"))
        found.update(place / f"{name}.pxd" for name in WORD.findall(names))
    return frozenset(each for each in found if each.exists())


def declarations(path: Path, root: Path) -> list[Path]:
    """All .pxd files that the translation of a .pyx reads, sorted."""
    found: set[Path] = set()
    left = {path}
    while left:
        left = {each for one in left for each in cimported(one, root)} - found
        found |= left
    return sorted(found)


def headers(path: Path, root: Path) -> list[Path]:
    """FireArrow's headers that the C file of a .pyx includes."""
    sources = [path, *declarations(path, root)]
    found = {root / "_native" / name for each in sources for name in HEADER.findall(text_of(each))}
    return sorted(each for each in found if each.exists())  # the others are the system's


@cache
def statements(path: Path) -> tuple[tuple[str, Counter[str]], ...]:
    """The top-level statements of a .pxd without comments, each with its words."""
    text = re.sub(r"\n{2,}", "\n", COMMENT.sub("", text_of(path)))
    found = [each for each in re.split(r"^(?=\S)", text, flags=re.M) if each.strip()]
    return tuple((each, Counter(WORD.findall(each))) for each in found)


def relevant(path: Path, root: Path) -> str:
    """All that the C file of a .pyx is made from."""
    own = [each for each in (path, path.with_suffix(".pxd")) if each.exists()]
    others = [each for pxd in declarations(path, root) if pxd not in own for each in statements(pxd)]
    words = Counter(word for each in own for word in WORD.findall(text_of(each)))
    for _, used in others:
        words.update(used)
    parts = [text_of(each) for each in own]
    for text, used in others:
        function = FUNCTION.match(text)
        if function is None or words[function[1]] > used[function[1]]:
            parts.append(text)
    return "".join(parts)


class Translation:
    """`root`: the folder that is the package `firearrow`; `settings`: of Cython and of the C compiler."""

    def __init__(self, root: Path, settings: str) -> None:
        self._root = root
        self._settings = settings

    def stale(self, paths: Iterable[Path]) -> list[Path]:
        """Those without a C file made from today's sources with these settings."""
        return [path for path in paths if not path_of_c(path).exists() or self._mark(path) != read_mark(path)]

    def run(self, paths: list[Path], cython: Callable[[], object]) -> None:
        """`cython()` makes the C files of these; those that stay the same keep their time."""
        before = {path: before_of(path_of_c(path)) for path in paths}
        if paths:
            cython()
        for path, (old, time_ns) in before.items():
            made = path_of_c(path)
            body = made.read_bytes() + f"/* settings: {self._settings} */\n".encode()
            made.write_bytes(body + f"/* sources {self._mark(path)} */\n".encode())
            if body == old:
                os.utime(made, ns=(time_ns, time_ns))

    def _mark(self, path: Path) -> str:
        text = self._settings + relevant(self._root / path, self._root)
        return blake2b(text.encode(), digest_size=16).hexdigest()


def path_of_c(path: Path) -> Path:
    return path.with_suffix(".c")


def read_mark(path: Path) -> str | None:
    found = MARK.search(path_of_c(path).read_bytes())
    return found[1].decode() if found else None


def before_of(made: Path) -> tuple[bytes, int]:
    """The C file without its mark, and its time."""
    return (MARK.sub(b"", made.read_bytes()), made.stat().st_mtime_ns) if made.exists() else (b"", 0)
