from collections.abc import Callable, Collection, Iterable

from firearrow._native.path.holds import Holds, Queue

class News:
    """Notifies `holds` and all listeners. Call it with queues that have messages which readers may see now."""

    def __init__(self, holds: Holds | None = None) -> None: ...
    def __call__(self, queues: Iterable[Queue]) -> None: ...
    def listen(
        self,
        call: Callable[[set[Queue]], None],
        *,
        topics: Iterable[str] = (),
        crowd: Collection[object] = (),
    ) -> None:
        """Call `call(queues)` with all queues of an arrival, if one of `topics` is among them or `crowd` is
        not empty."""
