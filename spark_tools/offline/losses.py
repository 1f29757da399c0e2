"""Losses: what of one queue was asked for and is not there, told in ranges as long as they are. One thread."""

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange


class LossRanges:
    """Neighbours are told as one, with the reason of the first. What `on_data_loss` raises goes through."""

    def __init__(self, queue: MessageQueue, on_data_loss: OnDataLoss) -> None:
        self._queue = queue
        self._on_data_loss = on_data_loss
        self._start = self._end = 0
        self._why = ""

    def add(self, start: int, end: int, why: str) -> None:
        """Queue offsets [start, end), behind what was added before; nothing if the range is empty."""
        if end <= start:
            return
        if self._end > self._start and (start != self._end or why != self._why):
            self.tell()
        if self._end <= self._start:
            self._start, self._why = start, why
        self._end = end

    def tell(self) -> None:
        """What waits, if anything does."""
        start, end, self._start = self._start, self._end, self._end
        if end > start:
            self._on_data_loss(QueueRange(self._queue, start, end), self._why)
