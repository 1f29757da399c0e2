"""copy: copies topics of a cluster or of stores to another cluster, continuously. A program for spark-submit.

Spark plans micro-batches of ranges and checkpoints them; workers fetch and send. SIGTERM or SIGINT ends it;
with `--once` it ends when everything present is copied. The same command resumes it. The source is only read.
The name has an underscore because a copy.py would shadow Python's own when one of these files is run.
"""

import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import orjson

from firearrow._native.base.verbs import argument
from firearrow._native.protocol.name_rules import BROKER_OWN
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.errors import REFUSALS, InvalidOption, SparkToolsError
from firearrow.spark_tools.base.source import OnDataLoss, QueueRange, Source
from firearrow.spark_tools.jobs import task_runner
from firearrow.spark_tools.jobs.arguments import (
    ForwardingArguments,
    RunArguments,
    SourceArguments,
    TargetArguments,
)
from firearrow.spark_tools.jobs.checkpoint import Checkpoint, checkpoint
from firearrow.spark_tools.jobs.copy_task import MicroBatch, MicroBatchCopier, Stopped, Table
from firearrow.spark_tools.jobs.program import Program, finish, job_fingerprint
from firearrow.spark_tools.jobs.queue_mapping import QueueRouting, map_queues
from firearrow.spark_tools.jobs.rate_limit import RateLimits
from firearrow.spark_tools.jobs.report import Report, Watch
from firearrow.spark_tools.jobs.send_job import queues_at
from firearrow.spark_tools.jobs.send_task import SendTask
from firearrow.spark_tools.jobs.stream_log import StreamLog
from firearrow.spark_tools.live.sender import Sender
from firearrow.spark_tools.plan import option_parsing
from firearrow.spark_tools.plan.data_loss import DataLosses
from firearrow.spark_tools.plan.option_parsing import read_value
from firearrow.spark_tools.plan.options import STREAM, SourceOptions
from firearrow.spark_tools.plan.queue_records import StreamOffsets, report_changed
from firearrow.spark_tools.plan.stream_offsets import StreamCursor, StreamLag
from firearrow.spark_tools.plan.topics import TopicSelection

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 1
STOP_S = 20.0
COMMIT_S = 10.0
"""How long a running micro-batch may continue when the job is stopped; its progress files record what is done."""
EVERY_MAX_S = 86400
OURS = re.compile(r"\b(firearrow(?:\.\w{1,64}){2,12}): ([^\n]+)")
"""An error of this package in a traceback: module and name, text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchArguments:
    """How much to copy at a time, and when to end."""

    once: bool = argument("--once", False, "copy the messages that are stored now, and end")
    start: str = argument(
        "--start",
        "earliest",
        "where a new copy starts: earliest or latest (default %(default)s); --from overrides it",
    )
    every_s: float = argument(
        "--every",
        1.0,
        "minimum seconds from one micro-batch to the next (default %(default)s)",
        metavar="S",
        type=float,
    )
    batch_messages: int | None = argument(
        "--batch-messages", None, "maximum messages of one micro-batch", metavar="N", type=int
    )
    batch_bytes: str = argument(
        "--batch-bytes",
        "256m",
        "approximate log bytes of one micro-batch (default %(default)s)",
        metavar="SIZE",
    )

    def check(self) -> None:
        if self.start not in ("earliest", "latest"):
            raise InvalidOption(f"--start: {self.start!r}; expected earliest or latest")
        if not 0 <= self.every_s <= EVERY_MAX_S:
            raise InvalidOption(f"--every: {self.every_s:g} is not within 0 and {EVERY_MAX_S} seconds")
        if self.batch_messages is not None and self.batch_messages < 1:
            raise InvalidOption(f"--batch-messages: {self.batch_messages}; expected at least 1")
        read_value("--batch-bytes", option_parsing.size(1), self.batch_bytes)


def copy(
    source: SourceArguments,
    sending: TargetArguments,
    batching: BatchArguments,
    running: RunArguments,
    own: ForwardingArguments,
) -> int:
    """Copy topics to another cluster, continuously. The same command resumes a job that was stopped.

    firearrow spark copy --namesrv a:9876 --topic orders --target b:9876
    firearrow spark copy --path ~/firearrow/store --topic orders --target b:9876 --once
    """
    source.check()
    sending.check()
    running.check()
    batching.check()
    stream = stream_options(source, batching, running)
    message_source = source.message_source(running.timeout_s)
    watch = Watch()
    fingerprint = job_fingerprint(source, sending, start=batching.start, provenance=own.provenance)
    with checkpoint(running.checkpoint, "copy", fingerprint, list) as job_checkpoint:
        report = Report(
            job="copy",
            id=job_checkpoint.id,
            source=str(message_source),
            target=str(sending.cluster()),
            checkpoint=str(job_checkpoint.folder),
            resumed=job_checkpoint.resumed,
            arguments=fingerprint,
        )
        copying = MicroBatchCopier(
            job_checkpoint=job_checkpoint,
            report=report,
            is_wanted=partial(is_wanted, source),
            routes=partial(routes, message_source, sending, running, report),
            work=partial(work, source, sending, running, job_checkpoint, own.provenance),
            compare=partial(compare, message_source, source.fail_on_data_loss),
        )
        with stopped_by_signals(copying):
            if batching.once:
                with suppress(Stopped):
                    options = SourceOptions.of(stream, STREAM)
                    copy_once(copying, message_source, options, quiet=running.quiet)
            else:
                run(copying, stream, batching, quiet=running.quiet)
        report.seconds = watch.seconds
    return finish(report, running)


def stream_options(
    source: SourceArguments, batching: BatchArguments, running: RunArguments
) -> dict[str, str]:
    """The options of the stream source. InvalidOption: an argument that a stream does not support."""
    for option, value in (("--until", source.until), ("--offsets", source.offsets)):
        if value is not None:
            raise InvalidOption(f"{option}: a copy continues and has no such end; replay copies a part")
    if source.by_index:
        raise InvalidOption("--by-index: a copy reads all that comes; replay finds a few messages")
    source.message_filter(), source.queue_set(), source.message_source(running.timeout_s)
    since, _ = source.stored()
    options = {
        "startingOffsets": batching.start,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "maxBytesPerTrigger": batching.batch_bytes,
        "pollTimeout": f"{round(running.timeout_s * 1000)}ms",
        **{name: text for name, _, text in (pair.partition("=") for pair in source.settings or ())},
    }
    if source.path:
        options["path"] = orjson.dumps(source.path).decode()
    if source.name_server:
        options["nameServer"] = source.name_server
    if source.group:
        options["group"] = source.group
    if source.topic_names():
        options["topic"] = ",".join(sorted(source.topic_names()))
    pattern = source.topic_pattern()
    if pattern is not None:
        options["topicPattern"] = pattern
    if since is not None:
        options["startingTimestamp"] = str(since)
    if batching.batch_messages is not None:
        options["maxOffsetsPerTrigger"] = str(batching.batch_messages)
    SourceOptions.of(options, STREAM)
    return options


def is_wanted(source: SourceArguments, queue: MessageQueue) -> bool:
    return (queue.broker_name, queue.queue_id) in source.queue_set()


def routes(
    message_source: Source,
    sending: TargetArguments,
    running: RunArguments,
    report: Report,
    queues: Sequence[MessageQueue],
) -> Table:
    """Create missing topics of the target if `create_topics` is set; returns the target queues."""
    with message_source.open() as reader:
        there = TopicSelection(tuple(sorted({queue.topic for queue in queues})), None).queues_there(reader)
    sources = sorted({*there, *queues})
    with Sender(sending.cluster(), timeout_s=running.timeout_s) as sender:
        targets, notes = queues_at(sender, sending, sources)
    mapping = map_queues(sources, targets, sending.renamed())
    report.notes += [*notes, *(f"other queue id: {text}" for text in mapping.moved)]
    return mapping.table


def work(
    source: SourceArguments,
    sending: TargetArguments,
    running: RunArguments,
    job_checkpoint: Checkpoint,
    provenance: bool,
    routing: QueueRouting,
    at_a_time: int,
) -> task_runner.Work:
    return SendTask(
        message_source=source.message_source(running.timeout_s),
        message_filter=source.message_filter(),
        target=sending.cluster(),
        routing=routing,
        job=job_checkpoint.id,
        drop=BROKER_OWN,
        provenance=provenance,
        fail_on_data_loss=source.fail_on_data_loss,
        rates=RateLimits(sending.rate, sending.bytes_rate).shared(at_a_time),
        timeout_s=running.timeout_s,
    )


def compare(
    message_source: Source,
    fail: bool,
    parts: Sequence[QueueRange],
    planned: StreamOffsets,
    count: OnDataLoss,
) -> None:
    """DataLoss, or `count`, for the ranges of queues that were changed while they were copied."""
    losses = DataLosses(fail, None if fail else count)
    with message_source.open() as reader:
        report_changed(reader, parts, planned, losses)
    losses.check()


def copy_once(
    copying: MicroBatchCopier, message_source: Source, options: SourceOptions, *, quiet: bool
) -> None:
    """Copy what is there now, first a micro-batch that was not finished. Micro-batches are planned here, with the
    checkpoint of a stream: one of Spark needs seconds to start, and more for each of them. Stopped: `copying` was
    stopped; errors of the source and the target."""
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


def run(
    copying: MicroBatchCopier, options: Mapping[str, str], batching: BatchArguments, *, quiet: bool
) -> None:
    """Run until it is stopped. One of REFUSALS: why it cannot continue."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 (arguments are checked without Spark)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        follow(copying, start(copying, options, batching), quiet)
    except PySparkException as error:
        if not copying.stopping or Stopped.__name__ not in str(error):
            raise sentence_of(str(error)) from error
    except (Py4JError, OSError) as error:
        raise SparkToolsError(
            f"lost the connection to Spark: {error}; run the same command again to resume"
        ) from None


