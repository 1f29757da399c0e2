"""Importing: the pieces of one chain from their files to a cluster, in the worker: Arrow → batches → socket.

A piece's mark moves over rows only that the target has acknowledged: at least once, whatever happens. One thread.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from firearrow.spark_tools.errors import OptionWrong
from firearrow.spark_tools.jobs.imported import Piece
from firearrow.spark_tools.jobs.marks import Mark, Marks, Slice
from firearrow.spark_tools.jobs.pace import UNLIMITED, Bucket, Rates
from firearrow.spark_tools.jobs.parquet_rows import batches
from firearrow.spark_tools.live.sender import Sender
from firearrow.spark_tools.live.target import Target
from firearrow.spark_tools.outgoing import Outgoing, Outlet, unique_ids

MARK_BYTES = 32 << 20
"""Rows that are sent before all of them are awaited and marked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    """Picklable; called in the worker with the pieces of one chain. `renamed`: the target's topic of a row's topic."""

    pieces: Mapping[str, Piece]
    target: Target
    outlet: Outlet
    renamed: Callable[[str], str]
    job: str
    rates: Rates = UNLIMITED
    timeout_s: float = 60

    def __call__(self, slices: Sequence[Slice], marks: Marks) -> None:
        buckets = Bucket(self.rates.messages), Bucket(self.rates.bytes)
        with Sender(self.target, timeout_s=self.timeout_s) as sender:
            for piece in slices:
                mark = marks.read(piece)
                if mark.next < piece.part.end:
                    Passage(self, self.pieces[piece.part.queue.topic], mark, marks, sender, buckets).send()


class Passage:
    """One piece on its way."""

    def __init__(
        self,
        of: Importing,
        piece: Piece,
        mark: Mark,
        marks: Marks,
        sender: Sender,
        buckets: tuple[Bucket, Bucket],
    ) -> None:
        self._of, self._piece, self._mark, self._marks = of, piece, mark, marks
        self._sender, self._buckets = sender, buckets

    def send(self) -> None:
        """What is left of it. SendFailed, OptionWrong: the mark stays before what was not acknowledged."""
        outgoing, rows, size = self._outgoing(), 0, 0
        for batch in batches(self._piece, self._mark.next):
            self._buckets[0].take(len(batch))
            self._buckets[1].take(batch.nbytes)
            self._give(outgoing, with_topics(batch, self._of.renamed))
            rows, size = rows + len(batch), size + batch.nbytes
            if size >= MARK_BYTES:
                self._settle(outgoing, rows)
                outgoing, rows, size = self._outgoing(), 0, 0
        self._settle(outgoing, rows)

    def _outgoing(self) -> Outgoing:
        """A row without a unique key gets one that says where it is from: the same if it is sent again."""
        ids = unique_ids(self._of.job, self._piece.name), self._mark.next
        return Outgoing(self._sender, self._of.outlet, ids)

    def _give(self, outgoing: Outgoing, batch: pa.RecordBatch) -> None:
        try:
            outgoing.send(batch)
        except OptionWrong as fault:
            raise OptionWrong(f"{self._piece.name}, behind row {self._mark.next}: {fault}") from fault

    def _settle(self, outgoing: Outgoing, rows: int) -> None:
        sent = outgoing.finish()
        self._mark.count("messages", sent.messages)
        self._mark.count("bytes", sent.bytes)
        self._mark.next += rows
        self._marks.write(self._mark)


def with_topics(batch: pa.RecordBatch, renamed: Callable[[str], str]) -> pa.RecordBatch:
    """The column topic as `renamed` says; what it was is the column sourceTopic then."""
    if "topic" not in batch.schema.names:
        return batch
    coded = batch.column("topic").dictionary_encode()
    names: list[Any] = coded.dictionary.to_pylist()
    topics = [name and renamed(name) for name in names]
    if topics == names:
        return batch
    column = pa.DictionaryArray.from_arrays(coded.indices, pa.array(topics, pa.string())).dictionary_decode()
    place = batch.schema.names.index("topic")
    if "sourceTopic" not in batch.schema.names:
        batch = batch.append_column("sourceTopic", batch.column("topic"))
    return batch.set_column(place, "topic", column)
