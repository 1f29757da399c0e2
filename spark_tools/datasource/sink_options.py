"""Every option of the sink. docs/SPARK_REFERENCE.md's table is generated from them. Opens nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firearrow._native.columnar.batch_encoder import BATCH_BYTES_MAX
from firearrow.client.base.compression import pack
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import check_group, check_topic
from firearrow.client.base.options import CompressionKind
from firearrow.spark_tools.arrow.batch_sender import BATCH_BYTES, COMPRESSION_LEVEL, SinkSettings
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.plan import option_parsing
from firearrow.spark_tools.plan.option_parsing import option, parse_duration, read_options
from firearrow.spark_tools.plan.options import INSTEAD

BATCH, STREAM = "batch", "stream"
PASSED = ("rocketmq.", "checkpointLocation", "queryName")
"""Options that the client and Spark itself read."""


def _topic(text: str) -> str:
    try:
        return check_topic(text.strip())
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _group(text: str) -> str:
    try:
        return check_group(text.strip())
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _compression(text: str) -> str | None:
    """The name of a CompressionKind whose package is installed; None: no compression."""
    name = option_parsing.one_of("none", *(kind.lower() for kind in CompressionKind))(text)
    if name == "none":
        return None
    try:
        pack(CompressionKind(name.upper()), COMPRESSION_LEVEL, b"")
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a batch or stream write. None: not set."""

    name_server: str | None = option(
        "nameServer",
        option_parsing.plain,
        None,
        "Required. `host:port` of the target's name servers, separated by `;`.",
    )
    topic: str | None = option("topic", _topic, None, "The topic of all rows. Overrides the column `topic`.")
    queues: str = option(
        "queues",
        option_parsing.one_of(*(use.value for use in QueueIdUse)),
        QueueIdUse.EXACT.value,
        "How to use the column `queueId`: `exact` fails if the topic has no such queue; `modulo` takes the "
        "remainder by "
        "the number of queues; `any` ignores it.",
    )
    provenance: str | None = option(
        "provenance",
        option_parsing.plain,
        None,
        "A name for this job. Each message gets properties `REPLAY_…` with this name and where its row was "
        "read.",
    )
    packed_bodies: bool = option(
        "packedBodies",
        option_parsing.flag,
        False,
        "Whether bodies are as stored (read with `openBodies=false`); `sysFlag` says how they are "
        "compressed.",
    )
    compression: str | None = option(
        "compression",
        _compression,
        None,
        "Compress each body: `none`, `zlib`, `lz4` or `zstd`. Bodies of less than about 4 KiB gain little. `lz4` and "
        "`zstd` need `firearrow[compression]`, and Go and C++ consumers cannot read them.",
        shown="`none`",
    )
    batch_bytes: int = option(
        "sendBatchBytes",
        option_parsing.size(1 << 10, BATCH_BYTES_MAX),
        BATCH_BYTES,
        "Maximum size of one request, in bytes.",
        shown="`1m`",
    )
    timeout_s: float = option(
        "sendTimeout",
        parse_duration,
        60.0,
        "How long to retry a request to a broker that does not answer before the task fails.",
        shown="`60s`",
    )
    commit_group: str | None = option(
        "commitGroup",
        _group,
        None,
        "A consumer group. After the target has stored all rows of a micro-batch, commit the offset after "
        "its last row.",
        uses=STREAM,
    )
    commit_name_server: str | None = option(
        "commitNameServer",
        option_parsing.plain,
        None,
        "Name servers of the source's brokers, which keep the offsets of `commitGroup`.",
        uses=STREAM,
        shown="`nameServer`",
    )

    @classmethod
    def of(cls, given: Mapping[str, str], use: str) -> Self:
        """`use`: BATCH or STREAM. InvalidOption: one sentence that names the option."""
        if any(name.lower() == "path" for name in given):
            raise InvalidOption(
                "path: a store's files are never written; set nameServer to the brokers that get the rows"
            )
        options = read_options(cls, given, use, passed=PASSED, instead=INSTEAD)
        if options.name_server is None:
            raise InvalidOption("nameServer: `host:port` of the target's name server is required")
        if options.compression is not None and options.packed_bodies:
            raise InvalidOption(
                "compression: with packedBodies=true bodies are compressed already; set only one"
            )
        if options.commit_name_server is not None and options.commit_group is None:
            raise InvalidOption("commitNameServer goes with commitGroup: set both or neither")
        return options

    def sink_settings(self) -> SinkSettings:
        return SinkSettings(
            topic=self.topic,
            job=self.provenance,
            queues=QueueIdUse(self.queues),
            packed_bodies=self.packed_bodies,
            compression=None if self.compression is None else CompressionKind(self.compression.upper()),
            batch_bytes=self.batch_bytes,
        )

    def source(self, given: Mapping[str, str]) -> Cluster:
        """The cluster that keeps the offsets of `commit_group`."""
        others = {name: text for name, text in given.items() if name.lower() != "nameserver"}
        return Cluster.of({**others, "nameServer": self.commit_name_server or self.name_server or ""})
