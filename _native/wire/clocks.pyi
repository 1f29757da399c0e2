class Clock:
    """The system's; a class that inherits may have another time (tests)."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
