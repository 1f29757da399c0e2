from collections.abc import Callable

class OffsetLines:
    """Makes the members of one table of Apache's config files, a slice after the other. Any thread."""

    def add(
        self,
        table: dict[str, dict[int, int]],
        keys: list[str],
        start: int,
        count_max: int,
        quote: Callable[[str], bytes],
    ) -> tuple[bytes, int]:
        """The lines of the keys from `start` on, with about `count_max` offsets, and the next key's place. Keys that
        the table has no more are left out. `quote(key)`: the key as JSON. OverflowError: an offset has more than 64
        bits."""
