"""The fuzzer: a small store, one to four random damages in any of its files, and what must hold afterwards.

The store opens, or refuses with one sentence; no message is delivered that was not sent, or at another offset;
undamaged messages are served, at the latest after the start that follows a reader that met the damage; new messages
are accepted.
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.files.errors import StoreError
from tests.corruption.filled import Filled, Key
from tests.support.stores import SEGMENT_BYTES

Stretch = tuple[int, int]
Damage = Callable[[random.Random, Path], Stretch]
"""Damages a file; returns the range of changed bytes."""
ALL: Stretch = (0, 1 << 62)


def flip(rng: random.Random, path: Path) -> Stretch:
    at = rng.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return at, at + 1


def overwrite(rng: random.Random, path: Path) -> Stretch:
    size = path.stat().st_size
    at, length = rng.randrange(size), rng.choice((1, 4, 20, 100, 512, 4096))
    length = min(length, size - at)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length))))
    return at, at + length


def cut(rng: random.Random, path: Path) -> Stretch:
    at = rng.choice((0, rng.randrange(path.stat().st_size)))
    os.truncate(path, at)
    return at, ALL[1]


def lengthen(rng: random.Random, path: Path) -> Stretch:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 20, 4096))))
    return 0, 0


def delete(_: random.Random, path: Path) -> Stretch:
    path.unlink()
    return ALL


def shift(rng: random.Random, path: Path) -> Stretch:
    """A few bytes are missing; those after them move up."""
    data = path.read_bytes()
    at = rng.randrange(len(data))
    path.write_bytes(data[:at] + data[at + 20 :] + bytes(len(data) - len(data[:at] + data[at + 20 :])))
    return at, ALL[1]


DAMAGES: tuple[Damage, ...] = (flip, flip, overwrite, overwrite, cut, lengthen, delete, shift)


class Round:
    """One damaged copy of a store. `damages` lists what was done."""

    def __init__(self, origin: Filled, root: Path, seed: str) -> None:
        self.origin = origin
        self.root = origin.copy(root)
        self.rng = random.Random(seed)
        self.damages: list[str] = []
        self.hit: list[Stretch] = []

    def run(self) -> str:
        """Damage it and check; returns what happened, in a word. AssertionError with the list of damages."""
        for _ in range(self.rng.randint(1, 4)):
            self._damage()
        try:
            found = self.origin.check(self.root, set(), headers=self.hit)
            found += self.origin.check(self.root, self._must(), keys=self._keys(), headers=self.hit)
            self.origin.continues(self.root)
        except StoreError as refused:
            if self.hit and len(str(refused).splitlines()) == 1:
                return "refused"
            raise
        except BaseException as error:
            error.add_note("; ".join(self.damages))
            raise
        return "repaired" if found else "unnoticed"

    def _keys(self) -> bool:
        """Garbled slots and entries of the index are found by `firearrow store verify`, not at a start."""
        return not any("index/" in each and each.split()[0] not in ("delete", "cut") for each in self.damages)

    def _must(self) -> set[Key]:
        """Data after a bad record may be the torn tail after a kill."""
        untouched = self.origin.untouched(self.hit)
        if not self.origin.killed or not self.hit:
            return untouched
        low = min(low for low, _ in self.hit)
        return {key for key in untouched if self.origin.positions[key].end <= low}

    def _damage(self) -> None:
        files = [path for path in sorted(self.root.rglob("*")) if path.is_file() and path.stat().st_size]
        path = self.rng.choice([path for path in files if path.name not in ("lock", "abort")])
        damage = self.rng.choice(DAMAGES)
        if self.rng.random() < 0.1:
            other = self.rng.choice([each for each in files if each.parent.name == path.parent.name])
            self._swap(path, other)
        else:
            low, high = damage(self.rng, path)
            self.damages.append(f"{damage.__name__} {path.relative_to(self.root)} {low}..{high}")
            self._note(path, low, high)

    def _swap(self, path: Path, other: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        self.damages.append(f"swap {path.relative_to(self.root)} {other.relative_to(self.root)}")
        self._note(path, *ALL)
        self._note(other, *ALL)

    def _note(self, path: Path, low: int, high: int) -> None:
        if path.parent.name == "commitlog" and low < SEGMENT_BYTES and low < high:
            base = int(path.name)
            self.hit.append((base + low, base + min(high, SEGMENT_BYTES)))


def run(rounds: int, seed: int, progress: Callable[[str], None] = lambda text: None) -> Counter[str]:
    """That many rounds, half of them with a killed store; counts of what happened."""
    results: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="firearrow-damage-") as folder:
        origins = [Filled(Path(folder) / f"origin-{killed}", killed=killed) for killed in (False, True)]
        for number in range(rounds):
            origin, name = origins[number % 2], f"{seed}:{number}"
            progress(f"round {name}")
            trial = Round(origin, Path(folder) / "store", name)
            try:
                results[trial.run()] += 1
            except BaseException as error:
                error.add_note(f"round {name}: {'a killed' if origin.killed else 'a stopped'} store")
                raise
            shutil.rmtree(trial.root)
    return results
