from typing_extensions import Buffer

class JournalPage:
    """The page that journal entries are appended to. Initially there is none, and `put` returns False."""

    @property
    def at(self) -> int:
        """Position of the next entry."""

    def open(self, page: Buffer, at: int) -> None:
        """Append to this page from `at` on. BufferError: it is not writable; ValueError: `at` is outside
        it."""

    def release_page(self) -> None:
        """Release the page, so that it can be closed."""

    def put(self, kind: int, name: bytes, number: int, value: int, end: int, kept: int = 0) -> bool:
        """Append one entry; False: it does not fit with `kept` bytes left after it. ValueError: the name is
        too long; OverflowError: a number is too large."""
