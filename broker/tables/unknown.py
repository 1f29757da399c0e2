"""UnknownFields: what another version wrote into a config file and its table does not know, kept from load to save.

Never part of an answer, and never more than a bound. Loop thread; `merge_into` may run in another one.
"""

import logging
from collections.abc import Iterator, Mapping

from firearrow.broker.tables import reading

log = logging.getLogger("firearrow.files")

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

    def collect(self, document: reading.Members) -> None:
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


def _unknown(of: reading.Members, shape: Shape, place: Place) -> Iterator[tuple[Place, dict[str, object]]]:
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
        return reading.size(name, name) + reading.size(value, name, depth)
    except ValueError:
        return FILE_BYTES_MAX + 1
