"""The client's options, with Java's defaults. Names end in their unit: `_s` is seconds, `bytes` is bytes.

Each value is checked when the object is created; ConfigError names the range. Producers and consumers with
the same ClientOptions share one instance. docs/OPTIONS.md is generated from this file: the string after an option
is its line there.
"""

import itertools
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from firearrow.client.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
Ranges = Mapping[str, tuple[float, float]]
"""Option → smallest and largest allowed value."""
_names = itertools.count()


class MessageModel(StrEnum):
    """Whether the members of a group share the messages, or each of them gets all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue without a stored offset."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class CompressionKind(StrEnum):
    """How a producer compresses bodies. Apache's Go and C++ clients read ZLIB only."""

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys that requests are signed with. Apache's ACL 1 and ACL 2 use the same signature."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SocksProxy:
    """A SOCKS5 proxy at `host:port`."""

    address: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"proxy address must be `host:port`, not {self.address!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """TLS to name servers and brokers. The files are in PEM format, and read again when they change."""

    authority: str | None = None
    """The authorities of the servers' certificates; None: the system's."""
    certificate: str | None = None
    """This client's certificate."""
    key: str | None = None
    """Its private key; None: in the same file."""
    key_password: str | None = field(default=None, repr=False)
    """The password of an encrypted `key`."""
    server_name: str | None = None
    """The name in the servers' certificates; None: each address's host."""
    verify: bool = True
    """False accepts any certificate, as Java does by default."""

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigError("TlsOptions.key needs TlsOptions.certificate")


def _instance_name() -> str:
    """Unique among all processes, including containers with equal addresses and process ids."""
    return f"{os.getpid()}#{time.monotonic_ns()}{next(_names)}{os.urandom(2).hex()}"


_IMPORTED = os.urandom(8)


def _process() -> tuple[int, bytes]:
    """Equal in one process only: not after a fork, and not in a new process with the same id."""
    return os.getpid(), _IMPORTED


def _restored_options(
    kind: "type[ClientOptions]", process: tuple[int, bytes], values: dict[str, Any]
) -> "ClientOptions":
    """Another process needs another instance name: two clients of one id take each other's queues."""
    if process != _process():
        del values["generated_name"]
    return kind(**values)


