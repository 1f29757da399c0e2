"""Config files that a live Apache broker wrote, from the golden store."""

from tests.golden import unpacked_file


def config_file(name: str) -> bytes:
    return unpacked_file("store-apache", f"config/{name}")


def lines(text: bytes) -> list[bytes]:
    """Sorted, without the comma that depends on the order: Java's maps have no order."""
    return sorted(line.rstrip(b",") for line in text.splitlines())
