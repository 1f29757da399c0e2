"""Extensions: requests that only FireArrow's broker answers. `Extensions(admin)` uses a started Admin.

Nothing is cached. Loop thread.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.extension_records import (
    BrokerConnection,
    EntityQuotas,
    GroupQueueLag,
    HalfMessage,
    Listing,
    LoggedLine,
    PendingTimer,
    PoppedMessage,
    QueueLock,
    Refusals,
    RefusedRequest,
    TrimmedQueue,
    rows_of,
)
from firearrow.client.admin_api.listings import ListedGroup, ListedTopic, listed_groups, listed_topics
from firearrow.client.admin_api.records import Members, read
from firearrow.client.admin_api.requests import milliseconds
from firearrow.client.base.errors import BrokerError, ConfigError, OnlyFireArrow
from firearrow.client.base.service_state import Uncopied

Row = TypeVar("Row")
RATES = ("messagesInPerSecond", "bytesInPerSecond", "messagesOutPerSecond", "bytesOutPerSecond")
QUOTAS = {
    "user": (*RATES, "connections"),
    "topic": RATES,
    "group": RATES[2:],
    "address": ("connections",),
}
"""What each kind of entity may have."""
PAGE_ROWS = 1000
QUOTAS_LISTED_MAX = 100_000
"""More than a broker has."""
WRAPPED = ("topic", "group")
"""Entities whose names have the namespace."""


class Extensions(Uncopied):
    """`broker`: the name of the one to ask; without it all masters are. Names are the user's, as for Admin.

    All methods: OnlyFireArrow (a broker is Apache's), BrokerError, TransportError, ClientError.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._wrap = admin.namespace.wrap
        self._unwrap, self._has = admin.namespace.unwrap, admin.namespace.has

    async def trim_topic(
        self,
        topic: str,
        *,
        offset: int | None = None,
        before: datetime | int | None = None,
        queue_id: int | None = None,
        dry_run: bool = False,
        broker: str | None = None,
    ) -> list[TrimmedQueue]:
        """Remove the messages of a queue, or of all, before an offset (-1: all that are there now) or stored before
        a time (int: ms). No reader sees them any more. `dry_run` changes nothing. ConfigError."""
        if (offset is None) == (before is None):
            raise ConfigError("offset, before: give one of them; offset -1 removes all messages")
        ext = {"topic": self._wrap(topic), "dryRun": str(dry_run).lower()}
        ext |= {"timestamp": str(milliseconds(before))} if before is not None else {"offset": str(offset)}
        if queue_id is not None:
            ext["queueId"] = str(queue_id)
        names = [broker] if broker is not None else await self._brokers_of(ext["topic"])
        found = [
            await self._list(TrimmedQueue, RequestCode.TRIM_TOPIC, "queues", ext, name) for name in names
        ]
        return [row for listing in found for row in listing]

    async def pending_timers(
        self,
        topic: str = "",
        *,
        begin_ms: int = 0,
        end_ms: int | None = None,
        limit: int = 100,
        broker: str | None = None,
    ) -> Listing[PendingTimer]:
        """Timer and delayed messages that are not delivered yet and are due between two times, by due time."""
        ext = {"limit": str(limit)} | ({"topic": self._wrap(topic)} if topic else {})
        ext |= {} if end_ms is None else {"to": str(end_ms)}
        names = [broker] if broker is not None else list(await self._admin.calls.masters())
        pages = await asyncio.gather(*(self._timers_of(name, ext, begin_ms, limit) for name in names))
        return Listing(tuple(row for page in pages for row in page), any(page.more for page in pages))

    async def _timers_of(
        self, broker: str, ext: Mapping[str, str], begin_ms: int, limit: int
    ) -> Listing[PendingTimer]:
        """A request reads a limited number of messages of all topics; further ones go on where it ended."""
        found: tuple[PendingTimer, ...] = ()
        while True:
            at = dict(ext) | {"from": str(begin_ms)}
            answer = (await self._ask(RequestCode.LIST_PENDING_TIMERS, at, broker))[broker]
            page = read(answer.body, rows_of(PendingTimer, "messages", broker))
            found += tuple(map(self._unwrapped, page))
            until_ms = read(answer.body, lambda of: of.number("untilMs"))
            if not page.more or len(found) >= limit or until_ms <= begin_ms:
                return Listing(found[:limit], page.more or len(found) > limit)
            begin_ms = until_ms

    async def half_messages(
        self, group: str = "", *, limit: int = 100, broker: str | None = None
    ) -> Listing[HalfMessage]:
        """Messages of transactions that are not decided, oldest first; `group`: of a producer group."""
        ext = {"limit": str(limit)} | ({"group": self._wrap(group)} if group else {})
        return await self._list(HalfMessage, RequestCode.LIST_HALF_MESSAGES, "messages", ext, broker)

    async def queue_locks(
        self, group: str = "", *, limit: int = 1000, broker: str | None = None
    ) -> Listing[QueueLock]:
        """Which member consumes which queue in order, and the message at which each queue is."""
        ext = {"limit": str(limit)} | ({"group": self._wrap(group)} if group else {})
        return await self._list(QueueLock, RequestCode.LIST_QUEUE_LOCKS, "locks", ext, broker)

    async def pop_in_flight(
        self, group: str, topic: str = "", *, limit: int = 100, broker: str | None = None
    ) -> Listing[PoppedMessage]:
        """Messages that the group popped and has not acknowledged; the next to be visible again first."""
        ext = {"group": self._wrap(group), "limit": str(limit)} | (
            {"topic": self._wrap(topic)} if topic else {}
        )
        return await self._list(PoppedMessage, RequestCode.LIST_POP_IN_FLIGHT, "messages", ext, broker)

    async def lag(
        self, group: str = "", topic: str = "", *, broker: str | None = None
    ) -> Listing[GroupQueueLag]:
        """The lag of a group, or of all, in messages and in time, by queue."""
        ext = ({"group": self._wrap(group)} if group else {}) | (
            {"topic": self._wrap(topic)} if topic else {}
        )
        return await self._list(GroupQueueLag, RequestCode.GET_LAG, "queues", ext, broker)

    async def topics(self, broker: str, *, sizes: bool = False) -> dict[str, ListedTopic]:
        """All topics of a broker with their queues; `sizes`: and about how many bytes of the log are theirs."""
        calls = self._admin.calls
        found = await listed_topics(calls, await calls.master(broker), sizes=sizes)
        return {self._unwrap(name): topic for name, topic in found.items() if self._has(name)}

    async def groups(self, broker: str, *, details: bool = False) -> dict[str, ListedGroup]:
        """All groups of a broker with their members and progress as far as it knows: members may be connected to
        others. `details`: with members, subscriptions and offsets instead of the sums."""
        calls = self._admin.calls
        found = await listed_groups(calls, await calls.master(broker), details=details)
        if self._admin.namespace.name:
            for group in found.values():
                group.subscriptions = {self._unwrap(name): text for name, text in group.subscriptions.items()}
                group.offsets = {self._unwrap(name): queues for name, queues in group.offsets.items()}
        return {self._unwrap(name): group for name, group in found.items() if self._has(name)}

    async def refusals(self, *, limit: int = 256, broker: str | None = None) -> Refusals:
        """The last requests that were refused, newest first, and how many were by reason."""
        last: list[RefusedRequest] = []
        totals: dict[str, int] = {}
        answers = await self._ask(RequestCode.LIST_REFUSALS, {"limit": str(limit)}, broker)
        for name, answer in answers.items():
            last += read(answer.body, rows_of(RefusedRequest, "refusals", name))
            for reason, count in read(answer.body, lambda of: of.members("byReason").pairs()):
                totals[str(reason)] = totals.get(str(reason), 0) + (count if isinstance(count, int) else 0)
        return Refusals(tuple(sorted(last, key=lambda each: -each.at_ms)), totals)

    async def connections(self, *, limit: int = 1000, broker: str | None = None) -> Listing[BrokerConnection]:
        """The connections of clients, oldest first."""
        ext = {"limit": str(limit)}
        return await self._list(BrokerConnection, RequestCode.LIST_CONNECTIONS, "connections", ext, broker)

    async def close_connection(
        self, *, address: str = "", client_id: str = "", broker: str | None = None
    ) -> int:
        """Close the connection of an address (`ip:port`), or those of a client; how many were closed. The one that
        asks stays open."""
        ext = {name: value for name, value in (("address", address), ("clientId", client_id)) if value}
        answers = await self._ask(RequestCode.CLOSE_CONNECTION, ext, broker)
        return sum(read(answer.body, lambda of: of.number("closed")) for answer in answers.values())

    async def set_quota(
        self, entity: str, name: str, changes: Mapping[str, int | None], *, broker: str | None = None
    ) -> None:
        """Set quotas of a `user`, `topic`, `group` or `address`, or of each (`*`); None removes one. Members are
        `messagesInPerSecond`, `bytesInPerSecond`, `messagesOutPerSecond`, `bytesOutPerSecond`, `connections`."""
        ext = {"entity": entity, "name": self._entity_name(entity, name)}
        await self._ask(RequestCode.UPDATE_QUOTA, ext, broker, json.dumps(dict(changes)).encode())

    async def delete_quotas(self, entity: str, name: str, *, broker: str | None = None) -> None:
        """Delete all that it has."""
        await self.set_quota(entity, name, dict.fromkeys(QUOTAS.get(entity, ())), broker=broker)

    async def quotas(
        self, *, limit: int = QUOTAS_LISTED_MAX, broker: str | None = None
    ) -> Listing[EntityQuotas]:
        """All that were set, and what was used of them; at most `limit` of each broker. While entities come and go,
        one may be missing or listed twice."""
        masters = await self._admin.calls.masters() if broker is None else (broker,)
        listings = await asyncio.gather(*(self._quotas_of(each, limit) for each in masters))
        rows = tuple(row for listing in listings for row in listing)
        return Listing(rows, any(listing.more for listing in listings))

    async def _quotas_of(self, broker: str, limit: int) -> Listing[EntityQuotas]:
        """Page by page. Brokers that do not report how many there are have one page."""
        found, more = list[EntityQuotas](), True
        while more and len(found) < limit:
            ext = {"limit": str(min(PAGE_ROWS, limit - len(found))), "begin": str(len(found))}
            answer = (await self._ask(RequestCode.GET_QUOTAS, ext, broker))[broker]
            fresh, more, total = read(
                answer.body,
                lambda of: (
                    [EntityQuotas.of(Members(each), broker) for each in of.items("quotas")],
                    of.flag("more"),
                    of.number("total"),
                ),
            )
            found += fresh
            if not fresh or len(found) >= total:
                break
        rows = (
            replace(each, name=self._unwrap(each.name)) if each.entity in WRAPPED else each for each in found
        )
        return Listing(tuple(rows), more)

    def _entity_name(self, entity: str, name: str) -> str:
        return self._wrap(name) if entity in WRAPPED and name != "*" else name

    async def status(self, broker: str) -> dict[str, Any]:
        """What the broker reports of itself: version, store, options, counts, rates, lags, connections."""
        return await self._object(RequestCode.GET_STATUS, {}, broker)

    async def history(
        self, broker: str, first_ms: int | None = None, last_ms: int | None = None, series: str = ""
    ) -> dict[str, Any]:
        """Rates and lags of the last day: `stepMs`, `fromMs`, and `series`, name → a value for each step, None where
        there is none. By default of the last hour. `series`: how the names of the wanted series begin."""
        ext = {"series": series}
        if first_ms is not None:
            ext["from"] = str(first_ms)
        if last_ms is not None:
            ext["to"] = str(last_ms)
        answers = await self._ask(RequestCode.GET_HISTORY, ext, broker)
        return read(answers[broker].body, _history)

    async def log(
        self, broker: str, *, after: int = 0, level: str = "", limit: int = 100
    ) -> Listing[LoggedLine]:
        """The last lines of the broker's log, oldest first. `after`: only those with larger numbers; `level`: the
        least, such as WARNING."""
        ext = {"after": str(after), "limit": str(limit)} | ({"level": level} if level else {})
        return await self._list(LoggedLine, RequestCode.GET_LOG, "lines", ext, broker)

    async def machine(self, broker: str) -> dict[str, Any]:
        """What only the broker's machine can report: disks, fsync, open files, memory, addresses, clock, last
        backup."""
        return await self._object(RequestCode.GET_MACHINE, {}, broker)

    async def _object(self, code: RequestCode, ext: Mapping[str, str], broker: str) -> dict[str, Any]:
        """The JSON object that one broker answers with."""
        answers = await self._ask(code, ext, broker)
        return read(answers[broker].body, lambda members: dict(members.pairs()))

    async def _list(
        self, kind: type[Row], code: RequestCode, member: str, ext: Mapping[str, str], broker: str | None
    ) -> Listing[Row]:
        answers = await self._ask(code, ext, broker)
        found = [read(answer.body, rows_of(kind, member, name)) for name, answer in answers.items()]
        rows = tuple(self._unwrapped(row) for listing in found for row in listing)
        return Listing(rows, any(listing.more for listing in found))

    def _unwrapped(self, row: Row) -> Row:
        """The row with the user's names of topic and groups."""
        names: dict[str, object] = {}
        for field in ("topic", "group"):
            if hasattr(row, field):
                names[field] = self._unwrap(getattr(row, field))
        for field in ("groups", "producer_groups"):
            if hasattr(row, field):
                names[field] = tuple(map(self._unwrap, getattr(row, field)))
        return replace(row, **names) if names else row  # type: ignore[type-var]

    async def _brokers_of(self, topic: str) -> list[str]:
        """The names of the brokers that have the topic. NoRoute."""
        routes = self._admin.calls.instance.routes
        await routes.refresh(topic)
        route = routes.known(topic)
        return [] if route is None else sorted({queue.broker_name for queue in route.queues})

    async def _ask(
        self, code: RequestCode, ext: Mapping[str, str], broker: str | None, body: bytes = b""
    ) -> dict[str, RemotingCommand]:
        calls = self._admin.calls
        masters = await calls.masters() if broker is None else {broker: await calls.master(broker)}
        answers = await asyncio.gather(
            *(self._ask_one(address, code, ext, body) for address in masters.values())
        )
        return dict(zip(masters, answers, strict=True))

    async def _ask_one(
        self, address: str, code: RequestCode, ext: Mapping[str, str], body: bytes
    ) -> RemotingCommand:
        try:
            return await self._admin.calls.ask(address, code, ext, body)
        except BrokerError as refused:
            if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise OnlyFireArrow(address) from None
            raise


def _history(answer: Members) -> dict[str, Any]:
    series = {
        str(name): [float(value) if isinstance(value, int | float) else None for value in values]
        for name, values in answer.members("series").pairs()
        if isinstance(values, list)
    }
    return {"fromMs": answer.number("fromMs"), "stepMs": answer.number("stepMs"), "series": series}
