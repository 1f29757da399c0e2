"""White addresses of `plain_acl.yml`: one address, a list, a range, or everything. Pure functions."""

import ipaddress
from collections.abc import Callable
from typing import NamedTuple

from firearrow._native.protocol.access_model import Address, address_of

Ranges = tuple[tuple[int, int], ...]
EVERYWHERE = {"*", "*.*.*.*", "*:*:*:*:*:*:*:*"}


class RemoteAddresses(NamedTuple):
    """`ranges`: for each part of an address (4 of IPv4, 8 of IPv6) the lowest and the highest value."""

    everywhere: bool
    ranges: tuple[Ranges, ...]

    @staticmethod
    def parse(text: str) -> "RemoteAddresses":
        """ValueError: it is in none of the forms."""
        text = text.strip()
        if text in EVERYWHERE:
            return RemoteAddresses(True, ())
        return RemoteAddresses(False, tuple(_ranges(each) for each in _each(text)))

    def match(self, address: Address | None) -> bool:
        if self.everywhere:
            return True
        if address is None:
            return False
        parts = _parts(address)
        return any(
            len(ranges) == len(parts)
            and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))
            for ranges in self.ranges
        )


def _each(text: str) -> list[str]:
    """The members of a list: `a,b` or `1.2.3.{4,5}`."""
    if not text:
        return []
    if text.endswith("}"):
        head, brace, last = text[:-1].rpartition("{")
        if not brace or not head.endswith((".", ":")):
            raise ValueError(f"{text[:64]!r} is not a list of addresses such as 10.0.0.{{1,2}}")
        return [head + word.strip() for word in last.split(",")]
    return [word.strip() for word in text.split(",") if word.strip()]


def _ranges(text: str) -> Ranges:
    is_v6 = ":" in text
    if "*" not in text and "-" not in text:
        address = address_of(text)
        if address is None:
            raise ValueError(f"{text[:64]!r} is not an address")
        return tuple((part, part) for part in _parts(address))
    words, count = (text.split(":"), 8) if is_v6 else (text.split("."), 4)
    number: Callable[[str], int] = (lambda word: int(word, 16)) if is_v6 else int
    high = 0xFFFF if is_v6 else 255
    if len(words) != count:
        raise ValueError(f"{text[:64]!r} is not an address with {count} parts")
    found = []
    for word in words:
        first, dash, last = word.strip().partition("-")
        try:
            low, top = (0, high) if word.strip() == "*" else (number(first), number(last if dash else first))
        except ValueError:
            raise ValueError(f"{text[:64]!r} is not a range of addresses") from None
        if not 0 <= low <= top <= high:
            raise ValueError(f"{text[:64]!r} has the range {word[:16]}, which is none of 0 to {high}")
        found.append((low, top))
    return tuple(found)


def _parts(address: Address) -> tuple[int, ...]:
    packed = address.packed
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(packed)
    return tuple(int.from_bytes(packed[n : n + 2]) for n in range(0, 16, 2))
