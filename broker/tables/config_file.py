"""ConfigFile: one of Apache's `config/*.json`, replaced whole, with the state before it in `.bak`.

Knows no content. A damaged file never keeps the broker from starting: it is set aside as `.damaged-N`, and said. Any
one thread at a time.

UnknownFields: what another version wrote into a config file and its table does not know, kept from load to save.

Never part of an answer, and never more than a bound. Loop thread; `merge_into` may run in another one.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from firearrow._native.store.files.directory_sync import fsync_dir, make_dirs
from firearrow.broker.base.errors import StartError
from firearrow.broker.tables import json_fields

log = logging.getLogger("firearrow.files")

BYTES_MAX = 512 << 20
"""Nothing that is larger is one of these files."""
MISSING = "is missing"


def set_aside(path: Path) -> str:
    """Rename it to NAME.damaged-N; the name that it has now. OSError."""
    number = 1
    while (place := Path(f"{path}.damaged-{number}")).exists():
        number += 1
    path.replace(place)
    return place.name


class ConfigFile:
    """`is_older`: what was loaded is not what was written last, or nothing was left to load."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._backup = Path(f"{self.path}.bak")
        self.is_older = False

    def load(self, load_text: Callable[[bytes], None]) -> bool:
        """Give `load_text` the file's text, or `.bak`'s if the file is missing, empty or refused by a ValueError.

        False when there is nothing to load, or nothing that can be. StartError when a file may not be read.
        """
        fault = self._fault(self.path, load_text)
        if fault is None:
            return True
        spare = self._fault(self._backup, load_text)
        self.is_older = fault != MISSING or spare != MISSING
        if not self.is_older:
            return False
        kept = [self._set_aside(path, why) for path, why in ((self.path, fault), (self._backup, spare))]
        beside = f"; kept as {', '.join(name for name in kept if name)}" if any(kept) else ""
        if spare is None:
            log.error(
                "%s %s: %s, the state before it, is taken%s", self.path, fault, self._backup.name, beside
            )
            return True
        log.error(
            "%s %s, and %s %s: the broker starts without what they held%s",
            self.path,
            fault,
            self._backup.name,
            spare,
            beside,
        )
        return False

    def write(self, text: bytes) -> None:
        """On disk when it returns; a crash leaves a whole file, the old one or the new one. OSError."""
        make_dirs(str(self.path.parent.absolute()))
        fresh = Path(f"{self.path}.tmp")
        with fresh.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            spare = Path(f"{self._backup}.tmp")
            spare.unlink(missing_ok=True)
            os.link(self.path, spare)
            spare.replace(self._backup)
        fresh.replace(self.path)
        fsync_dir(str(self.path.parent))

    def _fault(self, path: Path, load_text: Callable[[bytes], None]) -> str | None:
        """Why it cannot be taken; None if it was."""
        try:
            if path.stat().st_size > BYTES_MAX:
                return f"is larger than {BYTES_MAX >> 20} MiB"
            text = path.read_bytes()
        except FileNotFoundError:
            return MISSING
        except OSError as error:
            raise StartError(
                f"{path} cannot be read ({error.strerror}): give the broker access to it."
            ) from error
        if not text:
            return "is empty"
        try:
            load_text(text)
        except (ValueError, RecursionError) as error:
            return f"is damaged ({error})"
        return None

    def _set_aside(self, path: Path, fault: str | None) -> str | None:
        """The name that it has now; None if it stays, or there is nothing to keep."""
        if fault is None or fault == MISSING:
            return None
        return set_aside(path)


Shape = Mapping[str, "Shape | None"]
"""Members that a table knows; None: it takes the value as a whole."""
Place = tuple[str | int, ...]
"""The names that lead to an object of the file; none lead to the file's own."""

EACH = "<each>"
"""Alone in a shape: any name, and behind each an object of that shape."""
EACH_NUMBER = "<each number>"
"""The same of bare numbers."""
VERSION: Shape = dict.fromkeys(("counter", "stateVersion", "timestamp"))
ENTRY_BYTES_MAX = 64 << 10
FILE_BYTES_MAX = 4 << 20
"""Of the file's own members: they may be whole tables."""


class UnknownFields:
    def __init__(self, file: str, shape: Shape) -> None:
        self._file = file
        self._shape = shape
        self._kept: dict[Place, dict[str, object]] = {}

    def collect(self, document: json_fields.Members) -> None:
        """Those of a text that the table took, for those that were kept before."""
        self._kept = {}
        dropped: list[str] = []
        for place, members in _unknown(document, self._shape, ()):
            capacity = ENTRY_BYTES_MAX if place else FILE_BYTES_MAX
            kept: dict[str, object] = {}
            for name, value in members.items():
                size = _size(name, value, len(place) + 1)
                if size <= capacity:
                    kept[name] = value
                    capacity -= size
                else:
                    dropped.append("/".join(map(str, (*place, name)))[:256])
            if kept:
                self._kept[place] = kept
        if dropped:
            log.warning(
                "%s: %d unknown members are dropped, the first is %r: an entry keeps %d KiB of them, the file %d MiB",
                self._file,
                len(dropped),
                dropped[0],
                ENTRY_BYTES_MAX >> 10,
                FILE_BYTES_MAX >> 20,
            )

    def merge_into(self, document: dict[str, object]) -> dict[str, object]:
        """The same document, which is to be written, with them; what is gone from it has none."""
        for place, members in self._kept.copy().items():
            of: object = document
            for step in place:
                of = of.get(step) if isinstance(of, dict) else None
            if isinstance(of, dict):
                of.update({name: value for name, value in members.items() if name not in of})
        return document

    def forget(self, *place: str | int) -> None:
        """The entry is gone: one that gets its name later begins without them."""
        self._kept.pop(place, None)


def _unknown(
    of: json_fields.Members, shape: Shape, place: Place
) -> Iterator[tuple[Place, dict[str, object]]]:
    """Each object of that shape that has such members, and them."""
    for each in (EACH, EACH_NUMBER):
        if each in shape:
            inner = shape[each]
            for key, value in of.items():
                if inner is not None and isinstance(value, dict):
                    step = str(key) if each == EACH else int(key)
                    yield from _unknown(value, inner, (*place, step))
            return
    members = {name: value for name, value in of.items() if name not in shape and isinstance(name, str)}
    if members:
        yield place, members
    for name, inner in shape.items():
        value = of.get(name)
        if inner is not None and isinstance(value, dict):
            yield from _unknown(value, inner, (*place, name))


def _size(name: str, value: object, depth: int) -> int:
    """Bytes that it takes; more than any bound if it cannot be written."""
    try:
        return json_fields.size(name, name) + json_fields.size(value, name, depth)
    except ValueError:
        return FILE_BYTES_MAX + 1
