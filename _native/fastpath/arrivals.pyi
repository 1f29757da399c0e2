from collections.abc import Callable, Collection, Iterable

from firearrow._native.fastpath.long_polling import PullHoldService, Queue

class ArrivalNotifier:
    """Notifies `hold_service` and all listeners. Call it with the queues that have newly visible messages."""

    def __init__(self, hold_service: PullHoldService | None = None) -> None: ...
    def __call__(self, queues: Iterable[Queue]) -> None: ...
    def listen(
        self,
        call: Callable[[set[Queue]], None],
        *,
        topics: Iterable[str] = (),
        waiters: Collection[object] = (),
    ) -> None:
        """Call `call(queues)` with all queues of an arrival if one of `topics` is among them or `waiters` is
        not empty."""
