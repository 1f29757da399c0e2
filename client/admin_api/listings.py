"""All topics or groups of a FireArrow broker, page by page, by the names that it knows. Loop thread.

`Extensions` has them by the user's names. OnlyFireArrow: the broker is Apache's, or does not know these requests yet.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.admin_api.records import Connection, Members, connections, read
from firearrow.client.admin_api.requests import AdminCalls
from firearrow.client.base.errors import BrokerError, OnlyFireArrow


@dataclass(frozen=True, slots=True)
class ListedQueue:
    """First offset, end, and when the last message was stored (0: never)."""

    queue_id: int
    min_offset: int
    max_offset: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """`queues`: all of the broker's, also those that were taken away from the topic and still have messages."""

    queues: tuple[ListedQueue, ...]
    bytes: int = 0
    """Of its messages, about, if that was asked for."""

    @classmethod
    def of(cls, members: Members) -> "ListedTopic":
        rows = members.items("queues")
        if not all(isinstance(row, list) and len(row) == 4 and set(map(type, row)) == {int} for row in rows):
            raise fastjson.JsonError("queues must be lists of four numbers")
        return cls(tuple(ListedQueue(*row) for row in rows), members.number("bytes"))  # type: ignore[misc]


@dataclass(slots=True)
class ListedGroup:
    """`consumed`: its offsets in total; `lag_ms`: the age of its oldest unread message. Both and `lag` are -1 if its
    members keep their offsets themselves. With details: `connections`, `subscriptions` (topic → expression), and
    `offsets` (topic → queue → offset)."""

    members: int
    consume_type: str
    message_model: str
    consume_from_where: str
    topics: int
    consumed: int
    lag: int
    lag_ms: int
    connections: tuple[Connection, ...] = ()
    subscriptions: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Members) -> "ListedGroup":
        return cls(
            members.number("members"),
            members.text("consumeType"),
            members.text("messageModel"),
            members.text("consumeFromWhere"),
            members.number("topics"),
            members.number("consumed"),
            members.number("lag"),
            members.number("lagMs"),
            connections(members, "connections"),
            {str(topic): str(text) for topic, text in members.members("subscriptions").pairs()},
            _offsets(members.members("offsets").pairs()),
        )


def _offsets(topics: Iterable[tuple[str, Any]]) -> dict[str, dict[int, int]]:
    """Of up to a million queues: one expression."""
    try:
        return {
            topic: {int(number): offset + 0 for number, offset in queues.items()} for topic, queues in topics
        }
    except (AttributeError, TypeError, ValueError):
        raise fastjson.JsonError("offsets must be numbers by queue") from None


async def listed_topics(calls: AdminCalls, address: str, *, sizes: bool = False) -> dict[str, ListedTopic]:
    """Topic → its queues, of the broker at this address. `sizes`: and the bytes of its messages."""
    found: dict[str, ListedTopic] = {}
    extra = {"sizes": "true"} if sizes else {}
    after, more = "", True
    while more:
        body = await _page(calls, address, RequestCode.LIST_TOPICS, {"after": after} | extra)
        rows, more = read(body, _topics_page)
        found |= rows
        last, after = after, max(rows, default="")
        more = more and after > last
    return found


async def listed_groups(calls: AdminCalls, address: str, *, details: bool = False) -> dict[str, ListedGroup]:
    """Group → how it is, at the broker at this address. `details`: with members, subscriptions and offsets instead of
    the sums."""
    found: dict[str, ListedGroup] = {}
    at = "", ""
    asked: asyncio.Task[Members] | None = asyncio.create_task(_groups_page(calls, address, details, at))
    try:
        while asked is not None:
            page, asked = await asked, None
            more, following = read(page, _following)
            if more and following > at:
                at, asked = following, asyncio.create_task(_groups_page(calls, address, details, following))
                await asyncio.sleep(0)  # it is sent: the broker makes the next page while this one is read
            for name, group in read(page, _group_rows):
                if name in found:  # the page before ended within it
                    found[name].offsets |= group.offsets
                else:
                    found[name] = group
    finally:
        if asked is not None:
            asked.cancel()
    return found


async def _groups_page(calls: AdminCalls, address: str, details: bool, at: tuple[str, str]) -> Members:
    ext = {"details": str(details).lower(), "fromGroup": at[0], "fromTopic": at[1]}
    return read(await _page(calls, address, RequestCode.LIST_GROUPS, ext), lambda page: page)


def _topics_page(page: Members) -> tuple[dict[str, ListedTopic], bool]:
    rows = map(Members, page.items("topics"))
    return {row.text("topic"): ListedTopic.of(row) for row in rows}, page.flag("more")


def _group_rows(page: Members) -> list[tuple[str, ListedGroup]]:
    return [(row.text("group"), ListedGroup.of(row)) for row in map(Members, page.items("groups"))]


def _following(page: Members) -> tuple[bool, tuple[str, str]]:
    """Whether there are more, and where the next page begins."""
    return page.flag("more"), (page.text("nextGroup"), page.text("nextTopic"))


async def _page(calls: AdminCalls, address: str, code: RequestCode, ext: Mapping[str, str]) -> bytes:
    try:
        return (await calls.ask(address, code, ext)).body
    except BrokerError as refused:
        if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise OnlyFireArrow(address) from None
        raise
