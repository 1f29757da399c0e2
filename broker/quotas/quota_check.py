"""QuotaCheck: what becomes of requests over a quota. Loop thread.

A send over its quota is stored. The connection is throttled, which means that it sends no answer and reads no request,
until the quota allows what was sent, at most DELAY_MAX_S. With more debt than that, further sends are refused with
SYSTEM_BUSY, as Apache's broker refuses sends, and the refusal is as late. Kafka throttles in the same way.

A read (pull, pop, peek, query) over its quota waits until the quota allows the next one: as long as its client waits
for messages, and at least DELAY_MAX_S. Then it is refused with FLOW_CONTROL, after which Java's consumers read again.
Other requests of the connection do not wait for it.

Plain sends and pulls are counted by the fast path, all others here.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from firearrow._native.fastpath.quotas import DELAY_MAX_S, IN, OUT, Quotas
from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, counted_address
from firearrow.broker.quotas.quota_table import (
    ADDRESS,
    CONNECTIONS,
    EVERY,
    GROUP,
    RATES,
    TOPIC,
    USER,
    QuotaTable,
)

log = logging.getLogger("firearrow.quotas")

KINDS = (USER, TOPIC, GROUP)
"""By their numbers in Quotas."""
READ_WAIT_MAX_S = 15.0
"""Most that a read waits: clients expect an answer to a held request after 15 s, and give up after 20 s or more."""
WAIT_MIN_S = 0.001
ASKED_AGAIN_S = 1.0
"""A read that waits longer is asked about again: its quota may have become higher."""
REFUSED_LOG_S = 1.0
ITEM_BYTES_MIN = 22
"""Of a message in a batch: its fixed fields."""
TOPIC_FIELDS = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
    RequestCode.SEND_REPLY_MESSAGE: "topic",
    RequestCode.SEND_REPLY_MESSAGE_V2: "b",
}
SENDS = frozenset((*TOPIC_FIELDS, RequestCode.CONSUMER_SEND_MSG_BACK))
PROPERTIES_FIELDS = {"topic": "properties", "b": "i"}
"""The topic's field → that of the properties."""
PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
QUERIES = frozenset((RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID))
POPS = frozenset((RequestCode.POP_MESSAGE, RequestCode.POP_LITE_MESSAGE))
READS = frozenset((*PULLS, *QUERIES, *POPS, RequestCode.PEEK_MESSAGE))
SUSPEND_FIELD = "suspendTimeoutMillis"


