"""The files of a store, FireArrow's or Apache's, read without a broker, even while a broker writes to them.

    from firearrow.client.store import CommitLog

    with CommitLog.open_readonly("/path/to/store/commitlog") as log:
        for record in log.records():
            print(record.topic, record.queue_offset, record.body)

`CommitLog.open_readonly` takes no lock and changes nothing. `records` yields all complete records in log
order, up to the first damaged one. `Record.body` is as stored, possibly compressed. OSError: a file cannot be
read. `ConsumeQueue.open_readonly` opens the folder of one plain queue in the same way.
The other methods of both belong to the broker's store. Linux only.
"""

import sys

if sys.platform != "linux":
    raise ImportError("firearrow.client.store needs Linux: on other systems FireArrow is only a client")

from firearrow._native.store.log.commit_log import CommitLog
from firearrow._native.store.log.consume_queue import ConsumeQueue
from firearrow._native.store.log.record import Record

__all__ = ["CommitLog", "ConsumeQueue", "Record"]


def __dir__() -> list[str]:
    return sorted(__all__)
