"""Config files that a live Apache broker wrote, from the golden store."""

import functools
import tarfile

from tests.golden import GOLDEN


@functools.cache
def config_file(name: str) -> bytes:
    with tarfile.open(GOLDEN / "store-apache.tar.xz") as archive:
        member = archive.extractfile(f"store-apache/config/{name}")
        assert member is not None
        return member.read()


def lines(text: bytes) -> list[bytes]:
    """Sorted, without the comma that depends on the order: Java's maps have no order."""
    return sorted(line.rstrip(b",") for line in text.splitlines())
