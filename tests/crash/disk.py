"""Disk: what may be on it, computed from the recorded calls.

A file is sectors, each with the versions that it had since it was synced: a power cut leaves any one of them,
independently for each sector. The same holds for its size, and for each change of a folder that was not synced.
Knows no store.
"""

from dataclasses import dataclass, field

from tests.crash.recording import Kind, Op

SECTOR_BYTES = 512
SECTORS_A_PAGE = 8
ZEROS = bytes(SECTOR_BYTES)
Version = tuple[int, bytes]
"""(number of the call, content of the sector)."""


@dataclass(slots=True)
class File:
    """`sectors`: number → versions, oldest first; the first is on the disk, a sector that is missing is zeros."""

    sectors: dict[int, list[Version]] = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    unsynced: set[int] = field(default_factory=set)

    def write(self, call: int, at: int, data: bytes) -> None:
        end = at + len(data)
        if end > self.sizes[-1][1]:
            self.sizes.append((call, end))
        position = at
        while position < end:
            number, start = divmod(position, SECTOR_BYTES)
            stop = min(SECTOR_BYTES, start + end - position)
            versions = self.sectors.get(number)
            before = versions[-1][1] if versions else ZEROS
            after = before[:start] + data[position - at : position - at + stop - start] + before[stop:]
            position += stop - start
            if after == before:
                continue
            if versions is None:
                versions = self.sectors[number] = [(0, ZEROS)]
            versions.append((call, after))
            self.unsynced.add(number)

    def resize(self, call: int, size: int) -> None:
        if size < self.sizes[-1][1]:
            last = max(self.sectors, default=-1)
            if last >= size // SECTOR_BYTES:
                self.write(call, size, bytes((last + 1) * SECTOR_BYTES - size))
        if size != self.sizes[-1][1]:
            self.sizes.append((call, size))

    def sync(self, at: int = 0, length: int | None = None) -> None:
        end = None if length is None else (at + length + SECTOR_BYTES - 1) // SECTOR_BYTES
        done = {n for n in self.unsynced if n >= at // SECTOR_BYTES and (end is None or n < end)}
        for number in done:
            del self.sectors[number][:-1]
        self.unsynced -= done
        del self.sizes[:-1]

    def newest(self, at: int, length: int) -> bytes:
        """What a reader would get."""
        low, high = at // SECTOR_BYTES, (at + length + SECTOR_BYTES - 1) // SECTOR_BYTES
        whole = b"".join(self.sectors[n][-1][1] if n in self.sectors else ZEROS for n in range(low, high))
        return whole[at - low * SECTOR_BYTES :][:length]


@dataclass(slots=True)
class Change:
    """One change of names; it is on the disk when `waits` contains no folder that it touches."""

    kind: Kind
    names: list[str]
    file: int
    waits: set[str]


Tree = dict[str, int]
"""Path below the root → number of the file; FOLDER for a folder."""
FOLDER = -1


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def change_tree(tree: Tree, change: Change) -> None:
    """Apply it, if what it needs is there: a change whose folder was lost is lost, too."""
    name, other = change.names[0], change.names[-1]
    if any(parent(path) and tree.get(parent(path)) != FOLDER for path in change.names):
        return
    match change.kind:
        case Kind.CREATE:
            tree[name] = change.file
        case Kind.MKDIR:
            tree[name] = FOLDER
        case Kind.LINK if name in tree:
            tree[other] = tree[name]
        case Kind.RENAME if name in tree:
            tree[other] = tree.pop(name)
        case Kind.UNLINK:
            tree.pop(name, None)
        case Kind.RMDIR:
            for path in [path for path in tree if path == name or path.startswith(f"{name}/")]:
                del tree[path]
        case _:
            pass


class Disk:
    """`apply` each call in order; in between, `files`, `base` and `changes` give the possible states."""

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        self.base: Tree = {}
        self.changes: list[Change] = []
        """After `base`, in order; synced ones stay in the list while an older one is not synced."""
        self.tree: Tree = {}
        self.calls = 0

    def apply(self, op: Op) -> None:
        self.calls += 1
        match op.kind:
            case Kind.WRITE | Kind.STORE:
                self.files[op.file].write(self.calls, op.at, op.data)
            case Kind.SIZE:
                self.files[op.file].resize(self.calls, op.at)
            case Kind.ZERO:
                self.files[op.file].write(self.calls, op.at, bytes(op.length))
            case Kind.ALLOCATE:
                file = self.files[op.file]
                file.resize(self.calls, max(op.at + op.length, file.sizes[-1][1]))
            case Kind.SYNC:
                self.files[op.file].sync()
            case Kind.SYNC_RANGE:
                self.files[op.file].sync(op.at, op.length)
            case Kind.SYNC_FOLDER:
                self._sync_folder(op.names[0])
            case Kind.MARK:
                pass
            case _:
                self._change(op)

    def _change(self, op: Op) -> None:
        if op.kind == Kind.CREATE:
            self.files[op.file] = File()
        change = Change(op.kind, op.names, op.file, {parent(name) for name in op.names})
        self.changes.append(change)
        change_tree(self.tree, change)

    def _sync_folder(self, folder: str) -> None:
        for change in self.changes:
            change.waits.discard(folder)
        while self.changes and not self.changes[0].waits:
            change_tree(self.base, self.changes.pop(0))

    def file_at(self, path: str) -> File:
        return self.files[self.tree[path]]
