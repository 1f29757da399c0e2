"""Records whose bodies do not match their CRCs: reported as lost and left out. Pure; any thread."""

from firearrow._native.columnar.record_spans import Spans
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.source import LMQ_PREFIX, OnDataLoss, QueueRange

BAD_CRC = "the body of the record does not match its CRC"


def with_valid_crc(spans: Spans, queue: MessageQueue, on_data_loss: OnDataLoss) -> Spans:
    """The records whose bodies match their CRCs, on the same window.

    The others are reported to `on_data_loss`, adjacent ones as one range.
    """
    wrong = spans.wrong_bodies()
    if not wrong:
        return spans
    for lost in _ranges(spans, wrong, queue):
        on_data_loss(lost, BAD_CRC)
    left_out = set(wrong)
    return spans.take(index for index in range(len(spans)) if index not in left_out)


def _ranges(spans: Spans, indexes: list[int], queue: MessageQueue) -> list[QueueRange]:
    found: list[QueueRange] = []
    for index in indexes:
        record = spans[index]
        if queue.topic.startswith(LMQ_PREFIX):
            queue = MessageQueue(record.topic, queue.broker_name, record.queue_id)
        start = record.queue_offset
        if found and found[-1].queue == queue and found[-1].end == start:
            start = found.pop().start
        found.append(QueueRange(queue, start, record.queue_offset + 1))
    return found
