"""Random damage to every kind of file, then repair: `python -m tests.maintenance.damage_rounds --rounds 500 --seed 1`.

Each round creates a small store, damages up to three of its files (bytes changed, zeroed, a file cut, deleted, swapped
with another), verifies and repairs it with everything allowed. A verification fails with one sentence only;
afterwards the store is clean, opens, and serves every message that could be read before, each as it was sent.
"""

import argparse
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from firearrow._native.store.files.errors import StoreError
from firearrow._native.store_checks.findings import Kind
from firearrow.broker.maintenance.dump import RecordQuery, records
from firearrow.broker.maintenance.repair import Repair, RepairOptions
from firearrow.broker.maintenance.verify import VerifyOptions, verify
from tests.maintenance.damaged import QUEUES, made
from tests.support.stores import bodies, open_store

MESSAGES_MAX = 90
CHECKS = VerifyOptions(jobs=1)
LEFT = {Kind.JOURNAL}


def change(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    for n in range(at, min(len(data), at + rng.choice((1, 1, 4, 60)))):
        data[n] ^= rng.randrange(1, 256)
    path.write_bytes(data)
    return f"changed at {at}"


def zero(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    size = min(rng.choice((20, 200, 4096)), len(data) - at)
    data[at : at + size] = bytes(size)
    path.write_bytes(data)
    return f"zeroed {size} at {at}"


def cut(path: Path, rng: random.Random) -> str:
    size = rng.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(size)
    return f"cut at {size}"


def delete(path: Path, rng: random.Random) -> str:
    path.unlink()
    return "deleted"


def swap(path: Path, rng: random.Random) -> str:
    other = rng.choice([each for each in path.parent.iterdir() if each.is_file()])
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)
    return f"swapped with {other.name}"


DAMAGES: tuple[Callable[[Path, random.Random], str], ...] = (change, change, zero, cut, delete, swap)


def damage(root: Path, rng: random.Random) -> list[str]:
    """What was done, for the report of a failure."""
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        files = [path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock"]
        files = [path for path in files if path.stat().st_size]
        folders = sorted({path.relative_to(root).parts[0] for path in files})
        top = rng.choice(folders)
        path = rng.choice([each for each in files if each.relative_to(root).parts[0] == top])
        done.append(f"{path.relative_to(root)} {rng.choice(DAMAGES)(path, rng)}")
    return done


def readable(root: Path) -> list[bytes]:
    """Bodies of messages in the log, sorted, except a last one whose properties end in a zero byte: it is torn."""
    said: list[str] = []
    found = records(str(root), RecordQuery(), said.append)
    wanted = (each for each in found if (each.topic, each.queue_id) in QUEUES)
    return sorted(each.body for each in wanted if not each.properties_bytes.endswith(b"\0"))


def one_round(folder: Path, rng: random.Random) -> str:
    """How it ended. AssertionError: not as promised."""
    root = folder / "store"
    made(root, rng.randrange(1, MESSAGES_MAX))
    done = damage(root, rng)
    try:
        before = readable(root)
        asked = RepairOptions(drop_damaged=True, reset_offsets=True)
        repair = Repair(str(root), verify(str(root), CHECKS), asked)
        repair.run(repair.plan(), lambda _: None)
        after = verify(str(root), CHECKS)
        beyond = [
            each
            for each in after.findings
            if (each.where.queue_offset or 0) > MESSAGES_MAX or "\ufffd" in (each.where.topic or "")
        ]
        if beyond and {each.kind for each in after.findings} <= {Kind.NO_ENTRY, *LEFT}:
            return "left: no CRC covers a record's head, and its offset is impossible"
        assert {each.kind for each in after.findings} <= LEFT, after.findings
        left = readable(root)
        assert not Counter(before) - Counter(left), "messages that could be read are lost"
        with open_store(root) as store:
            served = sorted(each for queue in QUEUES for each in bodies(store, *queue))
        assert served == left, f"{len(left)} messages lie in the log, {len(served)} are served"
    except StoreError as error:
        return f"refused: {error}"
    except BaseException as error:
        error.add_note(f"{done} in {root}")
        raise
    return "clean" if left == before else "more"


def rounds(count: int, seed: int) -> Counter[str]:
    """How the rounds ended. AssertionError: one was not as promised; its folder is kept."""
    ended: Counter[str] = Counter()
    for number in range(count):
        folder = Path(tempfile.mkdtemp(prefix="firearrow-damage-"))
        ended[one_round(folder, random.Random(seed * 1_000_003 + number)).partition(":")[0]] += 1
        shutil.rmtree(folder)
    return ended


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Random damage to every kind of file, then repair.")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(dict(rounds(given.rounds, given.seed)))
