"""The arguments that jobs share: source, target, behaviour.

Each group is a dataclass whose fields are Typer's parameters; `program.expand_argument_groups` adds them to a
command. Only declares and checks; opens nothing but a file of keys. Parsers raise ValueError, which says what
they expected. Times, names and tags are parsed by `plan.option_parsing`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import Source
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import PREFIX, Cluster
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.option_parsing import (
    LONG_MAX,
    json_object,
    key_set,
    names,
    number,
    parse_time,
    pattern,
    plain,
    read_value,
    tag_set,
)

QUEUE_ID_MAX = 65535
KEYS_FILE_BYTES_MAX = 256 << 20
EARLIEST, LATEST = -2, -1
_QUEUES = re.compile(r"(?:(?P<broker>[^:]+):)?(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)


def lines(file: Path) -> frozenset[str]:
    """The non-empty lines of a UTF-8 file."""
    try:
        if file.stat().st_size > KEYS_FILE_BYTES_MAX:
            raise ValueError(f"larger than {KEYS_FILE_BYTES_MAX >> 20} MiB; split it")
        found = frozenset(line.strip() for line in file.read_text("utf-8").split("\n")) - {""}
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    if not found:
        raise ValueError("is empty; write one key per line")
    return found


@dataclass(frozen=True, slots=True)
class QueueIdSet:
    """Queue ids, of one broker or of any: `0,2-5,broker-a:7`. Empty: all."""

    items: tuple[tuple[str | None, int, int], ...] = ()

    @classmethod
    def of(cls, text: str) -> "QueueIdSet":
        items = []
        for item in names(text):
            match = _QUEUES.fullmatch(item)
            first = int(match["first"]) if match else 0
            last = int(match["last"] or first) if match else -1
            if match is None or not first <= last <= QUEUE_ID_MAX:
                raise ValueError(f"{item!r} is not a queue; write 0,2-5 or broker-a:0-3")
            items.append((match["broker"], first, last))
        return cls(tuple(items))

    def __contains__(self, queue: tuple[str, int]) -> bool:
        """`queue`: (broker, queue id)."""
        broker, queue_id = queue
        return not self.items or any(
            name in (None, broker) and first <= queue_id <= last for name, first, last in self.items
        )


Assigned = Mapping[tuple[str, str, int], tuple[int, int]]
"""(topic, broker, queue id) → (start, end); EARLIEST and LATEST are kept."""


def assigned(text: str) -> Assigned:
    """`{"topic": {"broker": {"0": 100, "1": [100, 200], "2": [-2, -1]}}}`: a start, or a start and an
    exclusive end."""
    found = {}
    for topic, brokers in json_object(text).items():
        for broker, queues in _inner(brokers, f"brokers of {topic}").items():
            for name, value in _inner(queues, f"queues of {topic} at {broker}").items():
                found[topic, broker, number(name, 0, QUEUE_ID_MAX)] = _span(
                    value, f"queue {name} of {topic} at {broker}"
                )
    if not found:
        raise ValueError("names no queue")
    return found


def _inner(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f'{what}: write {{"topic": {{"broker": {{"0": [100, 200]}}}}}}')
    return value


def _span(value: object, queue: str) -> tuple[int, int]:
    pair = value if isinstance(value, list) else [value, LATEST]
    if len(pair) != 2:
        raise ValueError(f"{queue}: expected a start or [start, end]; -2 is the first offset, -1 the end")
    start, end = (number(bound, EARLIEST, LONG_MAX) for bound in pair)
    if end == EARLIEST or 0 <= end < start:
        raise ValueError(f"{queue} ends before it starts")
    return start, end


RATE_MAX = 1e12
SECRET = re.compile(r"(?i)secret|token|password")

Option = typer.Option
T = TypeVar("T")
D = TypeVar("D")

Verify = Annotated[
    bool, Option("--verify", help="Afterwards compare the target with the source, message for message.")
]
KeepsProvenance = Annotated[
    bool,
    Option(
        "--provenance/--no-provenance", help="Put REPLAY_* properties: job, broker, topic, queue, offset."
    ),
]
"""Of the jobs that forward messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArguments:
    """Which messages to read, of which store folders or brokers."""

    path: Annotated[
        list[str] | None,
        Option("--path", help="Folder of a store, or NAME=FOLDER; repeat it for each store."),
    ] = None
    name_server: Annotated[
        str | None,
        Option("--name-server", help="HOST:PORT[;HOST:PORT] of a live cluster, instead of --path."),
    ] = None
    settings: Annotated[
        list[str] | None,
        Option("--source-option", help="KEY=VALUE of the client that reads, e.g. rocketmq.accessKey=…"),
    ] = None
    group: Annotated[
        str | None,
        Option(
            "--source-group",
            help="Consumer group of pull requests, for brokers that check permissions by group.",
        ),
    ] = None
    topics: Annotated[list[str] | None, Option("--topics", help="Topics, separated by commas.")] = None
    pattern: Annotated[
        str | None, Option("--pattern", help="Regular expression that whole names of topics match.")
    ] = None
    queues: Annotated[str | None, Option("--queues", help="Queue ids: 0,2-5,broker-a:7")] = None
    since: Annotated[
        str | None, Option("--from", help="Stored at this time or later: ISO 8601 (UTC) or milliseconds.")
    ] = None
    until: Annotated[str | None, Option("--until", help="Stored before this time.")] = None
    offsets: Annotated[
        str | None,
        Option("--offsets", help='JSON: {"topic": {"broker": {"0": [100, 200]}}}; only the named queues.'),
    ] = None
    tags: Annotated[list[str] | None, Option("--tags", help="One of these tags, separated by , or ||")] = None
    keys: Annotated[
        list[str] | None, Option("--keys", help="With one of these keys, separated by commas.")
    ] = None
    keys_file: Annotated[Path | None, Option("--keys-file", help="A file of keys, one a line.")] = None
    unique_ids: Annotated[
        list[str] | None, Option("--unique-ids", help="With one of these unique ids, separated by commas.")
    ] = None
    by_index: Annotated[
        bool | None,
        Option("--by-index", help="Read only what the index of a --path shows of these keys or unique ids."),
    ] = None
    """None: not given, and not part of the job's digest."""
    sql: Annotated[
        str | None, Option("--sql", help='SQL92 over properties, as brokers know it: "price > 10"')
    ] = None
    check_crc: Annotated[
        bool,
        Option(
            "--check-crc/--no-check-crc",
            help="Records whose bodies do not match their CRCs are lost, or taken as they are.",
        ),
    ] = True
    fail_on_data_loss: Annotated[
        bool,
        Option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            help="Stop if requested messages are gone; otherwise count them in the report.",
        ),
    ] = True

    def check(self) -> None:
        """All that is known without a broker, before one is waited for. InvalidOption, StoreUnreadable."""
        self.topic_names(), self.topic_pattern(), self.queue_set(), self.assigned(), self.message_filter()
        source = self.message_source(RunArguments().timeout_s)
        if isinstance(source, StoreSource):
            with source.open():
                pass

    def message_source(self, timeout_s: float) -> Source:
        """`timeout_s`: how long to wait for brokers that do not answer. InvalidOption."""
        if bool(self.path) == bool(self.name_server):
            raise InvalidOption("--path or --name-server: set one of them")
        if self.path and self.settings:
            raise InvalidOption(
                "--source-option: stores of --path are read without a client; remove this option"
            )
        if self.path:
            return StoreSource(tuple(self.path))
        if self.by_index:
            raise InvalidOption("--by-index: the index is part of a store; use it only with --path")
        assert self.name_server is not None
        cluster = target(self.name_server, self.settings, "--source-option")
        return BrokerSource(cluster, self.group, timeout_s)

    def message_filter(self) -> MessageFilter:
        keys = _union("--keys", key_set, self.keys)
        if self.keys_file is not None:
            keys |= read_value("--keys-file", lambda text: lines(Path(text)), str(self.keys_file))
        unique_ids = _union("--unique-ids", key_set, self.unique_ids)
        if self.by_index and not (keys or unique_ids):
            raise InvalidOption("--by-index: no keys to look up; add --keys, --keys-file or --unique-ids")
        return MessageFilter(
            tags=_union("--tags", tag_set, self.tags),
            keys=keys,
            unique_ids=unique_ids,
            stored=self.stored(),
            sql=_read("--sql", plain, self.sql, None),
            check_crc=self.check_crc,
        )

    def stored(self) -> tuple[int | None, int | None]:
        """Store times, ms; the second is exclusive."""
        since = _read("--from", parse_time, self.since, None)
        until = _read("--until", parse_time, self.until, None)
        if since is not None and until is not None and until <= since:
            raise InvalidOption(f"--until {self.until} is not after --from {self.since}")
        return since, until

    def topic_names(self) -> frozenset[str]:
        return _union("--topics", lambda text: frozenset(names(text)), self.topics)

    def topic_pattern(self) -> str | None:
        return _read("--pattern", pattern, self.pattern, None)

    def queue_set(self) -> QueueIdSet:
        return _read("--queues", QueueIdSet.of, self.queues, QueueIdSet())

    def assigned(self) -> Assigned | None:
        return _read("--offsets", assigned, self.offsets, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetArguments:
    """Which cluster gets the messages, and how fast."""

    target: Annotated[
        str | None, Option("--target", help="HOST:PORT[;HOST:PORT]: name servers of the target.")
    ] = None
    target_settings: Annotated[
        list[str] | None,
        Option("--target-option", help="KEY=VALUE of the client that sends, e.g. rocketmq.accessKey=…"),
    ] = None
    to_topic: Annotated[
        list[str] | None, Option("--to-topic", help="NAME for all messages, or SOURCE=NAME; can be repeated.")
    ] = None
    create_topics: Annotated[
        bool,
        Option("--create-topics", help="Create topics that the target does not have, with as many queues."),
    ] = False
    rate: Annotated[
        float | None, Option("--rate", help="Maximum messages per second, all tasks together.")
    ] = None
    bytes_rate: Annotated[
        float | None, Option("--bytes-rate", help="Maximum bytes per second, all tasks together.")
    ] = None

    def cluster(self) -> Cluster:
        if not self.target:
            raise InvalidOption("--target: HOST:PORT of the target's name server is needed")
        return target(self.target, self.target_settings, "--target-option")

    def check(self) -> None:
        for option, value in (("--rate", self.rate), ("--bytes-rate", self.bytes_rate)):
            if value is not None and not 0 < value <= RATE_MAX:
                raise InvalidOption(f"{option}: {value:g} is not a rate above 0")
        self.topic_table()
        if self.target:
            self.cluster()

    def topic_table(self) -> dict[str | None, str]:
        """The target topics by source topic; None: for all others."""
        table: dict[str | None, str] = {}
        for text in self.to_topic or ():
            source, equals, name = text.rpartition("=")
            key = source if equals else None
            if not name or (equals and not source) or key in table:
                raise InvalidOption(
                    f"--to-topic: {text!r}; write NAME once, or SOURCE=NAME once for each topic"
                )
            table[key] = name
        return table

    def renamed(self) -> Callable[[str], str]:
        """The target topic for each source topic."""
        table = self.topic_table()
        return lambda topic: table.get(topic, table.get(None, topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """How a job behaves, and what it writes besides messages."""

    checkpoint: Annotated[
        Path | None,
        Option("--checkpoint", help="Folder of what is finished  [default: .firearrow-JOB-DIGEST, here]"),
    ] = None
    report: Annotated[Path | None, Option("--report", help="File for the report as JSON.")] = None
    timeout_s: Annotated[
        float,
        Option("--timeout", help="Seconds to retry a broker that does not answer."),
    ] = 60
    quiet: Annotated[bool, Option("--quiet", help="No progress on stderr.")] = False

    def check(self) -> None:
        if not 0 < self.timeout_s <= 86400:
            raise InvalidOption(f"--timeout: {self.timeout_s:g} is not within a second and a day")


def _read(option: str, parse: Callable[[str], T], text: str | None, default: D) -> T | D:
    return default if text is None else read_value(option, parse, text)


def _union(
    option: str, parse: Callable[[str], frozenset[str]], texts: Sequence[str] | None
) -> frozenset[str]:
    return frozenset().union(*(read_value(option, parse, text) for text in texts or ()))


def target(name_server: str, settings: Sequence[str] | None, option: str) -> Cluster:
    pairs = {"nameServer": name_server}
    for text in settings or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidOption(f"{option}: expected KEY=VALUE, not {text!r}")
        if not key.lower().startswith(PREFIX):
            raise InvalidOption(f"{option}: {key} is not an option of the client; those begin with {PREFIX}")
        pairs[key] = value
    return Cluster.of(pairs)


def as_text(group: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass instance has no type of its own)
    """The arguments of a group that are given, as a report shows them: secrets masked."""
    values = {field.name: getattr(group, field.name) for field in fields(group)}
    return {name: _shown(value) for name, value in values.items() if value is not None}


def _shown(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list):
        return [_masked(text) for text in value]
    return value


def _masked(text: str) -> str:
    """Without what follows the first `=` after a secret's name."""
    found = SECRET.search(text)
    equals = text.find("=", found.end()) if found is not None else -1
    return text if equals < 0 else f"{text[: equals + 1]}…"
