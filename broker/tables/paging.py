"""Paging of large tables (5.3 and later): which names a caller gets. Pure."""

from collections.abc import Iterable

from firearrow.broker.fastjson import loads
from firearrow.broker.tables.dataversion import DataVersion


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
