"""Paging of large tables (5.3 and later): which names a caller gets, and what fits into one answer. Pure."""

from collections.abc import Iterable

from firearrow.broker.base.fastjson import loads
from firearrow.broker.tables.dataversion import DataVersion

BODY_BYTES_MAX = 15 << 20
"""A body stays below what a peer takes in a frame (16 MiB)."""


def too_large(body: bytes) -> str | None:
    """What is wrong with a body that no peer would take; None if nothing is."""
    if len(body) > BODY_BYTES_MAX:
        return (
            f"the table is {len(body)} bytes long, at most {BODY_BYTES_MAX} fit into an answer: ask for pages"
        )
    return None


def page(
    names: Iterable[str], version: DataVersion, seen_version: str, begin: int, at_most: int
) -> list[str]:
    """The names from `begin` on in their order; from the first if the caller saw another version, or none."""
    ordered = sorted(names)
    if begin < 0 or not _is_same(seen_version, version):
        begin = 0
    return ordered[begin : begin + max(0, at_most)]


def _is_same(seen: str, version: DataVersion) -> bool:
    if not seen.strip():
        return False
    try:
        return DataVersion.from_object(loads(seen, 4096)) == version
    except ValueError:
        return False
