"""The arguments that jobs share: source, target, behaviour.

Each group is a dataclass whose fields are declared by `argument`. It only declares and checks, and opens nothing but a
file of keys. Parsers raise ValueError, which says what they expected. Times, names and tags are parsed by
`plan.option_parsing`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from firearrow._native.base.shared_arguments import SHARED, shared_argument
from firearrow._native.base.verbs import argument
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import topic_table
from firearrow.client.base.times import time_ms
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
    key_values,
    names,
    number,
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


def fixed_time_ms(text: str) -> int:
    """A time as all commands read it, but not a relative one: the job may be resumed at another time. ValueError."""
    if text[:1] in ("-", "+") or text == "now":
        raise ValueError("a job that can be resumed needs a fixed time, such as 2026-01-31T12:00")
    return time_ms(text)


def id_set(text: str) -> frozenset[str]:
    """`ID,ID`, or the lines of `@FILE`. ValueError."""
    return lines(Path(text[1:])) if text.startswith("@") else key_set(text)


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

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArguments:
    """Which messages to read, of which store folders or brokers."""

    path: list[str] | None = argument(
        "--path",
        None,
        "folder of a store, or NAME=FOLDER; can be repeated",
        metavar="FOLDER",
        action="append",
    )
    name_server: str | None = shared_argument(
        "--namesrv", None, help="addresses of the name servers of a live cluster, instead of --path"
    )
    settings: list[str] | None = shared_argument("--source-option", None, action="append")
    group: str | None = argument(
        "--source-group",
        None,
        "consumer group of pull requests, for brokers that check permissions by group",
        metavar="GROUP",
    )
    topics: list[str] | None = shared_argument("--topic", None, action="append")
    pattern: str | None = shared_argument("--pattern", None)
    queues: str | None = argument("--queues", None, "queue ids, such as 0,2-5,broker-a:7", metavar="ID,ID")
    since: str | None = shared_argument(
        "--from",
        None,
        help="stored at this time or later: an ISO time (local unless it names its zone), or ms since 1970",
    )
    until: str | None = shared_argument("--to", None)
    offsets: str | None = argument(
        "--offsets",
        None,
        'only these queues and offsets: {"topic": {"broker": {"0": [100, 200]}}}',
        metavar="JSON",
    )
    tags: list[str] | None = shared_argument("--tag", None, action="append")
    key: list[str] | None = shared_argument("--key", None, action="append")
    keys: list[str] | None = argument(
        "--keys",
        None,
        "only messages with one of these keys, separated by commas",
        metavar="KEY,KEY",
        action="append",
    )
    keys_file: Path | None = argument(
        "--keys-file", None, "file of keys, one per line", metavar="FILE", type=Path
    )
    unique_ids: list[str] | None = shared_argument("--ids", None, action="append")
    by_index: bool | None = argument(
        "--by-index",
        None,
        "find the keys or unique ids in the index of a --path, instead of reading everything",
        action="store_true",
    )
    """None: not given, and not part of the job's digest."""
    sql: str | None = shared_argument("--sql", None)
    check_crc: bool = argument(
        "--check-crc",
        True,
        "count records whose bodies do not match their CRCs as lost, or take them as they are",
    )
    fail_on_data_loss: bool = argument(
        "--fail-on-data-loss", True, "stop if requested messages were deleted, or count them in the report"
    )

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
            raise InvalidOption("--path or --namesrv: set one of them")
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
        keys = _union("--keys", key_set, self.keys) | frozenset(self.key or ())
        if self.keys_file is not None:
            keys |= read_value("--keys-file", lambda text: lines(Path(text)), str(self.keys_file))
        unique_ids = _union("--ids", id_set, self.unique_ids)
        if self.by_index and not (keys or unique_ids):
            raise InvalidOption("--by-index: no keys to look up; add --key, --keys-file or --ids")
        return MessageFilter(
            tags=_union("--tag", tag_set, self.tags),
            keys=keys,
            unique_ids=unique_ids,
            stored=self.stored(),
            sql=_read("--sql", plain, self.sql, None),
            check_crc=self.check_crc,
        )

    def stored(self) -> tuple[int | None, int | None]:
        """Store times, ms; the second is exclusive."""
        since = _read("--from", fixed_time_ms, self.since, None)
        until = _read("--until", fixed_time_ms, self.until, None)
        if since is not None and until is not None and until <= since:
            raise InvalidOption(f"--until {self.until} is not after --from {self.since}")
        return since, until

    def topic_names(self) -> frozenset[str]:
        return _union("--topic", lambda text: frozenset(names(text)), self.topics)

    def topic_pattern(self) -> str | None:
        return _read("--pattern", pattern, self.pattern, None)

    def queue_set(self) -> QueueIdSet:
        return _read("--queues", QueueIdSet.of, self.queues, QueueIdSet())

    def assigned(self) -> Assigned | None:
        return _read("--offsets", assigned, self.offsets, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetArguments:
    """Which cluster gets the messages, and how fast."""

    target: str | None = shared_argument("--target", None)
    target_settings: list[str] | None = argument(
        "--target-option",
        None,
        "option of the client that sends, such as rocketmq.accessKey=…; can be repeated",
        metavar="KEY=VALUE",
        action="append",
    )
    to_topic: list[str] | None = shared_argument("--to-topic", None, action="append")
    create_topics: bool = shared_argument("--create-topics", False)
    rate: float | None = shared_argument(
        "--rate", None, help="maximum messages per second of all tasks together", type=float
    )
    bytes_rate: float | None = shared_argument(
        "--bytes-rate", None, help="maximum bytes per second of all tasks together", type=float
    )

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
        try:
            return topic_table(self.to_topic or ())
        except ConfigError as error:
            raise InvalidOption(str(error)) from None

    def renamed(self) -> Callable[[str], str]:
        """The target topic for each source topic."""
        table = self.topic_table()
        return lambda topic: table.get(topic, table.get(None, topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """How a job behaves, and what it writes besides messages."""

    checkpoint: Path | None = argument(
        "--checkpoint",
        None,
        "folder that records what is finished (default .firearrow-JOB-DIGEST)",
        metavar="FOLDER",
        type=Path,
    )
    report: Path | None = argument(
        "--report", None, "write the report to this file, as JSON", metavar="FILE", type=Path
    )
    timeout_s: float = argument(
        "--timeout",
        60,
        "seconds to retry a broker that does not answer (default %(default)s)",
        metavar="S",
        type=float,
    )
    quiet: bool = shared_argument("--quiet", False)

    def check(self) -> None:
        if not 0 < self.timeout_s <= 86400:
            raise InvalidOption(f"--timeout: {self.timeout_s:g} is not within a second and a day")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingArguments:
    """Of the jobs that forward messages."""

    provenance: bool = shared_argument("--provenance", True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendingArguments(ForwardingArguments):
    """Of replay and redrive."""

    dry_run: bool = argument("--dry-run", False, "send nothing; count by topic, tag and hour of storing")
    verify: bool = argument("--verify", False, SHARED["--verify"].help)


def _read(option: str, parse: Callable[[str], T], text: str | None, default: D) -> T | D:
    return default if text is None else read_value(option, parse, text)


def _union(
    option: str, parse: Callable[[str], frozenset[str]], texts: Sequence[str] | None
) -> frozenset[str]:
    return frozenset().union(*(read_value(option, parse, text) for text in texts or ()))


def target(name_server: str, settings: Sequence[str] | None, option: str) -> Cluster:
    given = key_values(option, settings)
    for key in given:
        if not key.lower().startswith(PREFIX):
            raise InvalidOption(f"{option}: {key} is not an option of the client; those begin with {PREFIX}")
    return Cluster.of({"nameServer": name_server, **given})


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
