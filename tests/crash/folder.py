"""Folder: writes a state of the disk as files, quickly. On an in-memory file system if there is one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.cuts import Image
from tests.crash.disk import SECTOR_BYTES

MEMORY = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for states, with an empty subfolder `recorded` for the recording."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as path:
        (Path(path) / "recorded").mkdir()
        yield Path(path)


def make(root: Path, image: Image) -> None:
    """`root` contains the state afterwards, and nothing else."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir()
    for path, content in image.items():
        if content is None:
            (root / path).mkdir()
        else:
            _write(root / path, *content)


def _write(path: Path, size: int, sectors: dict[int, bytes]) -> None:
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for sector, content in sectors.items():
            os.pwrite(number, content, sector * SECTOR_BYTES)
        os.ftruncate(number, size)
    finally:
        os.close(number)
