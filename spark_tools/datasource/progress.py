"""Progress of streams after each micro-batch: their lag, and a consumer group that follows.

Spark calls a listener in the driver, in a separate thread, after the micro-batch. A failure here is logged,
not raised; the next micro-batch commits the offsets.
"""

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from firearrow.client.base.errors import ClientError
from firearrow.spark_tools.base.errors import REFUSALS
from firearrow.spark_tools.datasource.stream_sink import commit_offsets
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.plan.offsets import Offsets, offsets_of
from firearrow.spark_tools.plan.stream_offsets import StreamLag

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

WAIT_S = 10.0
log = logging.getLogger("firearrow.spark")


def lag(progress: "StreamingQueryProgress") -> StreamLag:
    """The lag of all sources of the format `rocketmq` together, at the end of that micro-batch."""
    read: Offsets = {}
    newest: Offsets = {}
    for _, source in _sources(progress):
        read |= _offsets(source.endOffset)
        newest |= _offsets(source.latestOffset)
    return StreamLag.between(read, newest)


class GroupFollows(StreamingQueryListener):
    """After each micro-batch, commits the offsets that were read for `group` at the brokers, never backwards.

    `spark.streams.addListener(GroupFollows(target, "my-group", "my-query"))`, before the query of that name
    starts. Without a name, it follows all queries of the session.
    """

    def __init__(self, target: Cluster, group: str, query_name: str | None = None) -> None:
        self.target = target
        self.group = group
        self.query_name = query_name

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self.query_name is None or progress.name == self.query_name:
            for offsets, _ in _sources(progress):
                publish(self.target, self.group, offsets)


def publish(target: Cluster, group: str, offsets: Offsets) -> None:
    """Commit offsets; log failures. The stream keeps its offsets in its checkpoint, so it need not end."""
    try:
        commit_offsets(target, group, offsets, WAIT_S)
    except (*REFUSALS, ClientError) as error:
        log.warning("commitGroup: could not commit the offsets of %s at %s: %s", group, target, error)


def _sources(progress: "StreamingQueryProgress") -> "Iterator[tuple[Offsets, SourceProgress]]":
    """End offsets of each `rocketmq` source; other sources have no offsets of that form."""
    for source in progress.sources:
        offsets = _offsets(source.endOffset)
        if offsets:
            yield offsets, source


def _offsets(text: Any) -> Offsets:  # noqa: ANN401 (Spark gives a text, or None)
    try:
        return offsets_of(json.loads(text)) if text else {}
    except ValueError:
        return {}
