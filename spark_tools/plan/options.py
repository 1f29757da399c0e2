"""Every option of the source. docs/SPARK_REFERENCE.md's table is generated from them. The
sink's options are in `sink_options`.

Frozen; opens nothing. `message_filter` and `split_policy` only describe what to read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.plan import option_parsing
from firearrow.spark_tools.plan.offsets import AtTime, OffsetEdge, Point, end_point, start_point, times_point
from firearrow.spark_tools.plan.option_parsing import option, parse_duration, parse_time, read_options
from firearrow.spark_tools.plan.pushdown import Pushdown
from firearrow.spark_tools.plan.splits import SPLITS_MAX, SplitPolicy
from firearrow.spark_tools.plan.topics import AssignedQueues, TopicSelection, assigned, check_one_selection

BATCH, STREAM = "batch", "stream"
ROWS_MAX = 8192
LATEST: Point = OffsetEdge.LATEST
PASSED = ("rocketmq.",)
"""Options that `live.cluster` reads."""
INSTEAD: Mapping[str, str] = {
    "pushdown": "Spark uses the filters of one scan for every scan of a load, and rows would be missing; read "
    "with spark_tools.read_where(spark, condition, ...), which takes the same options",
    "subscribe": "this is an option of Kafka's source; here it is topic=A,B",
    "subscribepattern": "this is an option of Kafka's source; here it is topicPattern",
    "kafka.bootstrap.servers": "this is an option of Kafka's source; here it is nameServer=HOST:PORT",
    "kafka.": "this is an option of Kafka's client; those of RocketMQ's begin with rocketmq.",
    "includeheaders": "this is an option of Kafka's source; here it is includeProperties",
}
"""Names in lower case that are not options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a batch or stream read. None, 0 or empty: not set."""

    # source
    path: tuple[str, ...] = option(
        "path",
        option_parsing.folders,
        (),
        "The folder of a store, read without its broker. `NAME=FOLDER` sets the broker's name. Several: a "
        "JSON list.",
    )
    paths: tuple[str, ...] = option(
        "paths", option_parsing.folders, (), "Same as `path`; set by `load([…])`."
    )
    name_server: str | None = option(
        "nameServer",
        option_parsing.plain,
        None,
        "`host:port` of the name servers, separated by `;`. Reads live brokers.",
    )
    group: str | None = option(
        "group",
        option_parsing.plain,
        None,
        "The consumer group named in pull requests, for brokers that check permissions by group. Commits "
        "nothing.",
        shown="`TOOLS_CONSUMER`",
    )
    timeout_s: float = option(
        "pollTimeout",
        parse_duration,
        60.0,
        "How long to retry a name server or broker that does not answer before the query fails.",
        shown="`60s`",
    )
    # queues
    topic: tuple[str, ...] = option(
        "topic",
        option_parsing.names,
        (),
        "Topics, separated by commas. With `path`, the default is all topics.",
    )
    topics: tuple[str, ...] = option("topics", option_parsing.names, (), "Same as `topic`.")
    pattern: str | None = option(
        "topicPattern",
        option_parsing.pattern,
        None,
        "A regular expression that matches whole topic names. System topics never match; `%RETRY%…` and "
        "`%DLQ%…` match "
        "only if the expression contains a `%`.",
    )
    assign: tuple[AssignedQueues, ...] = option(
        "assign", assigned, (), 'Queues by id: `{"topic": [0, 1]}` or `{"topic": {"broker": [0, 1]}}`.'
    )
    wait_s: float = option(
        "waitForTopic",
        parse_duration,
        0.0,
        "How long to wait for a topic that does not exist yet, such as `5m`.",
        shown="`0s`",
    )
    # offsets
    start: Point | None = option(  # noqa: RUF009
        "startingOffsets",
        start_point,
        None,
        'Where to start: `earliest`, `latest` or `{"topic": {"broker": {"0": 23, "1": -2}}}`. -2 is the '
        "earliest offset, -1 the latest. Queues not named start at the earliest.",
        shown="`earliest`, streams `latest`",
    )
    end: Point = option(  # noqa: RUF009
        "endingOffsets",
        end_point,
        LATEST,
        "Where to end, exclusive: `latest` or JSON. Queues not named end at the latest offset.",
        uses=BATCH,
        shown="`latest`",
    )
    start_ms: int | None = option(
        "startingTimestamp",
        parse_time,
        None,
        "Start with the first message stored at this time or later: ms since 1970 or ISO 8601 (UTC unless it names "
        "its zone). Overrides the other starting options.",
    )
    end_ms: int | None = option(
        "endingTimestamp",
        parse_time,
        None,
        "End before the first message stored at this time or later.",
        uses=BATCH,
    )
    start_times: Point | None = option(  # noqa: RUF009
        "startingOffsetsByTimestamp",
        times_point,
        None,
        "A starting time for each queue, in the JSON form of `startingOffsets`, which it overrides.",
    )
    end_times: Point | None = option(  # noqa: RUF009
        "endingOffsetsByTimestamp", times_point, None, "An ending time for each queue, as JSON.", uses=BATCH
    )
    strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        option_parsing.one_of("error", "latest"),
        "error",
        "What to do with a queue that has messages but none at or after the starting time: `error`, or "
        "`latest` to read "
        "from its end.",
    )
    fail_on_loss: bool = option(
        "failOnDataLoss",
        option_parsing.flag,
        True,
        "Whether the query fails if requested messages are gone. If not, each missing range is logged as a "
        "warning.",
    )
    # filters
    tags: frozenset[str] = option(
        "tags", option_parsing.tag_set, frozenset(), "`A || B`: messages with one of these tags."
    )
    keys: frozenset[str] = option(
        "keys",
        option_parsing.key_set,
        frozenset(),
        "Messages with at least one of these keys, separated by commas.",
    )
    by_index: bool = option(
        "keysByIndex",
        option_parsing.flag,
        False,
        "Whether to look up the keys in the index of a `path` and read only those messages. See above.",
    )
    sql: str | None = option(
        "sql",
        option_parsing.plain,
        None,
        "An SQL92 expression over properties, as in subscriptions: `price > 10 AND region = 'EU'`.",
    )
    check_crc: bool = option(
        "checkCrc",
        option_parsing.flag,
        True,
        "Whether a record whose body does not match its CRC counts as lost, see `failOnDataLoss`. If not, "
        "it is read as "
        "it is. Bodies are checked only if the column `body` is read.",
    )
    pushdown: Pushdown = option(  # noqa: RUF009
        "pushedFilters",
        Pushdown.of_json,
        Pushdown(),
        "What the condition of `read_where` excludes. Set by it.",
        uses=BATCH,
        shown="",
    )
    # columns
    columns: tuple[str, ...] = option(
        "columns",
        option_parsing.names,
        (),
        "The columns to read; the others cost nothing. `.schema(…)` does the same.",
        shown="all",
    )
    properties: bool = option(
        "includeProperties",
        option_parsing.flag,
        True,
        "Whether to include the column `properties`, the most expensive one.",
    )
    open_bodies: bool = option(
        "openBodies", option_parsing.flag, True, "Whether to decompress compressed bodies."
    )
    # partitions
    parts_min: int = option(
        "minPartitions",
        option_parsing.whole(1, SPLITS_MAX),
        0,
        "Split large ranges until there are at least this many partitions.",
    )
    part_records: int = option(
        "maxRecordsPerPartition", option_parsing.whole(1), 0, "Maximum number of messages in one partition."
    )
    part_bytes: int = option(
        "maxBytesPerPartition",
        option_parsing.size(1 << 16),
        128 << 20,
        "Approximate size of one partition, such as `128m`.",
        shown="`128m`",
    )
    batch_rows: int = option(
        "batchRows", option_parsing.whole(1, ROWS_MAX), 4096, "Maximum number of rows in one Arrow batch."
    )
    batch_bytes: int = option(
        "batchBytes",
        option_parsing.size(1 << 16, 256 << 20),
        4 << 20,
        "Approximate size of one Arrow batch, in bytes of the log.",
        shown="`4m`",
    )
    # micro-batches
    trigger_messages: int = option(
        "maxOffsetsPerTrigger",
        option_parsing.whole(1),
        0,
        "Maximum number of messages in one micro-batch, divided among the queues in proportion to their "
        "backlog, at "
        "least 1 each.",
        uses=STREAM,
    )
    trigger_bytes: int = option(
        "maxBytesPerTrigger",
        option_parsing.size(1),
        0,
        "Approximate size of one micro-batch, in bytes of the log.",
        uses=STREAM,
    )
    trigger_messages_min: int = option(
        "minOffsetsPerTrigger",
        option_parsing.whole(1),
        0,
        "Minimum number of waiting messages before a micro-batch starts, …",
        uses=STREAM,
    )
    trigger_delay_s: float = option(
        "maxTriggerDelay",
        parse_duration,
        900.0,
        "… unless this much time has passed since the last one.",
        uses=STREAM,
        shown="`15m`",
    )
    commit_group: str | None = option(
        "commitGroup",
        option_parsing.plain,
        None,
        "A consumer group whose committed offsets follow the stream, one micro-batch late; see above.",
        uses=STREAM,
    )

    @classmethod
    def of(cls, given: Mapping[str, str], use: str | None) -> Self:
        """`use`: BATCH or STREAM, None if unknown. InvalidOption: one sentence that names the option."""
        options = read_options(cls, given, use, passed=PASSED, instead=INSTEAD)
        options.check(use)
        return options

    def check(self, use: str | None) -> None:
        """Check combinations of options. InvalidOption."""
        if bool(self.folders()) == bool(self.name_server):
            raise InvalidOption(
                "path or nameServer: set one of them, the folder of a store or the address of a name server"
            )
        if not (self.folders() or self.topic or self.topics or self.pattern or self.assign):
            raise InvalidOption("topic: set topic, topicPattern or assign; nameServer has no default")
        if self.topic and self.topics:
            raise InvalidOption("topic and topics mean the same: set only one of them")
        if use == BATCH and self.start_point(use) is OffsetEdge.LATEST:
            raise InvalidOption("startingOffsets: a batch that starts at the latest offset reads nothing")
        if self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms:
            raise InvalidOption("endingTimestamp: is before startingTimestamp")
        if self.commit_group is not None and not self.name_server:
            raise InvalidOption("commitGroup: brokers keep the offsets; use it only with nameServer")
        if self.by_index and self.name_server:
            raise InvalidOption("keysByIndex: the index is part of a store; use it only with path")
        if self.by_index and not (self.keys or self.pushdown.keys or self.pushdown.unique_ids):
            raise InvalidOption(
                "keysByIndex: no keys to look up; set keys, or use read_where with a condition on keys or uniqKey"
            )
        if "properties" in self.columns and not self.properties:
            raise InvalidOption(
                "includeProperties=false, but columns contains properties; change one of them"
            )
        if self.trigger_messages and self.trigger_messages_min > self.trigger_messages:
            raise InvalidOption("minOffsetsPerTrigger: is larger than maxOffsetsPerTrigger")
        self.wanted()

    def folders(self) -> tuple[str, ...]:
        """Folders of stores; empty if brokers are read."""
        return tuple(dict.fromkeys(self.path + self.paths))

    def wanted(self) -> TopicSelection:
        return check_one_selection(self.topic or self.topics, self.pattern, self.assign)

    def start_point(self, use: str) -> Point:
        """`startingTimestamp` overrides times by queue, and those override offsets."""
        if self.start_ms is not None:
            return AtTime(self.start_ms)
        return self.start_times or self.start or (OffsetEdge.EARLIEST if use == BATCH else OffsetEdge.LATEST)

    def end_point(self) -> Point:
        return AtTime(self.end_ms) if self.end_ms is not None else self.end_times or self.end

    def message_filter(self) -> MessageFilter:
        return MessageFilter(tags=self.tags, keys=self.keys, sql=self.sql, check_crc=self.check_crc)

    def split_policy(self) -> SplitPolicy:
        return SplitPolicy(self.parts_min, self.part_records, self.part_bytes)
