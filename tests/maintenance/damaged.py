"""Stores to verify and repair: small ones with known messages, and ways to damage them."""

import os
from pathlib import Path

from tests.support.stores import open_store, properties_of, put

MESSAGES = 126
QUEUES = (("Orders", 0), ("Orders", 1), ("Payments", 0))
LOG_0 = Path("commitlog", f"{0:020d}")


def made(root: Path, messages: int = MESSAGES, start: int = 0) -> list[int]:
    """A closed store of several log, queue and index files, or more messages in an existing one; record offsets."""
    offsets = []
    with open_store(root) as store:
        for number in range(start, start + messages):
            topic, queue_id = QUEUES[number % len(QUEUES)]
            properties = properties_of(
                UNIQ_KEY=f"{number:032X}", KEYS=f"k{number % 7}", TAGS=f"t{number % 3}"
            )
            placed = put(store, body(number), topic, queue_id, properties, now_ms=1_700_000_000_000 + number)
            offsets.append(placed.physical_offset)
            if number % 10 == 9:
                store.write()
        store.write()
    (root / "config").mkdir(exist_ok=True)
    write_config(root, "topics.json", b'{"topicConfigTable":{"Orders":{"topicName":"Orders"}}}')
    write_config(root, "consumerOffset.json", b'{"offsetTable":{"Orders@G":{0:5,1:7}}}')
    return offsets


def body(number: int) -> bytes:
    return f"body {number} ".encode() * (1 + number % 9)


def write_config(root: Path, name: str, text: bytes) -> None:
    (root / "config" / name).write_bytes(text)
    (root / "config" / f"{name}.bak").write_bytes(text)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    byte = path.read_bytes()[position]
    overwrite(path, position, bytes([byte ^ 0x55]))


def files_of(root: Path) -> dict[str, tuple[int, int]]:
    """Each file's modification time and size."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in root.rglob("*")
        if path.is_file()
    }


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def queue_file(root: Path, topic: str = "Orders", queue_id: int = 0, number: int = 0) -> Path:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[number]


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]