class QuotaCheck:
    """A request counts for its user only if that was verified: its `user` states it."""

    def __init__(self, table: QuotaTable) -> None:
        self.table = table
        self.quotas = Quotas()
        self.active = False
        self._limits_sends = self._limits_reads = False
        self._connections: dict[str, set[Peer]] = {}
        self.refused_connections = {USER: 0, ADDRESS: 0}
        self._logged_at = -REFUSED_LOG_S
        self._listeners: list[Callable[[Quotas | None, Quotas | None], None]] = []
        self.configure()

    def listen(self, listener: Callable[[Quotas | None, Quotas | None], None]) -> None:
        """Call it now and after each change, with what limits sends and what limits reads; None: nothing does."""
        self._listeners.append(listener)
        listener(*self._limits())

    def configure(self) -> None:
        """The table changed."""
        for number, kind in enumerate(KINDS):
            named = {name: _rates(quotas) for name, quotas in self.table.of_kind(kind).items()}
            default = named.pop(EVERY, None)
            self.quotas.configure(number, default if default is not None and any(default) else None, named)
        self._limits_sends, self._limits_reads = self.quotas.limits(IN), self.quotas.limits(OUT)
        self.active = self._limits_sends or self._limits_reads
        for listener in self._listeners:
            listener(*self._limits())

    def _limits(self) -> tuple[Quotas | None, Quotas | None]:
        return self.quotas if self._limits_sends else None, self.quotas if self._limits_reads else None

    # ---- requests ----

    def admit(self, request: RemotingCommand, peer: Peer, waited_s: float) -> float:
        """Seconds that the request has to wait before it is asked about again; 0: it may be handled now.
        `waited_s`: how long it has. Refusal."""
        if self._limits_sends and request.code in SENDS:
            self._admit_send(request, peer)
        elif self._limits_reads and request.code in READS:
            return self._admit_read(request, waited_s)
        return 0.0

    def _admit_send(self, request: RemotingCommand, peer: Peer) -> None:
        now, user, topic = time.monotonic(), request.user, _topic_of(request)
        if self.quotas.debt(IN, user, topic, None, now) > DELAY_MAX_S:
            peer.throttle(DELAY_MAX_S)
            raise self._refusal(ResponseCode.SYSTEM_BUSY, IN, user, topic, None, now)
        if request.code != RequestCode.CONSUMER_SEND_MSG_BACK:  # its size is not known yet
            self._charge_send(request, peer, topic, _messages_of(request), _bytes_of(request), now)

    def sent_back(self, request: RemotingCommand, peer: Peer, size: int) -> None:
        """The request has stored a copy of a message, of `size` bytes."""
        if self._limits_sends:
            self._charge_send(request, peer, _topic_of(request), 1, size, time.monotonic())

    def _charge_send(
        self, request: RemotingCommand, peer: Peer, topic: str, messages: int, size: int, now: float
    ) -> None:
        debt_s = self.quotas.charge(IN, request.user, topic, None, messages, size, now)
        if debt_s > 0:
            peer.throttle(min(debt_s, DELAY_MAX_S))

    def _admit_read(self, request: RemotingCommand, waited_s: float) -> float:
        now, user = time.monotonic(), request.user
        topic, group = request.text_or("topic", ""), request.text_or("consumerGroup", "")
        if request.code in QUERIES:
            topic, group = "" if request.code == RequestCode.VIEW_MESSAGE_BY_ID else topic, ""
        debt_s = self.quotas.debt(OUT, user, topic, group, now)
        if debt_s <= 0:
            if waited_s > 0 and request.code in PULLS:
                _shorten_hold(request, waited_s)
            return 0.0
        left_s = _patience_s(request) - waited_s
        if left_s <= 0:
            raise self._refusal(ResponseCode.FLOW_CONTROL, OUT, user, topic, group, now)
        return max(min(debt_s, left_s, ASKED_AGAIN_S), WAIT_MIN_S)

    def view(self, request: RemotingCommand, topic: str, size: int) -> None:
        """A message of the topic, of `size` bytes, was found by its offset, and is given to the request. Refusal: the
        topic is too far over its quota. Which topic it is was not known before."""
        now = time.monotonic()
        if self._limits_reads and self.quotas.debt(OUT, None, topic, None, now) > DELAY_MAX_S:
            raise self._refusal(ResponseCode.FLOW_CONTROL, OUT, None, topic, None, now)
        self.read(request, "", topic, 1, size)

    def read(self, request: RemotingCommand, group: str, topic: str, messages: int, size: int) -> None:
        """`messages` with `size` bytes are given to the request."""
        if self._limits_reads:
            self.quotas.charge(OUT, request.user, topic, group, messages, size, time.monotonic())

    def _refusal(
        self, code: int, direction: int, user: str | None, topic: str, group: str | None, now: float
    ) -> Refusal:
        kind, name, which, rate = self.quotas.refuse(direction, user, topic, group, now)
        verb = "send" if direction == IN else "read"
        remark = f"the {KINDS[kind]} {name} is over its quota {RATES[which]}={rate:.0f}: {verb} more slowly"
        return Refusal(code, remark)

    # ---- connections ----

    def logged_in(self, peer: Peer, user: str) -> None:
        """A request of the user came on this connection. Refusal: the user has too many others; it is closed soon."""
        held = self._connections.get(user, set())
        if peer in held or peer.closed:
            return
        limit = self.table.value(USER, user, CONNECTIONS)
        if limit and len(held) >= limit:
            self.refused_connections[USER] += 1
            remark = (
                f"the user {user} is over its quota {CONNECTIONS}={limit}: close another connection first"
            )
            peer.throttle(DELAY_MAX_S)
            asyncio.get_running_loop().call_later(DELAY_MAX_S, peer.close)
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
        self._connections.setdefault(user, held).add(peer)
        peer.on_close(lambda closed: self._closed(closed, user))

    def _closed(self, peer: Peer, user: str) -> None:
        held = self._connections.get(user, set())
        held.discard(peer)
        if not held:
            self._connections.pop(user, None)

    def connections(self, user: str) -> int:
        return len(self._connections.get(user, ()))

    def admits(self, address: str, others: Mapping[str, int]) -> bool:
        """Whether the address may have one connection more. `others`: how many each address and each network has."""
        if not self.table.names(ADDRESS, address):
            address = counted_address(address)
        limit = self.table.value(ADDRESS, address, CONNECTIONS)
        if not limit or others.get(address, 0) < limit:
            return True
        self.refused_connections[ADDRESS] += 1
        if time.monotonic() - self._logged_at >= REFUSED_LOG_S:
            self._logged_at = time.monotonic()
            log.info("closed a connection of %s: it is over its quota %s=%d", address, CONNECTIONS, limit)
        return False


def _rates(quotas: Mapping[str, int]) -> tuple[float, float, float, float]:
    messages_in, bytes_in, messages_out, bytes_out = (float(quotas.get(member, 0)) for member in RATES)
    return messages_in, bytes_in, messages_out, bytes_out


def _topic_of(request: RemotingCommand) -> str:
    if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return name_rules.RETRY_PREFIX + request.text_or("group", "")
    return request.text_or(TOPIC_FIELDS[RequestCode(request.code)], "")


def _messages_of(request: RemotingCommand) -> int:
    """How many messages it sends."""
    field = "m" if request.code == RequestCode.SEND_MESSAGE_V2 else "batch"
    if request.code != RequestCode.SEND_BATCH_MESSAGE and not request.boolean_or(field, False):
        return 1
    body, at, count = request.body, 0, 0
    while at + ITEM_BYTES_MIN <= len(body):
        at += max(int.from_bytes(body[at : at + 4], "big"), ITEM_BYTES_MIN)
        count += 1
    return max(count, 1)


def _bytes_of(request: RemotingCommand) -> int:
    """Of what it sends to be stored."""
    properties = request.ext.get(PROPERTIES_FIELDS[TOPIC_FIELDS[RequestCode(request.code)]], "")
    return len(request.body) + len(properties.encode("utf-8", "replace"))


def _shorten_hold(request: RemotingCommand, waited_s: float) -> None:
    """What the pull has waited for its quota, it does not wait for messages: its client gives up after a time."""
    left_ms = request.integer_or(SUSPEND_FIELD, 0) - int(waited_s * 1000)
    request.ext[SUSPEND_FIELD] = str(max(left_ms, 0))


def _patience_s(request: RemotingCommand) -> float:
    """How long the client of a read waits for its answer in any case."""
    wait_ms = 0
    if request.code in POPS:
        wait_ms = request.integer_or("pollTime", 0)
    elif request.integer_or("sysFlag", 0) & PullFlag.PULL_SUSPEND:
        wait_ms = request.integer_or(SUSPEND_FIELD, 0)
    return min(max(wait_ms / 1000, DELAY_MAX_S), READ_WAIT_MAX_S)
