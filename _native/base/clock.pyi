class Clock:
    """The system's clock; tests subclass it."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
    def monotonic_ms(self) -> int:
        """Milliseconds; never goes back."""
