"""copy --once: the micro-batches of a stream, planned in this process, with the same checkpoint.

A stream of Spark needs seconds to start and more for each micro-batch. Spark is started only for a micro-batch that
is worth it, see task_runner. One thread; `MicroBatchCopier.stop` may be called from any.
"""

import sys
from functools import partial

from firearrow.spark_tools.base.source import QueueRange, Source
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.copy_task import MicroBatch, MicroBatchCopier
from firearrow.spark_tools.jobs.stream_log import StreamLog
from firearrow.spark_tools.plan.options import SourceOptions
from firearrow.spark_tools.plan.stream_offsets import StreamCursor, StreamLag


def copy_once(
    copying: MicroBatchCopier, message_source: Source, options: SourceOptions, *, quiet: bool
) -> None:
    """Copy what is there now, first a micro-batch that was not finished. Stopped: `copying` was stopped; errors
    of the source and the target."""
    gone: list[tuple[QueueRange, str]] = []
    cursor = StreamCursor(message_source, options, lost=lambda part, why: gone.append((part, why)))
    log = StreamLog(copying.job_checkpoint.folder / "stream")
    cursor.pin()
    number = log.last_committed()
    start = cursor.first() if number < 0 else log.end(number)
    planned = log.last_planned() > number
    while planned or (end := cursor.end(start, limited=True)).json() != start.json():
        number += 1
        if planned:
            end, planned = log.end(number), False
        else:
            log.plan(number, end)
        parts: list[tuple[QueueRange, str | None]] = [
            (part, None) for split in cursor.parts(start, end) for part in split
        ]
        batch = MicroBatch(number, end, [*parts, *gone])
        gone.clear()
        copying.copy(batch, partial(task_runner.context_for, "copy"))
        log.commit(number)
        start = end
        if not quiet:
            lag = StreamLag.between(start, cursor.newest())
            print(f"copy: {copying}, {lag}", file=sys.stderr, flush=True)
