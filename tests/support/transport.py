"""RecordingTransport: a transport without a socket, which records what a connection writes to it."""


class RecordingTransport:
    """`reading` and `closing` are as the connection left them."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True
        self.closing = False

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close