def start(
    copying: MicroBatchCopier, options: Mapping[str, str], batching: BatchArguments
) -> "StreamingQuery":
    from firearrow.spark_tools.datasource.ranges import RangeSource  # noqa: PLC0415
    from firearrow.spark_tools.sessions import session  # noqa: PLC0415

    task_runner.context("copy")
    spark = session("firearrow copy")
    spark.dataSource.register(RangeSource)
    stream = spark.readStream.format(RangeSource.name()).options(**options).load()
    location = (copying.job_checkpoint.folder / "stream").as_uri()
    writing = stream.writeStream.foreachBatch(copying).option("checkpointLocation", location)
    return writing.trigger(processingTime=f"{round(batching.every_s * 1000)} milliseconds").start()


def follow(copying: MicroBatchCopier, query: "StreamingQuery", quiet: bool) -> None:
    """Wait until the query ends, or end it when the job is stopped. StreamingQueryException."""
    from firearrow.spark_tools.datasource.progress import lag  # noqa: PLC0415

    shown = None
    while not query.awaitTermination(POLL_S):
        progress = query.lastProgress
        if not quiet and progress is not None and progress.batchId != shown:
            shown = progress.batchId
            print(f"copy: {copying}, {lag(progress)}", file=sys.stderr, flush=True)
        if copying.stopping:
            copying.stop(STOP_S)
            let_commit(query)
            query.stop()


def let_commit(query: "StreamingQuery") -> None:
    """Wait until Spark has committed a finished micro-batch, or the next run would count it again."""
    until = time.monotonic() + COMMIT_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        time.sleep(POLL_S / 10)


@contextmanager
def stopped_by_signals(copying: MicroBatchCopier) -> Iterator[None]:
    """SIGTERM and SIGINT stop the copy while the block runs."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: copying.stop(0)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def sentence_of(text: str) -> Exception:
    """Our own error from Spark's text: the last one, since earlier ones are its causes."""
    for path, sentence in reversed(OURS.findall(text)):
        module, _, name = path.rpartition(".")
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, REFUSALS):
            return kind(sentence)
    fault = task_runner.fault_in(text)
    if fault is not None:
        return fault
    faults = re.findall(r"^(?:E\s+)?(\w*(?:Error|Exception): [^\n]+)", text, re.MULTILINE)
    return SparkToolsError(f"the stream ended: {faults[-1] if faults else text.strip().splitlines()[0]}")


cli = Program(
    "copy", copy, (SourceArguments, TargetArguments, BatchArguments, RunArguments, ForwardingArguments)
)

if __name__ == "__main__":
    cli.main()
