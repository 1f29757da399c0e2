"""Every option of the source, declared once; SPARK.md's table is made of this. The sink's are in sink_options.

A frozen value. It opens nothing; `message_source` and `message_filter` are descriptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.plan import option_parsing
from firearrow.spark_tools.plan.offsets import AtTime, OffsetEdge, Point, end_point, start_point, times_point
from firearrow.spark_tools.plan.option_parsing import option, parse_duration, parse_time, read_options
from firearrow.spark_tools.plan.splits import SPLITS_MAX, SplitPolicy
from firearrow.spark_tools.plan.topics import AssignedQueues, TopicSelection, assigned, check_one_selection

BATCH, STREAM = "batch", "stream"
ROWS_MAX = 8192
LATEST: Point = OffsetEdge.LATEST
PASSED = ("rocketmq.",)
"""What live.target reads of the same options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Of a read, batch or stream. None, 0 or empty: not given."""

    # where from
    path: tuple[str, ...] = option(
        "path",
        option_parsing.folders,
        (),
        "Folder of a store, read without its broker; `NAME=FOLDER` says the broker's name; several as a JSON list.",
    )
    paths: tuple[str, ...] = option("paths", option_parsing.folders, (), "The same, as `load([…])` gives it.")
    name_server: str | None = option(
        "nameServer",
        option_parsing.plain,
        None,
        "`host:port` of name servers, separated by `;`: live brokers are read.",
    )
    group: str | None = option(
        "group",
        option_parsing.plain,
        None,
        "The consumer group that pulls name, for brokers that give rights by group. Nothing is committed for it.",
        shown="`TOOLS_CONSUMER`",
    )
    timeout_s: float = option(
        "pollTimeout",
        parse_duration,
        60.0,
        "How long name servers and brokers that do not answer are asked again before the query fails.",
        shown="`60s`",
    )
    # which queues
    topic: tuple[str, ...] = option(
        "topic",
        option_parsing.names,
        (),
        "Topics, separated by commas. Of a path all, if none of these three is given.",
    )
    topics: tuple[str, ...] = option("topics", option_parsing.names, (), "The same.")
    pattern: str | None = option(
        "topicPattern",
        option_parsing.pattern,
        None,
        "A regular expression for whole names; topics of the system never, `%RETRY%…`, `%DLQ%…` if it has a `%`.",
    )
    assign: tuple[AssignedQueues, ...] = option(
        "assign", assigned, (), 'Queues by number: `{"topic": [0, 1]}` or `{"topic": {"broker": [0, 1]}}`.'
    )
    wait_s: float = option(
        "waitForTopic",
        parse_duration,
        0.0,
        "How long to wait for a topic that is not there yet, as `5m`.",
        shown="`0s`",
    )
    # from where to where
    start: Point | None = option(  # noqa: RUF009
        "startingOffsets",
        start_point,
        None,
        'Where to begin: `earliest`, `latest` or `{"topic": {"broker": {"0": 23, "1": -2}}}`, -2 the earliest, '
        "-1 the latest; queues not named begin at the earliest.",
        shown="`earliest`, streams `latest`",
    )
    end: Point = option(  # noqa: RUF009
        "endingOffsets",
        end_point,
        LATEST,
        "Where to end, exclusive: `latest` or JSON; queues not named end at the latest.",
        uses=BATCH,
        shown="`latest`",
    )
    start_ms: int | None = option(
        "startingTimestamp",
        parse_time,
        None,
        "Begin with the first message stored at this time or later: ms since 1970 or ISO 8601. Goes before the others.",
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
        "The same for each queue, JSON as `startingOffsets`. Goes before `startingOffsets`.",
    )
    end_times: Point | None = option(  # noqa: RUF009
        "endingOffsetsByTimestamp", times_point, None, "The same for each queue, JSON.", uses=BATCH
    )
    strategy: str = option(
        "startingOffsetsByTimestampStrategy",
        option_parsing.one_of("error", "latest"),
        "error",
        "What to do with a queue that has messages, but none stored at the starting time or later.",
    )
    fail_on_loss: bool = option(
        "failOnDataLoss",
        option_parsing.flag,
        True,
        "Whether ranges that were asked for and are gone end the query, with their names; if not, each is warned of.",
    )
    # which messages
    tags: frozenset[str] = option(
        "tags", option_parsing.tag_set, frozenset(), "`A || B`: messages with one of these tags."
    )
    keys: frozenset[str] = option(
        "keys", option_parsing.key_set, frozenset(), "Messages with one of these keys, separated by commas."
    )
    by_index: bool = option(
        "keysByIndex",
        option_parsing.flag,
        False,
        "Whether the index of a `path` says where the wanted keys are, so that the rest is not read. See above.",
    )
    sql: str | None = option(
        "sql",
        option_parsing.plain,
        None,
        "An SQL92 expression over properties, as brokers know it: `price > 10 AND region = 'EU'`.",
    )
    check_crc: bool = option(
        "checkCrc",
        option_parsing.flag,
        True,
        "Whether records whose bodies do not match their CRCs are lost, see `failOnDataLoss`; if not, they are read "
        "as they are. Nothing is looked at where `body` is no column.",
    )
    push_down: bool = option(
        "pushDown",
        option_parsing.flag,
        False,
        "Whether the query's filters narrow what is read. For a load that is scanned once only, see above.",
        uses=BATCH,
    )
    # what of them
    columns: tuple[str, ...] = option(
        "columns",
        option_parsing.names,
        (),
        "The columns that are made; others cost nothing. `.schema(…)` does the same.",
        shown="all",
    )
    properties: bool = option(
        "includeProperties",
        option_parsing.flag,
        True,
        "Whether there is a column `properties`, the dearest of all.",
    )
    open_bodies: bool = option(
        "openBodies", option_parsing.flag, True, "Whether compressed bodies are opened."
    )
    # in what parts
    parts_min: int = option(
        "minPartitions",
        option_parsing.whole(1, SPLITS_MAX),
        0,
        "Large ranges are divided until there are so many parts.",
    )
    part_records: int = option(
        "maxRecordsPerPartition", option_parsing.whole(1), 0, "Messages of one part at most."
    )
    part_bytes: int = option(
        "maxBytesPerPartition",
        option_parsing.size(1 << 16),
        128 << 20,
        "Bytes of one part, about, as `128m`.",
        shown="`128m`",
    )
    batch_rows: int = option(
        "batchRows", option_parsing.whole(1, ROWS_MAX), 4096, "Rows of one Arrow batch at most."
    )
    batch_bytes: int = option(
        "batchBytes",
        option_parsing.size(1 << 16, 256 << 20),
        4 << 20,
        "Log bytes of one Arrow batch, about.",
        shown="`4m`",
    )
    # how much at a time
    trigger_messages: int = option(
        "maxOffsetsPerTrigger",
        option_parsing.whole(1),
        0,
        "Messages of one micro-batch, shared by queues in proportion, each at least 1.",
        uses=STREAM,
    )
    trigger_bytes: int = option(
        "maxBytesPerTrigger", option_parsing.size(1), 0, "Log bytes of one micro-batch, about.", uses=STREAM
    )
    trigger_messages_min: int = option(
        "minOffsetsPerTrigger",
        option_parsing.whole(1),
        0,
        "No micro-batch before so many messages wait …",
        uses=STREAM,
    )
    trigger_delay_s: float = option(
        "maxTriggerDelay",
        parse_duration,
        900.0,
        "… or the last one is so long ago.",
        uses=STREAM,
        shown="`15m`",
    )
    commit_group: str | None = option(
        "commitGroup",
        option_parsing.plain,
        None,
        "A consumer group whose offsets at the brokers follow the stream, one micro-batch behind; see above.",
        uses=STREAM,
    )

    @classmethod
    def of(cls, given: Mapping[str, str], use: str | None) -> Self:
        """`use`: BATCH or STREAM, None if it is not known. InvalidOption: one sentence that names the option."""
        options = read_options(cls, given, use, passed=PASSED)
        options.check(use)
        return options

    def check(self, use: str | None) -> None:
        """What options say to each other."""
        if bool(self.folders()) == bool(self.name_server):
            raise InvalidOption(
                "path or nameServer: give one of them, the folder of a store or the address of a name server"
            )
        if not (self.folders() or self.topic or self.topics or self.pattern or self.assign):
            raise InvalidOption("topic: which topic of the brokers? topic, topicPattern or assign says it")
        if self.topic and self.topics:
            raise InvalidOption("topic and topics mean the same: give one of them")
        if use == BATCH and self.start_point(use) is OffsetEdge.LATEST:
            raise InvalidOption(
                "startingOffsets: a batch that begins at the latest offset would read nothing"
            )
        if self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms:
            raise InvalidOption("endingTimestamp: it lies before startingTimestamp")
        if self.commit_group is not None and not self.name_server:
            raise InvalidOption("commitGroup: offsets are kept by brokers; it goes with nameServer only")
        if self.by_index and self.name_server:
            raise InvalidOption("keysByIndex: the index is a file of a store; it goes with path only")
        if self.by_index and not (self.keys or self.push_down):
            raise InvalidOption(
                "keysByIndex: which keys? keys names them, or the query's filter with pushDown"
            )
        if "properties" in self.columns and not self.properties:
            raise InvalidOption("includeProperties=false, but columns names properties: which of both?")
        if self.trigger_messages and self.trigger_messages_min > self.trigger_messages:
            raise InvalidOption("minOffsetsPerTrigger: it is more than maxOffsetsPerTrigger")
        self.wanted()

    def folders(self) -> tuple[str, ...]:
        """Of stores; none if brokers are read."""
        return tuple(dict.fromkeys(self.path + self.paths))

    def wanted(self) -> TopicSelection:
        return check_one_selection(self.topic or self.topics, self.pattern, self.assign)

    def start_point(self, use: str) -> Point:
        """A time goes before times, and times before offsets."""
        if self.start_ms is not None:
            return AtTime(self.start_ms)
        return self.start_times or self.start or (OffsetEdge.EARLIEST if use == BATCH else OffsetEdge.LATEST)

    def end_point(self) -> Point:
        return AtTime(self.end_ms) if self.end_ms is not None else self.end_times or self.end

    def message_filter(self) -> MessageFilter:
        return MessageFilter(tags=self.tags, keys=self.keys, sql=self.sql, check_crc=self.check_crc)

    def split_policy(self) -> SplitPolicy:
        return SplitPolicy(self.parts_min, self.part_records, self.part_bytes)
