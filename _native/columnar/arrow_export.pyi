from typing import final

@final
class ArrowBatch:
    """Columns for an Arrow reader, as one struct array; freed with this object if no reader took it over."""

    @property
    def address(self) -> int:
        """Address of an `ArrowArray` of Arrow's C data interface, valid as long as this object lives."""
