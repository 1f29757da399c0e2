"""Cuts: the states that a power cut may leave of a disk, and which of them are tested.

A state is drawn as a `Cut`: for each thing that is not synced (a sector, a size, a change of names) which of its
versions is on the disk. Seeded: the same disk and the same draw give the same states.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.crash.disk import FOLDER, SECTOR_BYTES, SECTORS_A_PAGE, Change, Disk, File, Tree, change_tree

Thing = tuple[str, int, int]
"""('sector', file, number), ('size', file, 0) or ('name', position in `changes`, 0)."""
Image = dict[str, tuple[int, dict[int, bytes]] | None]
"""Path → (size, sectors that are not zeros); None for a folder. Folders come before what is in them."""
EXHAUSTIVE_MAX = 64


@dataclass(slots=True)
class Cut:
    """Version 0 is what was synced. Things not in `versions` are all at their newest version, or all as synced."""

    name: str
    newest: bool
    versions: dict[Thing, int] = field(default_factory=dict)

    def pick(self, thing: Thing, count: int) -> int:
        return self.versions.get(thing, count - 1 if self.newest else 0)


def things(disk: Disk) -> dict[Thing, int]:
    """What a power cut may leave in more than one version now, and the number of versions."""
    found: dict[Thing, int] = {}
    for position, change in enumerate(disk.changes):
        if change.waits:
            found["name", position, 0] = 2
    known = {*disk.tree.values(), *disk.base.values()} - {FOLDER}
    reachable = known | _named(disk.changes)
    for number in sorted(reachable):
        file = disk.files[number]
        for sector in sorted(file.unsynced):
            found["sector", number, sector] = len(file.sectors[sector])
        if len(file.sizes) > 1:
            found["size", number, 0] = len(file.sizes)
    return found


def _named(changes: list[Change]) -> set[int]:
    """Files that may still exist although their names were removed."""
    return {n for change in changes for n in [change.file] if change.kind.name == "CREATE"}


def image_of(disk: Disk, cut: Cut) -> Image:
    tree: Tree = dict(disk.base)
    for position, change in enumerate(disk.changes):
        if not change.waits or cut.pick(("name", position, 0), 2):
            change_tree(tree, change)
    image: Image = {}
    for path in sorted(tree):
        number = tree[path]
        image[path] = None if number == FOLDER else _content(disk.files[number], number, cut)
    return image


def _content(file: File, number: int, cut: Cut) -> tuple[int, dict[int, bytes]]:
    size = file.sizes[cut.pick(("size", number, 0), len(file.sizes))][1]
    sectors = {}
    for sector, versions in file.sectors.items():
        if sector * SECTOR_BYTES < size:
            content = versions[cut.pick(("sector", number, sector), len(versions))][1]
            if content.count(0) != SECTOR_BYTES:
                sectors[sector] = content
    return size, sectors


# ---- which states are tried ----


def extremes(disk: Disk) -> Iterator[Cut]:
    """Everything (a killed process), nothing, no names, names alone."""
    unsynced = things(disk)
    yield Cut("kill", True)
    yield Cut("only what is synced", False)
    yield Cut("no names", True, {thing: 0 for thing in unsynced if thing[0] == "name"})
    yield Cut("only names", False, {thing: 1 for thing in unsynced if thing[0] == "name"})
    sizes = {thing: count - 1 for thing, count in unsynced.items() if thing[0] in ("name", "size")}
    yield Cut("only names and sizes", False, sizes)


def every(disk: Disk) -> list[Cut] | None:
    """All states, if they are few."""
    unsynced = things(disk)
    if not unsynced or math.prod(unsynced.values()) > EXHAUSTIVE_MAX:
        return None
    choices = itertools.product(*(range(count) for count in unsynced.values()))
    return [Cut("one of all", True, dict(zip(unsynced, choice, strict=True))) for choice in choices]


def singles(disk: Disk) -> Iterator[Cut]:
    """Each thing missing alone, each present alone."""
    for thing, count in things(disk).items():
        yield Cut(f"without {thing}", True, {thing: 0})
        yield Cut(f"only {thing}", False, {thing: count - 1})


def drawn(disk: Disk, draw: random.Random) -> Cut:
    """One at random."""
    return draw.choice(DRAWS)(disk, draw)


def _by_sector(disk: Disk, draw: random.Random) -> Cut:
    share = draw.choice((0.05, 0.3, 0.5, 0.7, 0.95))
    versions = {
        thing: (count - 1 if draw.random() < 0.7 else draw.randrange(count)) if draw.random() < share else 0
        for thing, count in things(disk).items()
    }
    return Cut("sectors", True, versions)


def _by_page(disk: Disk, draw: random.Random) -> Cut:
    """Each page as it was at some moment; names and sizes at random."""
    versions: dict[Thing, int] = {}
    moments: dict[tuple[int, int], int] = {}
    for thing, count in things(disk).items():
        kind, number, sector = thing
        if kind != "sector":
            versions[thing] = draw.randrange(count)
            continue
        page = number, sector // SECTORS_A_PAGE
        if page not in moments:
            moments[page] = draw.choice((0, disk.calls, draw.randint(0, disk.calls)))
        versions[thing] = _at(disk.files[number], sector, moments[page])
    return Cut("pages", True, versions)


def _by_file(disk: Disk, draw: random.Random) -> Cut:
    """Each file as it was at some moment, and the names up to some moment, as on journaling file systems."""
    versions: dict[Thing, int] = {}
    moments: dict[int, int] = {}
    names = draw.randint(0, len(disk.changes))
    for thing in things(disk):
        kind, number, sector = thing
        if kind == "name":
            versions[thing] = int(number < names)
            continue
        moment = moments.setdefault(number, draw.choice((0, disk.calls, draw.randint(0, disk.calls))))
        file = disk.files[number]
        if kind == "size":
            versions[thing] = sum(call <= moment for call, _ in file.sizes) - 1
        else:
            versions[thing] = _at(file, sector, moment)
    return Cut("files", True, versions)


def _one_missing(disk: Disk, draw: random.Random) -> Cut:
    unsynced = list(things(disk))
    return Cut("one missing", True, {draw.choice(unsynced): 0} if unsynced else {})


def _one_there(disk: Disk, draw: random.Random) -> Cut:
    unsynced = things(disk)
    thing = draw.choice(list(unsynced)) if unsynced else None
    return Cut("one there", False, {} if thing is None else {thing: unsynced[thing] - 1})


def _at(file: File, sector: int, moment: int) -> int:
    return max(sum(call <= moment for call, _ in file.sectors[sector]) - 1, 0)


DRAWS: tuple[Callable[[Disk, random.Random], Cut], ...] = (
    _by_sector,
    _by_sector,
    _by_page,
    _by_file,
    _one_missing,
    _one_there,
)