def _name_server() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What producers and consumers of one instance share: name servers, identity, security, timers."""

    name_server: str = field(default_factory=_name_server)
    """Name servers as `host:port`, separated by `;`; default: `NAMESRV_ADDR`."""
    name_server_url: str | None = None
    """URL of the name servers, if `name_server` is empty."""
    instance_name: str | None = None
    """Part of the client id; None: a unique one, `DEFAULT` for broadcasting consumers."""
    client_ip: str | None = None
    """Part of the client id; None: this machine's address."""
    unit_name: str | None = None
    """Unit (set), in the client id and in requests to `name_server_url`."""
    namespace: str | None = None
    """Prefix of all topics and groups at the brokers, hidden from your code."""
    namespace_v2: str | None = None
    """Namespace as a field of each request, as in RocketMQ 5."""
    credentials: Credentials | None = None
    """Keys that sign each request."""
    tls: bool | TlsOptions | ssl.SSLContext = False
    """True: TLS, checked by the system's authorities; or TlsOptions, or an SSLContext."""
    socks_proxies: Mapping[str, SocksProxy] = field(default_factory=dict)
    """SOCKS5 proxies by network (`10.0.0.0/8`, `*`); needs `firearrow[socks]`."""
    vip_channel: bool = False
    """Sends to the broker's VIP port, two below its port."""
    binary_headers: bool = False
    """Encodes headers in RocketMQ's binary form."""
    heartbeat_v2: bool = False
    """Short heartbeats while subscriptions do not change."""
    poll_name_server_s: float = 30
    """How often routes are fetched."""
    heartbeat_s: float = 30
    """How often brokers get a heartbeat."""
    persist_offsets_s: float = 5
    """How often consumers store offsets."""
    rebalance_s: float = 20
    """How often consumers check their queues."""
    exception_delay_s: float = 1
    """Pause after a failed pull or pop."""
    api_timeout_s: float = 3
    """Timeout of other requests than sends, pulls and pops."""
    connect_timeout_s: float = 3
    """Timeout of a new connection."""
    idle_s: float = 120
    """Closes idle connections."""
    pending_max: int = 65535
    """Most unanswered requests of a connection."""
    generated_name: str = field(default_factory=_instance_name, repr=False)

    RANGES: ClassVar[Ranges] = {
        **dict.fromkeys(
            ("poll_name_server_s", "heartbeat_s", "persist_offsets_s", "rebalance_s", "exception_delay_s"),
            (0.001, 86400),
        ),
        **dict.fromkeys(("api_timeout_s", "connect_timeout_s", "idle_s"), (0.001, 86400)),
        "pending_max": (1, 1 << 20),
    }

    def __post_init__(self) -> None:
        _check_ranges(self, self.RANGES)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return _restored_options, (type(self), _process(), values)

    @property
    def own_name(self) -> str:
        """`generated_name`, in a process forked since then with that process's id."""
        made_by, _, rest = self.generated_name.partition("#")
        return self.generated_name if made_by == str(os.getpid()) else f"{os.getpid()}#{rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer sends: timeouts, further attempts, queue selection, compression, limits."""

    send_timeout_s: float = 3
    """Timeout of a call with all its attempts."""
    drain_s: float = 10
    """Longest wait of `close` for messages in flight."""
    attempt_timeout_s: float | None = None
    """Timeout of one attempt while others remain; None: half of what is left."""
    retries: int = 2
    """Further attempts of `send` and `send_batch`."""
    async_retries: int = 2
    """Further attempts of `submit`, if no broker answered."""
    retry_when_not_stored_ok: bool = False
    """Tries another queue if the status is not SEND_OK, which may store the message twice."""
    retry_codes: frozenset[int] = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})
    """Response codes that are tried again."""
    template_topic: str = "TBW102"
    """The template of topics that a send creates."""
    default_queues: int = 4
    """Queues of a topic that a send creates, at most the template's."""
    message_bytes_max: int = 4 * MIB
    """Largest body of a message or batch, before compression."""
    compress_over_bytes: int = 4096
    """Compresses bodies from this size on."""
    compress_level: int = 5
    """Higher is slower and smaller."""
    compression: CompressionKind = CompressionKind.ZLIB
    """LZ4 and ZSTD need `firearrow[compression]`; Go and C++ consumers read ZLIB only."""
    auto_batch: bool = False
    """Gathers single sends of a topic into batches."""
    batch_delay_s: float = 0.010
    """Longest wait for such a batch."""
    batch_bytes: int = 32768
    """Size at which it is sent at once."""
    batch_total_bytes: int = 32 * MIB
    """Most bytes in all such batches."""
    in_flight_max: int = 8192
    """Most messages sent but not answered."""
    in_flight_bytes: int = 100 * MIB
    """Most bytes of messages sent but not answered."""
    wait_when_full: bool = True
    """`send` waits at either limit; False, and always for `submit`: TooManyRequests."""
    latency_faults: bool = False
    """Avoids a broker after slow or failed sends."""
    fault_detector: bool = False
    """With `latency_faults`, probes such brokers."""
    detect_timeout_s: float = 0.2
    """Timeout of a probe."""
    detect_interval_s: float = 2
    """Shortest time between probes of a broker."""
    topics: tuple[str, ...] = ()
    """Topics whose routes the start needs."""
    check_threads: int = 1
    """Most transaction checks at a time."""
    checks_max: int = 2000
    """Most checks that run or wait."""
    trace: bool = False
    """Records message traces of sends."""
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    """Topic of the traces."""
    trace_batch: int = 10
    """Most traces in one trace message."""

    RANGES: ClassVar[Ranges] = {
        **dict.fromkeys(("send_timeout_s", "attempt_timeout_s", "detect_interval_s"), (0.001, 86400)),
        "drain_s": (0, 86400),
        **dict.fromkeys(("retries", "async_retries"), (0, 100)),
        "detect_timeout_s": (0.001, 60),
        "default_queues": (1, 65535),
        "message_bytes_max": (1, 128 * MIB),
        "compress_over_bytes": (0, 1 << 31),
        "compress_level": (0, 9),
        "batch_delay_s": (0.001, 30),
        "batch_bytes": (1, 2 * MIB),
        "batch_total_bytes": (1, 1 << 40),
        "in_flight_max": (10, 1 << 20),
        "in_flight_bytes": (MIB, 1 << 40),
        "check_threads": (1, 1000),
        "checks_max": (1, 1 << 20),
        "trace_batch": (1, 20),
    }

    def __post_init__(self) -> None:
        _check_ranges(self, self.RANGES)
        _check_enum(self, "compression", CompressionKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConsumerOptions:
    """Options that push and pull consumers share."""

    model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: members share the messages; BROADCASTING: each member gets all."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    """Where a group starts in a queue without an offset."""
    from_time: datetime = field(default_factory=lambda: datetime.now() - timedelta(minutes=30))
    """Where CONSUME_FROM_TIMESTAMP starts; default: 30 minutes ago."""
    allocate: Callable[..., Any] | str = "AVG"
    """How members split queues: AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, FixedQueues, MachineRoom,
    MachineRoomNearby, or a function `(group, client_id, queues, client_ids) -> queues`."""
    span_max: int = 2000
    """Stops pulling a queue while its unfinished offsets span more, unless `orderly`."""
    queue_messages_max: int = 1000
    """Stops pulling a queue that holds more messages."""
    queue_bytes_max: int = 100 * MIB
    """Stops pulling a queue that holds more bytes."""
    local_offsets: "Path | None" = None
    """Folder of broadcasting consumers' offsets; None: `~/.rocketmq_offsets`."""
    trace: bool = False
    """Records message traces of consumption."""
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    """Topic of the traces."""
    trace_batch: int = 10
    """Most traces in one trace message."""

    RANGES: ClassVar[Ranges] = {
        "span_max": (1, 65535),
        "queue_messages_max": (1, 65535),
        "queue_bytes_max": (MIB, 1024 * MIB),
        "trace_batch": (1, 20),
    }

    def __post_init__(self) -> None:
        _check_ranges(self, self.RANGES)
        _check_enum(self, "model", MessageModel)
        _check_enum(self, "from_where", ConsumeFromWhere)

    def offsets_folder(self) -> "Path":
        """The folder that `local_offsets` means. ConfigError if it is None and there is no home folder."""
        if self.local_offsets is not None:
            return self.local_offsets
        from pathlib import Path  # noqa: PLC0415 (slow, and few programs need it)

        try:
            return Path.home() / ".rocketmq_offsets"
        except RuntimeError:
            raise ConfigError("there is no home folder for the offsets: set local_offsets") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerOptions(_ConsumerOptions):
    """How a push consumer pulls, and passes messages to its handlers."""

    orderly: bool = False
    """Handles each queue in order, one batch at a time."""
    threads: int = 20
    """Most handler calls at a time, threads or tasks."""
    batch_size: int = 1
    """Most messages of a handler call."""
    pull_batch: int = 32
    """Most messages that one pull asks for."""
    pull_batch_bytes: int = 256 * 1024
    """Most bytes that one pull asks for."""
    pull_interval_s: float = 0
    """Pause after a pull or pop that brought messages."""
    pull_suspend_s: float = 15
    """How long a broker may hold a pull."""
    pull_timeout_s: float = 30
    """Timeout of a pull; must be above `pull_suspend_s`."""
    topic_messages_max: int | None = None
    """Most messages of a topic's queues; replaces `queue_messages_max`."""
    topic_bytes_max: int | None = None
    """Most bytes of a topic's queues; replaces `queue_bytes_max`."""
    post_subscription: bool = False
    """Sends the filter with each pull."""
    max_reconsume_times: int = -1
    """Retries before the dead letters; -1: 16, or no limit if `orderly`."""
    suspend_s: float = 1
    """With `orderly`: how long a queue pauses after a failure."""
    auto_commit: bool = True
    """With `orderly`: SUCCESS commits the offset; False: only COMMIT does, and ROLLBACK goes back to the last
    one.
    """
    consume_timeout_s: float = 15 * 60
    """A concurrent handler that runs longer has its message sent back."""
    drain_s: float = 10
    """Longest time that `close` waits for running handlers."""
    client_rebalance: bool = True
    """False: brokers assign queues, and may switch the group to POP."""
    pop_batch: int = 32
    """Most messages that one pop asks for."""
    pop_invisible_s: float = 60
    """How long a popped message is invisible to other members."""
    pop_queue_max: int = 96
    """Stops popping a queue with more unacknowledged messages."""

    RANGES: ClassVar[Ranges] = {
        **_ConsumerOptions.RANGES,
        "threads": (1, 1000),
        **dict.fromkeys(("batch_size", "pull_batch"), (1, 1024)),
        "pull_batch_bytes": (1, 64 * MIB),
        "pull_interval_s": (0, 65.535),
        "pull_suspend_s": (0, 3600),
        "pull_timeout_s": (0.001, 86400),
        "topic_messages_max": (1, 6553500),
        "topic_bytes_max": (MIB, 102400 * MIB),
        "max_reconsume_times": (-1, (1 << 31) - 1),
        "consume_timeout_s": (0.001, 86400 * 365),
        "suspend_s": (0.01, 30),
        "drain_s": (0, 86400),
        "pop_batch": (1, 32),
        "pop_invisible_s": (5, 300),
        "pop_queue_max": (1, 65535),
    }

    def __post_init__(self) -> None:
        _ConsumerOptions.__post_init__(self)
        if self.pull_timeout_s <= self.pull_suspend_s:
            raise ConfigError("pull_timeout_s must be above pull_suspend_s")
        if not self.client_rebalance and (self.orderly or self.model is MessageModel.BROADCASTING):
            raise ConfigError("client_rebalance=False is for concurrent, clustering consumers only")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerOptions(_ConsumerOptions):
    """How a pull consumer pulls ahead, and commits."""

    suspend_s: float = 20
    """How long a broker may hold a pull until a message arrives."""
    suspend_timeout_s: float = 30
    """Timeout of a pull; must not be below `suspend_s`."""
    auto_commit: bool = True
    """True: `poll` and `close` commit the messages polled before; False: call `commit` yourself."""
    auto_commit_s: float = 5
    """Shortest time between two such commits."""
    pull_batch: int = 10
    """Most messages that one pull asks for, and that one `poll` returns."""
    cached_max: int = 10000
    """Stops pulling while more messages of all queues are cached."""
    poll_timeout_s: float = 5
    """How long `poll` waits."""
    check_queues_s: float = 30
    """How often `on_queues_changed` compares a topic's queues."""

    RANGES: ClassVar[Ranges] = {
        **_ConsumerOptions.RANGES,
        "auto_commit_s": (1, 86400),
        "pull_batch": (1, 1024),
        "cached_max": (1, 1 << 20),
    }

    def __post_init__(self) -> None:
        _ConsumerOptions.__post_init__(self)
        if self.suspend_timeout_s < self.suspend_s:
            raise ConfigError("suspend_timeout_s must not be below suspend_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConsumerOptions:
    """How a POP consumer pops, and how long messages are its own."""

    invisible_s: float = 60
    """How long a received message is invisible to other members."""
    wait_s: float = 15
    """How long `receive` waits."""
    batch: int = 32
    """Most messages that `receive` returns."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    """Where a new group starts: at the first or after the last message."""
    orderly: bool = False
    """Delivers the next messages of a queue once the previous ones are acknowledged."""
    auto_renew: bool = False
    """Keeps received messages invisible, however long they take, until they are acknowledged or this client ends."""

    RANGES: ClassVar[Ranges] = {
        "invisible_s": (0.001, 3 * 86400),
        "wait_s": (0, 60),
        "batch": (1, 32),
    }

    def __post_init__(self) -> None:
        _check_ranges(self, self.RANGES)
        _check_enum(self, "from_where", ConsumeFromWhere)
        if self.from_where is ConsumeFromWhere.TIMESTAMP:
            raise ConfigError("from_where: a POP group starts at the first or after the last message")


def client_options(client: ClientOptions | None, name_server: str | None) -> ClientOptions:
    """`client` or the defaults; `name_server`, if set, replaces theirs."""
    if client is None:
        return ClientOptions() if name_server is None else ClientOptions(name_server=name_server)
    return client if name_server is None else replace(client, name_server=name_server)


def _check_enum(options: object, name: str, kind: type[StrEnum]) -> None:
    """A string of the same value is accepted and replaced by the member. ConfigError."""
    value = getattr(options, name)
    try:
        object.__setattr__(options, name, kind(value))
    except ValueError:
        raise ConfigError(
            f"{name} must be {' or '.join(f'{kind.__name__}.{member.name}' for member in kind)}, not {value!r}"
        ) from None


def _check_ranges(options: object, ranges: Ranges) -> None:
    for name, (least, most) in ranges.items():
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            raise ConfigError(f"{name} must be {least} to {most}, not {value}")
