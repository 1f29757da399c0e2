"""What can be set, each with Java's default; checked where it is made. Durations in seconds, sizes in bytes.

A value out of its range raises ConfigError with the range. Two objects given the same ClientOptions share one instance.
"""

import itertools
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from firearrow.client.errors import ConfigError

MIB = 1 << 20
_names = itertools.count()


class MessageModel(StrEnum):
    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(StrEnum):
    """Where a group begins in a queue of which it has no offset."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class CompressionKind(StrEnum):
    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What requests are signed with (ACL, both generations sign alike)."""

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
            raise ConfigError(f"proxy {self.address!r}: `host:port` is wanted")


def _instance_name() -> str:
    """Unlike every other in this process and in others, containers with equal addresses and process ids included."""
    return f"{os.getpid()}#{time.monotonic_ns()}{next(_names)}{os.urandom(2).hex()}"


def _name_server() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What producers and consumers of one instance share: name servers, identity, security, timers."""

    name_server: str = field(default_factory=_name_server)
    """`host:port`, several separated by `;`. Default: NAMESRV_ADDR of the environment; else `name_server_url`."""
    name_server_url: str | None = None
    """Where the addresses are to be had by HTTP, e.g. `http://host:8080/rocketmq/nsaddr`."""
    instance_name: str | None = None
    """Part of the client id; None gives each ClientOptions its own, and broadcasting consumers `DEFAULT`."""
    client_ip: str | None = None
    unit_name: str | None = None
    namespace: str | None = None
    namespace_v2: str | None = None
    credentials: Credentials | None = None
    tls: bool | ssl.SSLContext = False
    """True: encrypted, the peer's certificate is checked against the system's authorities."""
    socks_proxies: Mapping[str, SocksProxy] = field(default_factory=dict)
    """SOCKS5 proxies by the network that lies behind them (`10.0.0.0/8`), or `*`; needs `firearrow[socks]`."""
    vip_channel: bool = False
    binary_headers: bool = False
    """Headers in RocketMQ's binary form instead of JSON."""
    heartbeat_v2: bool = False
    poll_name_server_s: float = 30
    heartbeat_s: float = 30
    persist_offsets_s: float = 5
    rebalance_s: float = 20
    exception_delay_s: float = 1
    api_timeout_s: float = 3
    connect_timeout_s: float = 3
    idle_s: float = 120
    pending_max: int = 65535
    """Requests on the way to one broker at a time."""
    generated_name: str = field(default_factory=_instance_name, repr=False)

    def __post_init__(self) -> None:
        for name in ("poll_name_server_s", "heartbeat_s", "persist_offsets_s", "rebalance_s", "exception_delay_s",
                     "api_timeout_s", "connect_timeout_s", "idle_s"):  # fmt: skip
            _within(self, name, 0.001, 86400)
        _within(self, "pending_max", 1, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    send_timeout_s: float = 3
    """For a whole call, with all its tries."""
    attempt_timeout_s: float | None = None
    """Cuts one try short while others are left."""
    retries: int = 2
    async_retries: int = 2
    retry_when_not_stored_ok: bool = False
    retry_codes: frozenset[int] = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})
    template_topic: str = "TBW102"
    default_queues: int = 4
    message_bytes_max: int = 4 * MIB
    compress_over_bytes: int = 4096
    compress_level: int = 5
    compression: CompressionKind = CompressionKind.ZLIB
    auto_batch: bool = False
    batch_delay_s: float = 0.010
    batch_bytes: int = 32768
    batch_total_bytes: int = 32 * MIB
    in_flight_max: int = 8192
    in_flight_bytes: int = 100 * MIB
    wait_when_full: bool = True
    """`send` waits for room (within its timeout); False, and always in `submit`: TooManyRequests."""
    latency_faults: bool = False
    fault_detector: bool = False
    detect_timeout_s: float = 0.2
    detect_interval_s: float = 2
    topics: tuple[str, ...] = ()
    """Routes fetched at the start."""
    check_threads: int = 1
    """Checks of transactions that run at a time."""
    checks_max: int = 2000
    """Checks that wait; brokers ask again about those that find no room."""
    trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    trace_batch: int = 10

    def __post_init__(self) -> None:
        _within(self, "send_timeout_s", 0.001, 86400)
        _within(self, "attempt_timeout_s", 0.001, 86400)
        _within(self, "detect_timeout_s", 0.001, 60)
        _within(self, "detect_interval_s", 0.001, 86400)
        _within(self, "retries", 0, 100)
        _within(self, "async_retries", 0, 100)
        _within(self, "default_queues", 1, 65535)
        _within(self, "message_bytes_max", 1, 128 * MIB)
        _within(self, "compress_over_bytes", 0, 1 << 31)
        _within(self, "compress_level", 0, 9)
        _within(self, "batch_delay_s", 0.001, 30)
        _within(self, "batch_bytes", 1, 2 * MIB)
        _within(self, "batch_total_bytes", 1, 1 << 40)
        _within(self, "in_flight_max", 10, 1 << 20)
        _within(self, "in_flight_bytes", MIB, 1 << 40)
        _within(self, "check_threads", 1, 1000)
        _within(self, "checks_max", 1, 1 << 20)
        _within(self, "trace_batch", 1, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConsumerOptions:
    """What push and pull consumers have in common."""

    model: MessageModel = MessageModel.CLUSTERING
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    from_time: datetime = field(default_factory=lambda: datetime.now() - timedelta(minutes=30))
    allocate: Callable[..., Any] | str = "AVG"
    """One of the six strategies by its name, or `(group, client_id, queues, client_ids) -> queues`."""
    span_max: int = 2000
    queue_messages_max: int = 1000
    queue_bytes_max: int = 100 * MIB
    """At least 1 MiB; what a queue holds is compared in whole MiB, as Java does it."""
    local_offsets: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")
    trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    trace_batch: int = 10

    def __post_init__(self) -> None:
        _within(self, "span_max", 1, 65535)
        _within(self, "queue_messages_max", 1, 65535)
        _within(self, "queue_bytes_max", MIB, 1024 * MIB)
        _within(self, "trace_batch", 1, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConsumerOptions(_ConsumerOptions):
    orderly: bool = False
    threads: int = 20
    """Handlers that run at a time, threads or tasks."""
    batch_size: int = 1
    """Messages a call of a handler gets at most."""
    pull_batch: int = 32
    pull_batch_bytes: int = 256 * 1024
    pull_interval_s: float = 0
    pull_suspend_s: float = 15
    """How long a broker may hold a pull until there is something."""
    pull_timeout_s: float = 30
    """How long the answer to a pull is waited for, longer than `pull_suspend_s`."""
    topic_messages_max: int | None = None
    topic_bytes_max: int | None = None
    post_subscription: bool = False
    max_reconsume_times: int = -1
    """-1: 16, or without end when orderly."""
    suspend_s: float = 1
    """How long an orderly queue rests after a failure, 0.01 to 30."""
    auto_commit: bool = True
    """Orderly only. False: SUCCESS goes on without an end, and handlers say COMMIT or ROLLBACK."""
    consume_timeout_s: float = 15 * 60
    drain_s: float = 10
    """How long `close` waits for handlers that run."""
    client_rebalance: bool = True
    """False: brokers assign the queues (and may switch them to POP)."""
    pop_batch: int = 32
    pop_invisible_s: float = 60
    pop_queue_max: int = 96

    def __post_init__(self) -> None:
        super(PushConsumerOptions, self).__post_init__()
        _within(self, "threads", 1, 1000)
        _within(self, "batch_size", 1, 1024)
        _within(self, "pull_batch", 1, 1024)
        _within(self, "pull_batch_bytes", 1, 64 * MIB)
        _within(self, "pull_interval_s", 0, 65.535)
        _within(self, "pull_suspend_s", 0, 3600)
        _within(self, "pull_timeout_s", 0.001, 86400)
        if self.pull_timeout_s <= self.pull_suspend_s:
            raise ConfigError("pull_timeout_s must be above pull_suspend_s")
        _within(self, "topic_messages_max", 1, 6553500)
        _within(self, "topic_bytes_max", MIB, 102400 * MIB)
        _within(self, "max_reconsume_times", -1, (1 << 31) - 1)
        _within(self, "consume_timeout_s", 0.001, 86400 * 365)
        _within(self, "suspend_s", 0.01, 30)
        _within(self, "drain_s", 0, 86400)
        _within(self, "pop_batch", 1, 32)
        _within(self, "pop_invisible_s", 5, 300)
        _within(self, "pop_queue_max", 1, 65535)
        if not self.client_rebalance and (self.orderly or self.model is MessageModel.BROADCASTING):
            raise ConfigError("client_rebalance=False is for concurrent, clustering consumers only")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerOptions(_ConsumerOptions):
    suspend_s: float = 20
    suspend_timeout_s: float = 30
    auto_commit: bool = True
    auto_commit_s: float = 5
    pull_batch: int = 10
    cached_max: int = 10000
    poll_timeout_s: float = 5
    check_queues_s: float = 30

    def __post_init__(self) -> None:
        super(PullConsumerOptions, self).__post_init__()
        _within(self, "auto_commit_s", 1, 86400)
        _within(self, "pull_batch", 1, 1024)
        _within(self, "cached_max", 1, 1 << 20)
        if self.suspend_timeout_s < self.suspend_s:
            raise ConfigError("suspend_timeout_s must not be below suspend_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConsumerOptions:
    invisible_s: float = 60
    wait_s: float = 15
    batch: int = 32
    from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    orderly: bool = False

    def __post_init__(self) -> None:
        _within(self, "invisible_s", 0.001, 3 * 86400)
        _within(self, "wait_s", 0, 60)
        _within(self, "batch", 1, 32)
        if self.from_where is ConsumeFromWhere.TIMESTAMP:
            raise ConfigError("from_where: a group that pops begins at the first or behind the last message")


def client_options(client: ClientOptions | None, name_server: str | None) -> ClientOptions:
    """Those given (else the defaults), with `name_server` put in if it is given."""
    if client is None:
        return ClientOptions() if name_server is None else ClientOptions(name_server=name_server)
    return client if name_server is None else replace(client, name_server=name_server)


def _within(options: object, name: str, least: float, most: float) -> None:
    value = getattr(options, name)
    if value is not None and not least <= value <= most:
        raise ConfigError(f"{name}: {value} is not within {least}..{most}")
