from typing_extensions import Buffer

class JournalPage:
    """A page that entries are written to, one behind the other; at first there is none, and no room."""

    @property
    def at(self) -> int:
        """Where the next entry goes."""

    def open(self, page: Buffer, at: int) -> None:
        """Write to this page from here on, beginning at `at`. BufferError: it cannot be written; ValueError: it has no
        such place."""

    def release_page(self) -> None:
        """The page may be closed."""

    def put(self, kind: int, name: bytes, number: int, value: int, end: int, kept: int = 0) -> bool:
        """Writes one entry; False: with `kept` bytes behind it, it does not fit. ValueError: its name is too long;
        OverflowError: a number is."""
