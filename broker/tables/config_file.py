"""ConfigFile: one of Apache's `config/*.json`, replaced atomically, with the previous state in `.bak`.

Does not interpret the content. A damaged file never stops the broker from starting: it is renamed to
`.damaged-N` and logged. Used by one thread at a time.

UnknownFields: members of a config file that its table does not know, because another version wrote them. They
are kept from load to save up to a limit, and are never part of an answer. Loop thread; `merge_into` may run
in another one.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from firearrow._native.base.durable_files import fsync_dir, make_dirs
from firearrow.broker.base.errors import StartError
from firearrow.broker.tables import json_fields

log = logging.getLogger("firearrow.config_files")

BYTES_MAX = 512 << 20
"""A larger file is not a config file."""
MISSING = "is missing"


def set_aside(path: Path) -> str:
    """Rename the file to NAME.damaged-N; returns the new name. OSError."""
    number = 1
    while (target := Path(f"{path}.damaged-{number}")).exists():
        number += 1
    path.replace(target)
    return target.name


class ConfigFile:
    """`is_older`: the loaded state is not the last one written, or both files were damaged.

    `mode`: of the file that is written. `strict`: a damaged file is a StartError, and `.bak` is not used, since an
    older state of rules may allow what is forbidden now.
    """

    def __init__(self, path: str | os.PathLike[str], *, mode: int = 0o666, strict: bool = False) -> None:
        self.path = Path(path)
        self._mode = mode
        self._strict = strict
        self._backup = Path(f"{self.path}.bak")
        self.is_older = False

    def load(self, load_text: Callable[[bytes], None]) -> bool:
        """Call `load_text` with the file's text, or with `.bak`'s if the file is missing, empty or invalid
        (ValueError).

        False if nothing could be loaded. StartError when a file cannot be read.
        """
        fault = self._fault(self.path, load_text)
        if fault is None:
            self._restrict()
            return True
        if self._strict and fault == MISSING:
            return False
        if self._strict:
            raise StartError(
                f"{self.path} {fault}: fix it, restore it from {self._backup.name}, or delete it and start without "
                "its content"
            )
        backup_fault = self._fault(self._backup, load_text)
        self.is_older = fault != MISSING or backup_fault != MISSING
        if not self.is_older:
            return False
        faults = (self.path, fault), (self._backup, backup_fault)
        renamed = [name for name in (self._set_aside(path, why) for path, why in faults) if name]
        kept_as = f"; kept as {', '.join(renamed)}" if renamed else ""
        if backup_fault is None:
            log.error(
                "%s %s: loaded the previous state from %s%s", self.path, fault, self._backup.name, kept_as
            )
            return True
        log.error(
            "%s %s, and %s %s: the broker starts without their content%s",
            self.path,
            fault,
            self._backup.name,
            backup_fault,
            kept_as,
        )
        return False

    def write(self, *pieces: bytes) -> None:
        """Write the file durably; a crash leaves a complete file, the old one or the new one. OSError."""
        make_dirs(str(self.path.parent.absolute()))
        fresh = Path(f"{self.path}.tmp")
        with open(fresh, "wb", opener=lambda path, flags: os.open(path, flags, self._mode)) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            link = Path(f"{self._backup}.tmp")
            link.unlink(missing_ok=True)
            os.link(self.path, link)
            link.replace(self._backup)
        fresh.replace(self.path)
        fsync_dir(str(self.path.parent))

    def _restrict(self) -> None:
        """Take away rights of others on a file that only its owner may read."""
        if self._mode & 0o077 or not self.path.stat().st_mode & 0o077:
            return
        log.warning("%s could be read by others: only its owner may read it now", self.path)
        with contextlib.suppress(OSError):
            self.path.chmod(self._mode)

    def _fault(self, path: Path, load_text: Callable[[bytes], None]) -> str | None:
        """Load the file; returns why it could not be loaded, None if it was. StartError."""
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
        """Rename a damaged file; returns its new name, None if it is not damaged or missing."""
        if fault is None or fault == MISSING:
            return None
        return set_aside(path)


Shape = Mapping[str, "Shape | None"]
"""The members that a table knows; None: the whole value is known."""
KeyPath = tuple[str | int, ...]
"""The keys that lead to an object in the file; empty for the file's top level."""

EACH = "<each>"
"""The only key of a shape: any key is allowed, and each value has the shape given here."""
EACH_NUMBER = "<each number>"
"""The same with bare numbers as keys."""
VERSION: Shape = dict.fromkeys(("counter", "stateVersion", "timestamp"))
ENTRY_BYTES_MAX = 64 << 10
FILE_BYTES_MAX = 4 << 20
"""Limit at the file's top level, where unknown members may be whole tables."""


class UnknownFields:
    def __init__(self, file: str, shape: Shape) -> None:
        self._file = file
        self._shape = shape
        self._kept: dict[KeyPath, dict[str, object]] = {}

    def collect(self, document: json_fields.Members) -> None:
        """Keep the unknown members of the loaded document; replaces those kept before."""
        self._kept = {}
        dropped: list[str] = []
        for path, members in _unknown(document, self._shape, ()):
            capacity = ENTRY_BYTES_MAX if path else FILE_BYTES_MAX
            kept: dict[str, object] = {}
            for name, value in members.items():
                size = _size(name, value, len(path) + 1)
                if size <= capacity:
                    kept[name] = value
                    capacity -= size
                else:
                    dropped.append("/".join(map(str, (*path, name)))[:256])
            if kept:
                self._kept[path] = kept
        if dropped:
            log.warning(
                "%s: %d unknown members are dropped, the first is %r: "
                "at most %d KiB of them are kept for each entry, %d MiB at the top level",
                self._file,
                len(dropped),
                dropped[0],
                ENTRY_BYTES_MAX >> 10,
                FILE_BYTES_MAX >> 20,
            )

    def merge_into(self, document: dict[str, object]) -> dict[str, object]:
        """Add the kept members to the document, which will be written, where their objects still exist."""
        for path, members in self._kept.copy().items():
            of: object = document
            for step in path:
                of = of.get(step) if isinstance(of, dict) else None
            if isinstance(of, dict):
                of.update({name: value for name, value in members.items() if name not in of})
        return document

    def forget(self, *path: str | int) -> None:
        """The entry was deleted: a later one of the same name starts without them."""
        self._kept.pop(path, None)


def _unknown(
    of: json_fields.Members, shape: Shape, path: KeyPath
) -> Iterator[tuple[KeyPath, dict[str, object]]]:
    """The path of each object that has unknown members, and these members."""
    for each in (EACH, EACH_NUMBER):
        if each in shape:
            inner = shape[each]
            for key, value in of.items():
                if inner is not None and isinstance(value, dict):
                    step = str(key) if each == EACH else int(key)
                    yield from _unknown(value, inner, (*path, step))
            return
    members = {name: value for name, value in of.items() if name not in shape and isinstance(name, str)}
    if members:
        yield path, members
    for name, inner in shape.items():
        value = of.get(name)
        if inner is not None and isinstance(value, dict):
            yield from _unknown(value, inner, (*path, name))


def _size(name: str, value: object, depth: int) -> int:
    """Bytes of the member in the file; above every limit if it cannot be written."""
    try:
        return json_fields.size(name, name) + json_fields.size(value, name, depth)
    except ValueError:
        return FILE_BYTES_MAX + 1
