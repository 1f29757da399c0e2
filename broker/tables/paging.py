"""Pages of large tables (5.3 and later): which names a page has, and how large an answer may be. Pure."""

from collections.abc import Iterable

from firearrow._native.protocol.fastjson import loads
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables.dataversion import DataVersion

LIST_MAX = 1000
"""Entries of a list of FireArrow's."""
BODY_BYTES_MAX = 15 << 20
"""A body stays below the 16 MiB that a peer accepts in a frame."""


def too_large(body: bytes) -> str | None:
    """The fault of a body that is too large for a peer; None if it is not."""
    if len(body) > BODY_BYTES_MAX:
        return f"the table has {len(body)} bytes, at most {BODY_BYTES_MAX} fit into an answer: ask for pages"
    return None


def page(
    names: Iterable[str], version: DataVersion, seen_version: str, begin: int, at_most: int
) -> list[str]:
    """At most `at_most` sorted names from number `begin` on; from 0 if the caller's version is outdated."""
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


def limit_of(request: RemotingCommand) -> int:
    """How many entries a list of FireArrow's may have (`limit`). Refusal."""
    limit = request.integer_or("limit", LIST_MAX, 32)
    if not 1 <= limit <= LIST_MAX:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"limit must be 1 to {LIST_MAX}, not {limit}")
    return limit
