"""MemoryLimits: what clients can make the broker hold, by the memory that its cgroup or machine grants. Loop thread.

Half of what the broker does not need for itself is for clients; the rest is page cache, which is charged to the cgroup,
tables and what malloc keeps. Each kind of buffer gets a share, at most what is enough on a large machine. Unread
answers and partial frames can grow within moments, so `connection_bytes` looks at the limit again while they do.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace

from firearrow._native.base import machine
from firearrow._native.fastpath.long_polling import BYTES_MAX as HELD_BYTES_MAX

log = logging.getLogger("firearrow.memory")

OWN_BYTES = 64 << 20
"""What a broker with few topics and clients needs for itself."""
CLIENT_BYTES_MIN = 32 << 20
"""For clients even of the smallest container: a few frames of the largest size."""
KEYS = {"connections": "maxConnectionBytes", "replies": "maxReplyBytesWaiting"}
"""The options of those shares that have one."""
CGROUP, MACHINE = "cgroup", "machine"


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes. `connections`: partial frames and unread answers; `kernel`: unsent bytes in sockets; `requests`: bodies of
    requests in progress; `held_pulls`, `held_pops`: held requests; `replies`: that wait for their clients;
    `subscriptions`: of all clients; `receipt_handles`: that are renewed for clients of gRPC."""

    connections: int
    requests: int
    kernel: int
    held_pulls: int
    held_pops: int
    replies: int
    subscriptions: int
    receipt_handles: int


CONNECTION_BYTES_MAX = 1 << 30
REQUEST_BYTES_MAX = 256 << 20
KERNEL_BYTES_MAX = 128 << 20
REPLY_BYTES_MAX = 64 << 20
SUBSCRIPTION_BYTES_MAX = 300_000_000
RECEIPT_HANDLE_BYTES_MAX = 60_000_000
MOST = Shares(
    connections=CONNECTION_BYTES_MAX,
    requests=REQUEST_BYTES_MAX,
    kernel=KERNEL_BYTES_MAX,
    held_pulls=HELD_BYTES_MAX,
    held_pops=HELD_BYTES_MAX,
    replies=REPLY_BYTES_MAX,
    subscriptions=SUBSCRIPTION_BYTES_MAX,
    receipt_handles=RECEIPT_HANDLE_BYTES_MAX,
)
LEAST = Shares(
    connections=32 << 20,
    requests=16 << 20,
    kernel=4 << 20,
    held_pulls=2 << 20,
    held_pops=2 << 20,
    replies=4 << 20,
    subscriptions=2 << 20,
    receipt_handles=2 << 20,
)
SIXTEENTHS = Shares(
    connections=7,
    requests=2,
    kernel=2,
    held_pulls=1,
    held_pops=1,
    replies=1,
    subscriptions=1,
    receipt_handles=1,
)


def shares_of(limit: int) -> Shares:
    """Those of this memory in bytes."""
    total = max((limit - OWN_BYTES) // 2, CLIENT_BYTES_MIN)
    most, least = asdict(MOST), asdict(LEAST)
    return Shares(
        **{
            name: min(max(total * part // 16, least[name]), most[name])
            for name, part in asdict(SIXTEENTHS).items()
        }
    )


def granted() -> tuple[int, str]:
    """The memory in bytes, and who grants it: the smaller of the cgroup's limit and the machine's memory."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = machine.memory_limit()
    return (physical, MACHINE) if limit is None or limit >= physical else (limit, CGROUP)


class MemoryLimits:
    """`explicit()`: bytes that the user set by an option, by the name of their share, 0: not set. They take precedence,
    and the log warns if they are more than the share."""

    def __init__(self, explicit: Callable[[], Mapping[str, int]] = dict) -> None:
        self._explicit = explicit
        self._listeners: list[Callable[[Shares], None]] = []
        self.limit, self.source = granted()
        self.shares = self._effective()

    def listen(self, changed: Callable[[Shares], None]) -> None:
        """Call `changed` now, and after every change."""
        self._listeners.append(changed)
        changed(self.shares)

    def connection_bytes(self) -> int:
        """What connections may hold by the limit of now."""
        self.look()
        return self.shares.connections

    def look(self) -> None:
        """Look at the limit and the options again: they may have changed, and the process may be in another cgroup."""
        before = self.limit, self.source, self.shares
        self.limit, self.source = granted()
        self.shares = self._effective()
        if (self.limit, self.source, self.shares) != before:
            self.report()
            for changed in self._listeners:
                changed(self.shares)

    def report(self) -> None:
        """Log the limits, and warn of options that exceed them."""
        log.info(
            "the %s grants %d bytes of memory; clients can make the broker hold at most, in bytes: %s",
            self.source,
            self.limit,
            ", ".join(f"{name} {value}" for name, value in asdict(self.shares).items()),
        )
        fitting = asdict(shares_of(self.limit))
        for name, value in self._explicit().items():
            if value > fitting[name]:
                log.warning(
                    "%s=%d is more than the %d bytes for it that fit into the %d bytes of memory that the %s grants: "
                    "clients that do not read can get the broker killed; unset it, or grant more memory",
                    KEYS[name],
                    value,
                    fitting[name],
                    self.limit,
                    self.source,
                )

    def to_object(self) -> dict[str, object]:
        return {"limitBytes": self.limit, "limitedBy": self.source, "clientBytes": asdict(self.shares)}

    def _effective(self) -> Shares:
        return replace(
            shares_of(self.limit), **{name: value for name, value in self._explicit().items() if value}
        )
