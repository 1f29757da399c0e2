from typing import final

@final
class ArrowBatch:
    """Columns on their way to whoever reads Arrow, as one struct array; freed if nobody takes it over."""

    @property
    def address(self) -> int:
        """Of an `ArrowArray` of Arrow's C data interface, valid for as long as this is held."""
